// The closed forms of speculation on compressed KV: drafts read it in the fast tier, one verify a round streams the
// full KV from the slow tier over a link. They say what a round is worth before anybody runs one.
//   E(K) = (1 - a^(K+1)) / (1 - a)          tokens a round of K drafts commits (acceptance a a token), bonus token too
//   full = n / t(n)                          plain decoding, as many residents as full KV allows
//   staggered = E(K) min(1 / link, 1 / (K t(m) / m + verify))   m residents, compressed
// Source: VeriCache (arXiv 2605.17613) for the round, sums by arithmetic. Threads: any; pure functions.
#pragma once

#include <cstdint>

namespace invar::engine {

// Rates that are reached, not those of a data sheet.
struct TwoTierDevice {
  double fast_bytes_per_s = 0;
  double link_bytes_per_s = 0;
  double flops_per_s = 0;
  double step_overhead_s = 0;  // A step's cost beside bytes and products.
  double kv_room_bytes = 0;    // Of the fast tier, for KV and states.
};

// What a typical request needs.
struct SpeculationLoad {
  double weight_bytes = 0;
  double flops_per_token = 0;
  double full_kv_bytes = 0;  // Of the whole context.
  double state_bytes = 0;    // Recurrent; a request that speculates holds two.
  double compression = 1;    // Full over compressed bytes.
  double acceptance = 0;     // Probability that a drafted token is the one full KV gives, [0, 1].
  double prefix_group = 1;   // Requests that share their context: one stream verifies all.
  double wire_factor = 1;    // Full bytes over bytes on the link: lossless coding.
};

double ExpectedRun(double acceptance, int32_t draft_tokens);

// Seconds of a step in which `rows` requests read `bytes_each` of KV and state besides the weights, one token each.
double StepSeconds(const TwoTierDevice& device, const SpeculationLoad& load, double rows, double bytes_each);
// Seconds a verify of `tokens` rows (of all requests that share the stream) adds to a step.
double VerifySeconds(const TwoTierDevice& device, const SpeculationLoad& load, double tokens);
// Seconds the link carries one stream of full KV.
double LinkSeconds(const TwoTierDevice& device, const SpeculationLoad& load);

// At least one: a server that holds none serves none.
int32_t FullResidents(const TwoTierDevice& device, const SpeculationLoad& load);
int32_t DraftResidents(const TwoTierDevice& device, const SpeculationLoad& load);

// Of plain decoding: with so many residents, or with as many as there is room for.
double PlainTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load, int32_t residents);
double FullTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load);
// Rounds a second that link and compute allow; what the smaller of both times E(K) is.
double LinkRounds(const TwoTierDevice& device, const SpeculationLoad& load);
double ComputeRounds(const TwoTierDevice& device, const SpeculationLoad& load, int32_t draft_tokens, int32_t residents);
double StaggeredTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load, int32_t draft_tokens,
                                int32_t residents);
// Whatever the draft length: what the link carries, over the tokens a stream is worth.
double LinkBoundTokensPerSecond(const TwoTierDevice& device, const SpeculationLoad& load);

// The draft length in [1, most] of the best staggered throughput; the shorter of two that are equal.
int32_t BestDraftTokens(const TwoTierDevice& device, const SpeculationLoad& load, int32_t most, int32_t residents);

}  // namespace invar::engine
