// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): noise as a pure function of a key
// and a counter. No state, so the noise of a token does not depend on batch, order or thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/philox.h"

namespace invar {

using PhiloxWords = std::array<uint32_t, 4>;

// Four independent 32-bit words. Threads: any.
constexpr PhiloxWords Philox4x32(PhiloxWords counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t second = uint64_t{kPhiloxMultiplier2} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += kPhiloxStep0;
    key[1] += kPhiloxStep1;
  }
  return counter;
}

// What the noise of one sampled position depends on.
struct NoiseKey {
  uint64_t seed = 0;
  uint32_t output_index = 0;  // Which of several answers to one request.
  uint32_t position = 0;      // Of the token being chosen.
};

// Words of tokens 4 * group .. 4 * group + 3.
constexpr PhiloxWords TokenNoise(const NoiseKey& key, const uint32_t group) {
  return Philox4x32({group, key.output_index, key.position, 0},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

}  // namespace invar
