// See origin_text.h.
#include "models/text/jinja/origin_text.h"

#include <algorithm>

#include "base/check.h"

namespace invar::models::jinja {

void OriginText::Append(const std::string_view bytes, const ControlTokens origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

size_t OriginText::RunAt(const size_t index) const {
  const auto it =
      std::upper_bound(runs_.begin(), runs_.end(), index, [](size_t i, const Run& run) { return i < run.end; });
  return static_cast<size_t>(it - runs_.begin());
}

void OriginText::Append(const OriginText& other, size_t begin, const size_t end) {
  Check(begin <= end && end <= other.size() && this != &other, "a slice lies within another text", begin, end,
        other.size());
  for (size_t run = other.RunAt(begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    Append(std::string_view(other.bytes_).substr(begin, stop - begin), other.runs_[run].origin);
    begin = stop;
  }
}

OriginText OriginText::Slice(const size_t begin, const size_t end) const {
  OriginText slice;
  slice.Append(*this, begin, end);
  return slice;
}

ControlTokens OriginText::OriginAt(const size_t index) const {
  Check(index < size(), "the index lies within the text", index, size());
  return runs_[RunAt(index)].origin;
}

std::vector<PromptPiece> OriginText::Pieces() const {
  std::vector<PromptPiece> pieces;
  size_t begin = 0;
  for (const Run& run : runs_) {
    pieces.push_back({bytes_.substr(begin, run.end - begin), run.origin});
    begin = run.end;
  }
  return pieces;
}

}  // namespace invar::models::jinja
