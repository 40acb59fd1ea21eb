// What the tasks are drawn with: the same draws from a seed on every machine and library.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/split_mix64.h"

namespace invar::eval {

class Chance {
 public:
  explicit Chance(const uint64_t seed) : bits_(seed) {}
  // A stream of its own for each `index`.
  Chance(const uint64_t seed, const uint64_t index) : bits_(MixBits(seed) ^ MixBits(~index)) {}

  // Within [0, count). Requires: count >= 1.
  int64_t Below(const int64_t count) { return static_cast<int64_t>(bits_.Next() % static_cast<uint64_t>(count)); }
  std::string_view OneOf(const std::span<const std::string_view> words) { return words[Below(std::ssize(words))]; }

  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (int64_t i = std::ssize(items) - 1; i > 0; --i) std::swap(items[i], items[Below(i + 1)]);
  }

  // Of so many digits, the first not 0.
  std::string Number(const int digits) {
    std::string number(1, static_cast<char>('1' + Below(9)));
    while (std::ssize(number) < digits) number += static_cast<char>('0' + Below(10));
    return number;
  }
  // 8-4-4-4-12 hexadecimal digits.
  std::string Uuid() {
    std::string uuid;
    for (const int digits : {8, 4, 4, 4, 12}) {
      if (!uuid.empty()) uuid += '-';
      for (int i = 0; i < digits; ++i) uuid += "0123456789abcdef"[Below(16)];
    }
    return uuid;
  }
  std::string Letters(const int count, const char first) {
    std::string letters;
    for (int i = 0; i < count; ++i) letters += static_cast<char>(first + Below(26));
    return letters;
  }

 private:
  SplitMix64 bits_;
};

}  // namespace invar::eval
