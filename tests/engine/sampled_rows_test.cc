// Rows that several threads sample have the tokens that the engine thread would have drawn by itself, one after
// another, whatever is right of a draft.
#include "engine/loop/sampled_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <random>

#include "engine/sample/logprobs.h"
#include "engine/sample/sampler.h"
#include "tests/engine/collector.h"

namespace invar::engine {
namespace {

constexpr int32_t kColumns = 1003;
constexpr int32_t kUsable = 990;
constexpr int32_t kPromptTokens = 5;

// What one row comes to, as bits.
struct Drawn {
  int32_t token = -1;
  uint32_t logprob = 0;
  std::vector<int32_t> top = {};
  bool operator==(const Drawn&) const = default;
};
Drawn DrawnOf(const SampledRow& row) {
  Drawn drawn{.token = row.token.has_value() ? row.token->value() : -1};
  if (!row.logprob.has_value()) return drawn;
  drawn.logprob = std::bit_cast<uint32_t>(row.logprob->logprob);
  for (const TokenAlternative& of : row.logprob->top) drawn.top.push_back(of.token.value());
  return drawn;
}

// A kind of request a turn, as many rows as its draft is long and one more.
Request RequestOf(const int32_t i) {
  Request request;
  for (int32_t t = 0; t < kPromptTokens; ++t) request.prompt.emplace_back((i * 31 + t * 7) % kUsable);
  SamplingParams& sampling = request.sampling;
  sampling.seed = static_cast<uint64_t>(i);
  sampling.temperature = i % 4 == 0 ? 0.0F : 0.7F;
  if (i % 3 == 1) sampling.top_p = 0.8F;
  if (i % 5 == 2) sampling.presence_penalty = 20.0F;
  if (i % 7 == 3) sampling.logit_bias = {{17, 4.0F}};
  if (i % 7 == 5) sampling.allowed_token_ids = {TokenId(3), TokenId(44), TokenId(500), TokenId(989)};
  request.stopping.max_tokens = 100;
  if (i % 6 == 4) {
    request.stopping.stop_token_ids = {TokenId(44), TokenId(500)};
    request.stopping.min_tokens = 2;
  }
  if (i % 4 == 1) request.output.logprobs = 3;
  return request;
}

// The rows of one step, with drafts of 0 to 6 tokens.
class Rows {
 public:
  explicit Rows(const int32_t sequences) {
    std::mt19937 random(static_cast<uint32_t>(sequences));
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (int32_t i = 0; i < sequences; ++i) drafted_.push_back(i % 3 == 0 ? 0 : i % 7);
    for (const int32_t drafted : drafted_) rows_ += drafted + 1;
    logits_.resize(static_cast<size_t>(rows_) * kColumns);
    for (float& logit : logits_) logit = normal(random);
    // Drawn again and again, but where that is penalised.
    for (int64_t row = 0; row < rows_; ++row) logits_[static_cast<size_t>(row) * kColumns + 100] = 18.0F;
    // As of a model whose logits are all next to nothing: the smallest floats, and their order.
    for (int32_t c = 0; c < kColumns; ++c) logits_[static_cast<size_t>(c)] = 1e-42F * static_cast<float>(c % 900);
    // And one that is not finite.
    if (rows_ > 9) logits_[9 * kColumns + 7] = std::numeric_limits<float>::quiet_NaN();
    for (int32_t i = 0; i < sequences; ++i) {
      sequences_.push_back(std::make_unique<Sequence>(SequenceId(i), RequestOf(i), std::make_shared<Collector>(), 100,
                                                      nullptr, nullptr, nullptr, TimeNs{0}));
      of_.push_back(sequences_.back().get());
    }
    int64_t row = 0;
    for (const int32_t drafted : drafted_) {
      results_.push_back({.span = {.sequence = SequenceId(std::ssize(results_)),
                                   .first = kPromptTokens - 1,
                                   .length = drafted + 1,
                                   .logits_rows = drafted + 1,
                                   .drafted = drafted},
                          .logits = {logits_.data() + row * kColumns, drafted + 1, kColumns, kColumns}});
      row += drafted + 1;
    }
  }

  // Each row as `take` gives it, to its sequence before the next: every draft turns out right.
  template <typename Take>
  std::vector<Drawn> All(const Take& take) {
    std::vector<Drawn> all;
    for (size_t i = 0; i < results_.size(); ++i) {
      for (int32_t right = 0; right <= drafted_[i]; ++right) {
        all.push_back(DrawnOf(take(*of_[i], results_[i], right)));
        if (all.back().token < 0) break;
        sequences_[i]->Accept(TokenId(all.back().token), std::nullopt, TimeNs{0});
      }
    }
    return all;
  }

  std::span<const SpanResult> results() const { return results_; }
  std::span<const Sequence* const> of() const { return of_; }

 private:
  std::vector<int32_t> drafted_;
  int32_t rows_ = 0;
  std::vector<float> logits_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<const Sequence*> of_;
  std::vector<SpanResult> results_;
};

// By sampler.h and logprobs.h alone.
std::vector<Drawn> ByHand(const kernels::RowSampler& sampler, const int32_t sequences) {
  Rows rows(sequences);
  const FlushDenormals flush;
  return rows.All([&](const Sequence& sequence, const SpanResult& result, const int32_t right) {
    const Request& request = sequence.request();
    const std::span<const float> logits(result.logits.row(right), kColumns);
    std::vector<float> scratch;
    SampledRow sampled{.token = SampleToken({.rows = sampler,
                                             .logits = logits,
                                             .sampling = request.sampling,
                                             .stopping = request.stopping,
                                             .counts = sequence.counts(),
                                             .output_tokens = sequence.output_tokens(),
                                             .position = Position(static_cast<int32_t>(sequence.tokens().size())),
                                             .usable_ids = kUsable},
                                            scratch)};
    if (sampled.token.has_value() && request.output.logprobs.has_value()) {
      sampled.logprob = MakeLogprob(sampler, logits, kUsable, *sampled.token, *request.output.logprobs);
    }
    return sampled;
  });
}

TEST(SampledRows, AreThoseOfOneThreadOnAnyNumberOfThreads) {
  const kernels::RowSampler sampler = kernels::RowSampler::Create({}).value();
  for (const int32_t sequences : {1, 2, 3, 17, 60}) {
    const std::vector<Drawn> wanted = ByHand(sampler, sequences);
    for (const int threads : {0, 1, 2, 3}) {
      const std::unique_ptr<WorkerPool> pool = threads == 0 ? nullptr : std::make_unique<WorkerPool>(threads);
      SampledRows sampled(sampler, pool.get(), kUsable);
      for (int again = 0; again < 3; ++again) {
        Rows rows(sequences);
        sampled.Begin(rows.results(), rows.of());
        const std::vector<Drawn> drawn =
            rows.All([&](const Sequence& sequence, const SpanResult& result, const int32_t right) {
              return sampled.Take(sequence, result, right);
            });
        EXPECT_EQ(drawn, wanted) << sequences << " sequences, " << threads << " threads";
      }
    }
  }
}

TEST(SampledRows, ThoseThatWereNotBegunAreSampledWhenTheyAreTaken) {
  const kernels::RowSampler sampler = kernels::RowSampler::Create({}).value();
  WorkerPool pool(2);
  SampledRows sampled(sampler, &pool, kUsable);
  Rows rows(17);
  EXPECT_EQ(rows.All([&](const Sequence& sequence, const SpanResult& result, const int32_t right) {
    return sampled.Take(sequence, result, right);
  }),
            ByHand(sampler, 17));
}

}  // namespace
}  // namespace invar::engine
