// The sampling of sampler.h; choosing among the adjusted logits is kernels/sample.h.
#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/noise.h"

namespace invar::engine {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// The kept logits wait behind the row, in memory that is there from the last token.
void KeepOnlyAllowed(const std::vector<TokenId>& allowed, std::vector<float>& logits) {
  if (allowed.empty()) return;
  const size_t ids = logits.size();
  for (const TokenId token : allowed) logits.push_back(logits[static_cast<size_t>(token.value())]);
  std::fill_n(logits.begin(), ids, kMasked);
  for (size_t i = 0; i < allowed.size(); ++i) logits[static_cast<size_t>(allowed[i].value())] = logits[ids + i];
  logits.resize(ids);
}

}  // namespace

std::optional<TokenId> SampleToken(const SampleInput& input, std::vector<float>& scratch) {
  scratch.assign(input.logits.begin(), input.logits.begin() + input.usable_ids);
  if (!std::all_of(scratch.begin(), scratch.end(), [](const float x) { return std::isfinite(x); })) return std::nullopt;

  ApplyPenalties(input.sampling, input.counts, scratch);
  for (const auto& [token, bias] : input.sampling.logit_bias) scratch[token] += bias;
  KeepOnlyAllowed(input.sampling.allowed_token_ids, scratch);
  if (input.output_tokens < input.stopping.min_tokens) {
    for (const TokenId token : input.stopping.stop_token_ids) scratch[token.value()] = kMasked;
  }
  const kernels::SampleSettings settings{.temperature = input.sampling.temperature,
                                         .top_k = input.sampling.top_k,
                                         .top_p = input.sampling.top_p,
                                         .min_p = input.sampling.min_p};
  const NoiseKey key{.seed = input.sampling.seed,
                     .output_index = input.sampling.output_index,
                     .position = static_cast<uint32_t>(input.position.value())};
  const int32_t id = input.rows.Sample(scratch, settings, key);
  Check(id >= 0, "some usable id is finite and not masked");
  return TokenId(id);
}

}  // namespace invar::engine
