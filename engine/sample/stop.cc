// The matching of stop.h: held text is at most one stop string long, so plain searches do.
#include "engine/sample/stop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops, const bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  for (const std::string& stop : stops_) Check(!stop.empty(), "stop strings have text");
}

StopMatcher::Fed StopMatcher::Feed(const std::string_view text, const bool armed) {
  if (stops_.empty() || !armed) return {Flush().append(text), std::nullopt};
  held_ += text;
  const std::string* first = nullptr;
  size_t first_begin = 0;
  size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < first_end || (end == first_end && begin < first_begin)) {
      first = &stop;
      first_begin = begin;
      first_end = end;
    }
  }
  if (first != nullptr) {
    Fed fed{held_.substr(0, include_stop_ ? first_end : first_begin), *first};
    held_.clear();
    return fed;
  }
  const size_t release = held_.size() - HeldSuffix();
  Fed fed{held_.substr(0, release), std::nullopt};
  held_.erase(0, release);
  return fed;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

// Longest end of held_ that begins some stop string.
size_t StopMatcher::HeldSuffix() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > longest; --length) {
      if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) longest = length;
    }
  }
  return longest;
}

}  // namespace invar::engine
