// The simulation's only source of chance: SplitMix64 from a seed, the same on every machine and library.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/split_mix64.h"

namespace invar::sim {

class Random {
 public:
  explicit Random(const uint64_t seed) : bits_(seed) {}

  uint64_t Next() { return bits_.Next(); }
  // Within [low, high].
  int32_t Between(const int32_t low, const int32_t high) {
    return low + static_cast<int32_t>(Next() % (static_cast<uint64_t>(high - low) + 1));
  }
  bool Percent(const int32_t percent) { return Between(0, 99) < percent; }
  template <typename T>
  T OneOf(const std::initializer_list<T> values) {
    return values.begin()[Between(0, static_cast<int32_t>(values.size()) - 1)];
  }

 private:
  SplitMix64 bits_;
};

}  // namespace invar::sim
