// TierRates: what steps and streams really take on this machine, as the closed forms of cost_model.h want it: bytes and
// products a second, learned from every step and every stream; and from them ChooseMode()'s answer for the requests
// that are there. Where nothing is known yet, rounds are tried: only they can tell. Pure but for what it remembers; no
// clock. Threads: engine thread only.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "engine/speculate/mode.h"
#include "models/model.h"

namespace invar::engine {

// Requests that want to be verified on full KV, those that wait included, and the memory there is for them.
struct RoundDemand {
  int32_t requests = 0;
  int64_t tokens = 0;      // Of all of them.
  int64_t view_bytes = 0;  // That drafters hold, for `viewed_tokens` tokens.
  int64_t viewed_tokens = 0;
  double acceptance = 0.0;         // Of drafts on views lately.
  int64_t kv_budget_bytes = 0;     // For full KV and states.
  int64_t draft_memory_bytes = 0;  // For views.
};

class TierRates {
 public:
  explicit TierRates(const models::ModelSpec& spec);

  // A step without streams has run `rows` tokens, each of which read all positions before it: `positions` in all.
  void StepTook(int64_t rows, int64_t positions, TimeNs took);
  // So many bytes have been read since the last call, in so much time of reading.
  void Streamed(int64_t bytes, TimeNs took);

  // Whether anything was measured that a choice could rest on.
  bool known() const { return fast_bytes_per_s_ > 0 && link_bytes_per_s_ > 0; }
  TwoTierDevice Device(const RoundDemand& demand) const;
  SpeculationLoad Load(const RoundDemand& demand) const;
  // Staggered, with the longest drafts, while nothing is known.
  ModeChoice Choose(const RoundDemand& demand, const ModeLimits& limits) const;

 private:
  // Set at construction.
  const models::StepWork work_;
  const int64_t state_bytes_;
  const int64_t page_bytes_;

  // Moving averages; 0: nothing seen.
  double fast_bytes_per_s_ = 0;
  double flops_per_s_ = 0;
  double link_bytes_per_s_ = 0;
};

}  // namespace invar::engine
