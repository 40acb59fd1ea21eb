// logprob = logit - log sum exp over the whole row, both in fp32 as kernels/sample.h defines them.
#include "engine/sample/logprobs.h"

#include <cmath>

namespace invar::engine {

std::optional<TokenLogprob> MakeLogprob(const kernels::RowSampler& rows, const std::span<const float> logits,
                                        const int32_t usable_ids, const TokenId token, const int32_t alternatives) {
  const float log_sum = rows.LogSumExp(logits);
  TokenLogprob out{
      .token = token, .logit = logits[token.value()], .logprob = logits[token.value()] - log_sum, .top = {}};
  if (!std::isfinite(out.logprob)) return std::nullopt;
  if (alternatives == 0) return out;
  std::vector<int32_t> ids;
  rows.Top(logits.first(static_cast<size_t>(usable_ids)), alternatives, &ids);
  for (const int32_t id : ids) out.top.push_back({TokenId(id), logits[id] - log_sum});
  return out;
}

}  // namespace invar::engine
