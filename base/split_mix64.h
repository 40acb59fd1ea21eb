// SplitMix64: a small generator, the same on every machine and library, for simulations and made-up weights.
// Not for sampling: that is noise.h, which is a function of its key alone.
#pragma once

#include <cstdint>

namespace invar {

// Its finalizer (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

class SplitMix64 {
 public:
  explicit SplitMix64(const uint64_t seed) : state_(seed) {}

  uint64_t Next() { return MixBits(state_ += 0x9E3779B97F4A7C15ULL); }

 private:
  uint64_t state_;
};

}  // namespace invar
