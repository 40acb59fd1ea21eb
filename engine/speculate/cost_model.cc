// The formulas of cost_model.h.
#include "engine/speculate/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace invar::engine {
namespace {

int32_t Fitting(const double room, const double each) {
  return each > 0 ? static_cast<int32_t>(std::clamp(std::floor(room / each), 1.0, 1e6)) : 1;
}

double CompressedBytes(const SpeculationLoad& load) { return load.full_kv_bytes / load.compression + load.state_bytes; }

}  // namespace

double ExpectedRun(const double acceptance, const int32_t draft_tokens) {
  if (acceptance >= 1.0) return draft_tokens + 1.0;
  return (1.0 - std::pow(acceptance, draft_tokens + 1)) / (1.0 - acceptance);
}

double StepSeconds(const TwoTierDevice& device, const SpeculationLoad& load, const double rows,
                   const double bytes_each) {
  const double read = (load.weight_bytes + rows * bytes_each) / device.fast_bytes_per_s;
  const double multiply = rows * load.flops_per_token / device.flops_per_s;
  return std::max(read, multiply) + device.step_overhead_s;
}

// Layer by layer as it arrives, so the weights are read once more.
double VerifySeconds(const TwoTierDevice& device, const SpeculationLoad& load, const double tokens) {
  const double read = (load.weight_bytes + load.full_kv_bytes) / device.fast_bytes_per_s;
  return std::max(read, tokens * load.flops_per_token / device.flops_per_s);
}

double LinkSeconds(const TwoTierDevice& device, const SpeculationLoad& load) {
  return load.full_kv_bytes / (device.link_bytes_per_s * load.wire_factor);
}

int32_t FullResidents(const TwoTierDevice& device, const SpeculationLoad& load) {
  return Fitting(device.kv_room_bytes, load.full_kv_bytes + load.state_bytes);
}

int32_t DraftResidents(const TwoTierDevice& device, const SpeculationLoad& load) {
  return Fitting(device.kv_room_bytes, CompressedBytes(load) + load.state_bytes);
}

double PlainTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load, const int32_t residents) {
  return residents / StepSeconds(device, load, residents, load.full_kv_bytes + load.state_bytes);
}

double FullTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load) {
  return PlainTokensPerSecond(device, load, FullResidents(device, load));
}

double LinkRounds(const TwoTierDevice& device, const SpeculationLoad& load) {
  const double seconds = LinkSeconds(device, load);
  return seconds > 0 ? load.prefix_group / seconds : std::numeric_limits<double>::infinity();
}

double ComputeRounds(const TwoTierDevice& device, const SpeculationLoad& load, const int32_t draft_tokens,
                     const int32_t residents) {
  const double group = std::min<double>(load.prefix_group, residents);
  const double draft = draft_tokens * StepSeconds(device, load, residents, CompressedBytes(load)) / residents;
  return 1.0 / (draft + VerifySeconds(device, load, group * (draft_tokens + 1)) / group);
}

double StaggeredTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load, const int32_t draft_tokens,
                                const int32_t residents) {
  return ExpectedRun(load.acceptance, draft_tokens) *
         std::min(LinkRounds(device, load), ComputeRounds(device, load, draft_tokens, residents));
}

double LinkBoundTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load) {
  if (load.acceptance >= 1.0) return std::numeric_limits<double>::infinity();
  return LinkRounds(device, load) / (1.0 - load.acceptance);
}

int32_t BestDraftTokens(const TwoTierDevice& device, const SpeculationLoad& load, const int32_t most,
                        const int32_t residents) {
  int32_t best = 1;
  double best_rate = 0;
  for (int32_t k = 1; k <= most; ++k) {
    const double rate = StaggeredTokensPerSecond(device, load, k, residents);
    if (rate > best_rate * (1 + 1e-12)) {
      best = k;
      best_rate = rate;
    }
  }
  return best;
}

}  // namespace invar::engine
