// Stop strings over streamed text. Text that could still become a stop string is held back, so that no byte of one ever
// reaches the reader; it is released once it cannot match any more. Where the text was cut into pieces never matters.
// Threads: engine thread only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace invar::engine {

class StopMatcher {
 public:
  struct Fed {
    std::string text;                    // Certain now; whole UTF-8 if what was fed is.
    std::optional<std::string> matched;  // The stop string; nothing may be fed after it.
  };

  // `include_stop`: the matched string stays in the text. Requires: no stop string is empty.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // `armed` false: the text passes and is no part of any match (before min_tokens).
  // The match that is complete first wins; of several complete at the same byte, the longest.
  Fed Feed(std::string_view text, bool armed);
  // The end of the output: what is still held back.
  std::string Flush();

 private:
  size_t HeldSuffix() const;

  const std::vector<std::string> stops_;
  const bool include_stop_;
  std::string held_;  // Not released; shorter than the longest stop string between calls.
};

}  // namespace invar::engine
