// The sampling of sampler.h; choosing among the adjusted logits is kernels/sample.h.
#include "engine/sample/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "base/noise.h"

namespace invar::engine {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Without a branch a logit: adding one to an exponent of all ones, and to no other, reaches the sign.
bool AllFinite(const std::span<const float> logits) {
  const auto reaches = [](const float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffU) + 0x00800000U; };
  constexpr size_t kBlock = 256;  // Of a length known here, so that it becomes vector code.
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    uint32_t any = 0;
    for (size_t j = 0; j < kBlock; ++j) any |= reaches(logits[i + j]);
    if ((any & 0x80000000U) != 0) return false;
  }
  uint32_t any = 0;
  for (; i < logits.size(); ++i) any |= reaches(logits[i]);
  return (any & 0x80000000U) == 0;
}

// The kept logits wait behind the row, in memory that is there from the last token.
void KeepOnlyAllowed(const std::vector<TokenId>& allowed, std::vector<float>& logits) {
  if (allowed.empty()) return;
  const size_t ids = logits.size();
  for (const TokenId token : allowed) logits.push_back(logits[static_cast<size_t>(token.value())]);
  std::fill_n(logits.begin(), ids, kMasked);
  for (size_t i = 0; i < allowed.size(); ++i) logits[static_cast<size_t>(allowed[i].value())] = logits[ids + i];
  logits.resize(ids);
}

bool MasksStops(const SampleInput& input) { return input.output_tokens < input.stopping.min_tokens; }

bool Adjusts(const SampleInput& input) {
  return UsesPenalties(input.sampling) || !input.sampling.logit_bias.empty() ||
         !input.sampling.allowed_token_ids.empty() || MasksStops(input);
}

std::span<const float> Adjusted(const SampleInput& input, const std::span<const float> logits,
                                std::vector<float>& scratch) {
  scratch.assign(logits.begin(), logits.end());
  ApplyPenalties(input.sampling, input.counts, scratch);
  for (const auto& [token, bias] : input.sampling.logit_bias) scratch[token] += bias;
  KeepOnlyAllowed(input.sampling.allowed_token_ids, scratch);
  if (MasksStops(input)) {
    for (const TokenId token : input.stopping.stop_token_ids) scratch[token.value()] = kMasked;
  }
  return scratch;
}

}  // namespace

std::optional<TokenId> SampleToken(const SampleInput& input, std::vector<float>& scratch) {
  const std::span<const float> usable = input.logits.first(static_cast<size_t>(input.usable_ids));
  if (!AllFinite(usable)) return std::nullopt;
  const std::span<const float> adjusted = Adjusts(input) ? Adjusted(input, usable, scratch) : usable;
  const kernels::SampleSettings settings{.temperature = input.sampling.temperature,
                                         .top_k = input.sampling.top_k,
                                         .top_p = input.sampling.top_p,
                                         .min_p = input.sampling.min_p};
  const NoiseKey key{.seed = input.sampling.seed,
                     .output_index = input.sampling.output_index,
                     .position = static_cast<uint32_t>(input.position.value())};
  const int32_t id = input.rows.Sample(adjusted, settings, key);
  Check(id >= 0, "some usable id is finite and not masked");
  return TokenId(id);
}

}  // namespace invar::engine
