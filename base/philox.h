// The constants of Philox4x32-10 (base/noise.h), for those who compute it in other ways. Nothing but constants: files
// built for one instruction set include it.
#pragma once

#include <cstdint>

namespace invar {

inline constexpr int kPhiloxRounds = 10;
// Of words 0 and 2.
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr uint32_t kPhiloxMultiplier2 = 0xCD9E8D57U;
// What the words of the key grow by after a round.
inline constexpr uint32_t kPhiloxStep0 = 0x9E3779B9U;
inline constexpr uint32_t kPhiloxStep1 = 0xBB67AE85U;

}  // namespace invar
