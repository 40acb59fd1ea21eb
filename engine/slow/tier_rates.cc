// The rates of tier_rates.h. A step is bound by bytes or by products, and says something of the one that binds it.
#include "engine/slow/tier_rates.h"

#include <algorithm>

#include "kernels/numerics.h"

namespace invar::engine {
namespace {

constexpr double kNewer = 0.1;  // Of a moving average.
// A step that takes so many times what its bytes take is bound by its products.
constexpr double kBoundByProducts = 1.5;
// Pages that a request keeps in the fast tier while its full KV is away: the one being filled, and one for a draft.
constexpr int64_t kPagesKept = 2;

void Average(double& average, const double value) {
  average = average == 0 ? value : (1.0 - kNewer) * average + kNewer * value;
}

int32_t Holds(const int64_t room, const double each) {
  return each > 0 ? static_cast<int32_t>(std::clamp(static_cast<double>(room) / each, 1.0, 1e6)) : INT32_MAX;
}

}  // namespace

TierRates::TierRates(const models::ModelSpec& spec)
    : work_(spec.work), state_bytes_(spec.state_bytes), page_bytes_(spec.page_bytes) {}

void TierRates::StepTook(const int64_t rows, const int64_t positions, const TimeNs took) {
  if (took <= 0 || rows <= 0) return;
  const double seconds = ToSeconds(took);
  const auto bytes = static_cast<double>(work_.weight_bytes + positions * work_.kv_bytes_per_position);
  const auto flops = static_cast<double>(rows * work_.matmul_flops + positions * work_.attention_flops_per_position);
  const bool by_products =
      fast_bytes_per_s_ > 0 && (flops_per_s_ > 0 ? flops / flops_per_s_ > bytes / fast_bytes_per_s_
                                                 : seconds > kBoundByProducts * bytes / fast_bytes_per_s_);
  if (by_products) {
    Average(flops_per_s_, flops / seconds);
  } else {
    Average(fast_bytes_per_s_, bytes / seconds);
  }
}

void TierRates::Streamed(const int64_t bytes, const TimeNs took) {
  if (bytes > 0 && took > 0) Average(link_bytes_per_s_, static_cast<double>(bytes) / ToSeconds(took));
}

TwoTierDevice TierRates::Device(const RoundDemand& demand) const {
  return {.fast_bytes_per_s = fast_bytes_per_s_,
          .link_bytes_per_s = link_bytes_per_s_,
          // Never seen to bind: then it binds nowhere.
          .flops_per_s = flops_per_s_ > 0 ? flops_per_s_ : 1e18,
          .step_overhead_s = 0,
          .kv_room_bytes = static_cast<double>(demand.kv_budget_bytes + demand.draft_memory_bytes)};
}

SpeculationLoad TierRates::Load(const RoundDemand& demand) const {
  const double tokens = static_cast<double>(demand.tokens) / std::max(1, demand.requests);
  const auto kv = static_cast<double>(work_.kv_bytes_per_position);
  const double compressed = static_cast<double>(demand.view_bytes) / std::max<double>(1, demand.viewed_tokens);
  return {.weight_bytes = static_cast<double>(work_.weight_bytes),
          .flops_per_token = static_cast<double>(work_.matmul_flops) +
                             tokens * static_cast<double>(work_.attention_flops_per_position),
          .full_kv_bytes = tokens * kv,
          .state_bytes = static_cast<double>(state_bytes_),
          .compression = compressed > 0 ? std::max(1.0, kv / compressed) : 1.0,
          .acceptance = demand.acceptance};
}

ModeChoice TierRates::Choose(const RoundDemand& demand, const ModeLimits& limits) const {
  if (!known() || demand.requests == 0) {
    return {.mode = DecodeMode::kStaggered,
            .residents = INT32_MAX,
            .draft_min = limits.draft_max,
            .draft_max = limits.draft_max};
  }
  const SpeculationLoad load = Load(demand);
  const double view = load.full_kv_bytes / load.compression + load.state_bytes;
  ModeLimits here = limits;
  here.plain_max = std::min(demand.requests, Holds(demand.kv_budget_bytes, load.full_kv_bytes + load.state_bytes));
  here.staggered_max =
      std::min({demand.requests, Holds(demand.draft_memory_bytes, view),
                Holds(demand.kv_budget_bytes, static_cast<double>(kPagesKept * page_bytes_ + state_bytes_))});
  return ChooseMode(Device(demand), load, here);
}

}  // namespace invar::engine
