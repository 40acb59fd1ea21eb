// The choice of mode.h.
#include "engine/speculate/mode.h"

#include <algorithm>
#include <cmath>

namespace invar::engine {
namespace {

// A gap is residents over rounds a second on average; so much of the limit is the average allowed to be.
constexpr double kGapShare = 0.85;

// All take turns on the link, so the gap of each grows with their number.
int32_t ResidentsWithinGap(const TwoTierDevice& device, const SpeculationLoad& load, const ModeLimits& limits) {
  const int32_t most = std::min(DraftResidents(device, load), limits.staggered_max);
  const double allowed = kGapShare * limits.gap_s_max * LinkRounds(device, load);
  return allowed < most ? std::max(1, static_cast<int32_t>(allowed)) : most;
}

}  // namespace

std::string_view NameOf(const DecodeMode mode) { return mode == DecodeMode::kPlain ? "plain" : "staggered"; }

ModeChoice ChooseMode(const TwoTierDevice& device, const SpeculationLoad& load, const ModeLimits& limits) {
  const int32_t plain = std::min(FullResidents(device, load), limits.plain_max);
  const double full = PlainTokensPerSecond(device, load, plain);
  const int32_t residents = ResidentsWithinGap(device, load, limits);
  const int32_t draft = BestDraftTokens(device, load, limits.draft_max, residents);
  const double staggered = StaggeredTokensPerSecond(device, load, draft, residents);
  ModeChoice choice{.residents = plain, .plain_residents = plain, .tokens_per_s = full, .gain = staggered / full};
  if (choice.gain < limits.gain_min) return choice;
  // Only where the link is what everybody waits for are more tokens free.
  const bool link_bound = LinkRounds(device, load) < ComputeRounds(device, load, draft, residents);
  choice.mode = DecodeMode::kStaggered;
  choice.residents = residents;
  choice.draft_min = draft;
  choice.draft_max = link_bound ? limits.draft_max : draft;
  choice.tokens_per_s = staggered;
  return choice;
}

}  // namespace invar::engine
