// Which rows are sampled together, and where each is found again.
#include "engine/loop/sampled_rows.h"

#include <algorithm>
#include <utility>

#include "engine/sample/logprobs.h"
#include "engine/sample/penalties.h"
#include "engine/sample/sampler.h"
#include "engine/wants_logprob.h"

namespace invar::engine {

void SampledRows::Begin(const std::span<const SpanResult> results, const std::span<const Sequence* const> of) {
  first_.clear();
  behind_.clear();
  // Where threads would be left over, the first rows behind drafts come with them.
  const int32_t count = std::max<int32_t>(1, threads() / std::max<int32_t>(1, static_cast<int32_t>(results.size())));
  for (size_t i = 0; i < results.size(); ++i) {
    if (Samples(*of[i], results[i].span)) Add(*of[i], results[i], 0, count, first_);
  }
  SampleAll(first_);
}

SampledRow SampledRows::Take(const Sequence& sequence, const SpanResult& result, const int32_t right) {
  const float* const at = result.row_behind(right);
  const auto find = [at](std::vector<Row>& rows) {
    const auto by_logits = [](const Row& row, const float* const to) { return row.logits.data() < to; };
    const auto found = std::lower_bound(rows.begin(), rows.end(), at, by_logits);
    return found == rows.end() || found->logits.data() != at ? nullptr : &*found;
  };
  if (Row* const row = find(first_); row != nullptr) return std::move(row->sampled);
  if (Row* const row = find(behind_); row != nullptr) return std::move(row->sampled);
  behind_.clear();
  Add(sequence, result, right, threads(), behind_);
  SampleAll(behind_);
  return std::move(behind_.front().sampled);
}

void SampledRows::Add(const Sequence& sequence, const SpanResult& result, const int32_t right, const int32_t count,
                      std::vector<Row>& to) const {
  // Tokens that are not taken yet are not counted either.
  const int32_t most = UsesPenalties(sequence.request().sampling) ? 1 : count;
  for (int32_t ahead = 0; ahead < most && right + ahead <= result.span.drafted; ++ahead) {
    to.push_back({.sequence = &sequence,
                  .logits = {result.row_behind(right + ahead), static_cast<size_t>(result.logits.cols)},
                  .ahead = ahead});
  }
}

void SampledRows::SampleAll(std::vector<Row>& rows) {
  if (pool_ != nullptr && rows.size() > 1) {
    pool_->ParallelFor(std::ssize(rows), [&](const int64_t i) { SampleOne(rows[static_cast<size_t>(i)]); });
  } else {
    for (Row& row : rows) SampleOne(row);
  }
}

void SampledRows::SampleOne(Row& row) const {
  static thread_local std::vector<float> scratch;  // Logits being adjusted.
  // As pool threads do, whoever it is.
  const FlushDenormals flush;
  const Sequence& sequence = *row.sequence;
  const Request& request = sequence.request();
  const auto known = static_cast<int32_t>(sequence.tokens().size());
  SampledRow& sampled = row.sampled;
  sampled.token = SampleToken({.rows = rows_,
                               .logits = row.logits,
                               .sampling = request.sampling,
                               .stopping = request.stopping,
                               .counts = sequence.counts(),
                               .output_tokens = sequence.output_tokens() + row.ahead,
                               .position = Position(known + row.ahead),
                               .usable_ids = usable_ids_},
                              scratch);
  if (sampled.token.has_value() && WantsLogprob(request.output)) {
    sampled.logprob = MakeLogprob(rows_, row.logits, usable_ids_, *sampled.token, request.output.logprobs.value_or(0));
  }
}

}  // namespace invar::engine
