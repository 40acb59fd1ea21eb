// Epochs of one mode each, the choice between them.
#include "tools/stagger/adaptive.h"

#include <algorithm>

#include "engine/speculate/acceptance.h"
#include "tools/stagger/simulated_device.h"

namespace invar::tools {
namespace {

constexpr double kDecay = 0.997;  // Rounds of all requests count, some hundreds of them.
constexpr double kPriorTrials = 8;
constexpr double kPrior = 0.95;       // Optimism costs a few rounds, pessimism would never find out.
constexpr double kProbeShare = 0.01;  // Of the time of plain decoding, for rounds that only try.
constexpr int32_t kProbeTokens = 16;
constexpr int32_t kEpochs = 20;
constexpr int32_t kWarmUpEpochs = 6;

struct Progress {
  double seconds = 0;
  double tokens = 0;
};

// Others decode plainly while one request drafts and waits for its verify, again and again for its share of the time.
Progress DecodePlainly(const engine::TwoTierDevice& device, const engine::SpeculationLoad& load, const uint64_t seed,
                       engine::AcceptanceEstimate& estimate) {
  const StaggerOutcome probe = SimulateStagger(device, load, EqualRequests(load, 1),
                                               {.limits = {},
                                                .draft_min = kProbeTokens,
                                                .draft_max = kProbeTokens,
                                                .rounds = 4,
                                                .seed = seed,
                                                .learns = &estimate});
  const double rate = FullTokensPerSecond(device, load);
  const double residents = FullResidents(device, load);
  Progress progress{.seconds = probe.seconds / kProbeShare};
  progress.tokens = rate * (progress.seconds - probe.seconds) + rate * (1 - 1 / residents) * probe.seconds +
                    probe.tokens_per_s * probe.seconds;
  return progress;
}

}  // namespace

AdaptiveOutcome SimulateAdaptive(const engine::TwoTierDevice& device, const engine::SpeculationLoad& load,
                                 const engine::ModeLimits& limits, const uint64_t seed) {
  engine::AcceptanceEstimate estimate(kPrior, kPriorTrials, kDecay);
  AdaptiveOutcome outcome;
  Progress total;
  for (int32_t epoch = 0; epoch < kEpochs; ++epoch) {
    engine::SpeculationLoad believed = load;
    believed.acceptance = estimate.value();
    outcome.chosen = ChooseMode(device, believed, limits);
    Progress progress;
    if (outcome.chosen.mode == engine::DecodeMode::kPlain) {
      progress = DecodePlainly(device, load, seed + static_cast<uint64_t>(epoch), estimate);
    } else {
      const StaggerOutcome run = SimulateStagger(device, load, EqualRequests(load, outcome.chosen.residents),
                                                 {.limits = {},
                                                  .draft_min = outcome.chosen.draft_min,
                                                  .draft_max = outcome.chosen.draft_max,
                                                  .rounds = 20,
                                                  .seed = seed + static_cast<uint64_t>(epoch),
                                                  .learns = &estimate});
      progress = {.seconds = run.seconds, .tokens = run.tokens_per_s * run.seconds};
    }
    if (epoch < kWarmUpEpochs) continue;
    total.seconds += progress.seconds;
    total.tokens += progress.tokens;
  }
  outcome.tokens_per_s = total.tokens / total.seconds;
  outcome.acceptance = estimate.value();
  return outcome;
}

}  // namespace invar::tools
