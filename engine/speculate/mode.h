// ChooseMode(): whether speculating on compressed KV pays, and with which draft length. What it costs to be wrong is a
// server slower than one that never speculates, so plain decoding is taken unless the closed forms promise a gain.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "engine/speculate/cost_model.h"

namespace invar::engine {

enum class DecodeMode { kPlain, kStaggered };
std::string_view NameOf(DecodeMode mode);

struct ModeLimits {
  int32_t draft_max = 256;
  double gain_min = 1.02;  // Over plain decoding.
  // Longest time between two commits of a request: fewer residents where the link makes them wait longer.
  double gap_s_max = std::numeric_limits<double>::infinity();
  // Most residents of either mode, where less than the fast tier bounds them: so many requests are there, or their
  // memory is not one piece.
  int32_t plain_max = INT32_MAX;
  int32_t staggered_max = INT32_MAX;
};

struct ModeChoice {
  DecodeMode mode = DecodeMode::kPlain;
  int32_t residents = 0;
  int32_t plain_residents = 0;  // Of plain decoding, taken or not.
  bool all_fit = false;         // The fast tier holds the full KV of all there are.
  // Staggered, or what it would be: a round asks for its verify after draft_min tokens and goes on drafting to
  // draft_max while it waits.
  int32_t draft_min = 0;
  int32_t draft_max = 0;
  // Staggered: all draft, then all are verified together; where a forward is dearer than what it waits for.
  bool together = false;
  double tokens_per_s = 0;  // Predicted.
  double gain = 1;          // Of the best staggered choice over plain, taken or not.
};

ModeChoice ChooseMode(const TwoTierDevice& device, const SpeculationLoad& load, const ModeLimits& limits);

}  // namespace invar::engine
