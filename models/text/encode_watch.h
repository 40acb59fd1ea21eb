// The limits of one encoding while it goes on: counts work and asks now and then whether somebody still waits.
#pragma once

#include <cstddef>
#include <string>

#include "models/text.h"

namespace invar::models {

// One encoding, one thread.
class EncodeWatch {
 public:
  // Requires: `limits` outlives this.
  explicit EncodeWatch(const EncodeLimits& limits) : limits_(limits) {}

  // `work` units have been done: a byte or a symbol once looked at, some 10 to 100 ns each.
  Status Spend(const size_t work) {
    spent_ += work;
    if (spent_ < kAskEvery || !limits_.interrupted) return OkStatus();
    spent_ = 0;
    return limits_.interrupted();
  }
  // The text has `tokens` tokens so far.
  Status CheckTokens(const size_t tokens) const {
    if (tokens <= static_cast<size_t>(limits_.tokens_max)) return OkStatus();
    return Status(StatusCode::kOutOfRange, "the text has more than " + std::to_string(limits_.tokens_max) + " tokens",
                  "text");
  }

 private:
  static constexpr size_t kAskEvery = size_t{1} << 16;  // A few milliseconds.

  const EncodeLimits& limits_;
  size_t spent_ = 0;
};

}  // namespace invar::models
