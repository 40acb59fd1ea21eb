// From logits to a token: penalties, bias and masks; each a rule that users can read in the API.
#include "engine/sample/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/worker_pool.h"
#include "engine/loop/bind_model.h"
#include "engine/sample/logprobs.h"
#include "tests/support/wrapped_model.h"

namespace invar::engine {
namespace {

kernels::RowSampler Rows() { return kernels::RowSampler::Create({}).value(); }

struct Fixture {
  kernels::RowSampler rows = Rows();
  std::vector<float> logits = {1.0F, 3.0F, 2.0F, -1.0F};
  SamplingParams sampling{.temperature = 0.0F, .logit_bias = {}, .allowed_token_ids = {}};
  StoppingParams stopping{.max_tokens = 10, .stop = {}, .stop_token_ids = {}};
  TokenCounts counts;
  int32_t output_tokens = 0;
  int32_t usable_ids = 4;
  Position position{5};

  std::optional<TokenId> Sample() const {
    std::vector<float> scratch;
    return SampleToken({.rows = rows,
                        .logits = logits,
                        .sampling = sampling,
                        .stopping = stopping,
                        .counts = counts,
                        .output_tokens = output_tokens,
                        .position = position,
                        .usable_ids = usable_ids},
                       scratch);
  }
};

TEST(Sampler, GreedyTakesTheLargest) { EXPECT_EQ(Fixture().Sample(), TokenId(1)); }

TEST(Sampler, TinyTemperaturesAreGreedy) {
  Fixture f;
  for (const float temperature : {1e-38F, 1e-6F, -0.0F}) {
    f.sampling.temperature = temperature;
    EXPECT_EQ(f.Sample(), TokenId(1));
  }
}

TEST(Sampler, PaddingRowsAreNeverSampled) {
  Fixture f;
  f.usable_ids = 1;
  EXPECT_EQ(f.Sample(), TokenId(0));
}

TEST(Sampler, BiasMovesTheChoice) {
  Fixture f;
  f.sampling.logit_bias[3] = 5.0F;
  EXPECT_EQ(f.Sample(), TokenId(3));
}

TEST(Sampler, OnlyAllowedIdsAreSampled) {
  Fixture f;
  f.sampling.allowed_token_ids = {TokenId(3), TokenId(0), TokenId(3)};
  EXPECT_EQ(f.Sample(), TokenId(0));
}

TEST(Sampler, StopIdsWaitForMinTokens) {
  Fixture f;
  f.stopping.stop_token_ids = {TokenId(1)};
  f.stopping.min_tokens = 2;
  f.output_tokens = 1;
  EXPECT_EQ(f.Sample(), TokenId(2));
  f.output_tokens = 2;
  EXPECT_EQ(f.Sample(), TokenId(1));
}

TEST(Sampler, ARowThatIsNotFiniteGivesNoToken) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Fixture f;
    f.logits[2] = bad;
    EXPECT_FALSE(f.Sample().has_value());
    f.usable_ids = 2;  // In a padding row nobody looks.
    EXPECT_TRUE(f.Sample().has_value());
  }
}

TEST(Sampler, FindsWhatIsNotFiniteWhereverItStands) {
  Fixture f;
  f.usable_ids = 600;  // Two blocks and a rest.
  for (const size_t at : {0, 255, 256, 511, 512, 599, 600}) {
    for (const float bad : {-std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::lowest()}) {
      f.logits.assign(700, 1.0F);
      f.logits[at] = bad;
      EXPECT_EQ(f.Sample().has_value(), std::isfinite(bad) || at >= 600) << at;
    }
  }
}

TEST(Sampler, NoiseDependsOnSeedPositionAndOutputIndexAlone) {
  Fixture f;
  f.logits.assign(64, 0.0F);
  f.usable_ids = 64;
  f.sampling.temperature = 1.0F;
  const auto sample = [&](const uint64_t seed, const int32_t position, const uint32_t output_index) {
    f.sampling.seed = seed;
    f.sampling.output_index = output_index;
    f.position = Position(position);
    return f.Sample()->value();
  };
  EXPECT_EQ(sample(1, 5, 0), sample(1, 5, 0));
  std::set<int32_t> by_seed, by_position, by_index;
  for (int i = 0; i < 20; ++i) {
    by_seed.insert(sample(i, 5, 0));
    by_position.insert(sample(1, i, 0));
    by_index.insert(sample(1, 5, i));
  }
  for (const auto& seen : {by_seed, by_position, by_index}) EXPECT_GT(seen.size(), 8U);
}

TEST(Penalties, RepetitionDividesPositiveAndMultipliesNegativeOnceAToken) {
  TokenCounts counts;
  counts.AddPrompt(TokenId(0));
  counts.AddOutput(TokenId(1));
  counts.AddOutput(TokenId(1));
  std::vector<float> logits = {4.0F, -4.0F, 4.0F};
  ApplyPenalties({.repetition_penalty = 2.0F, .logit_bias = {}, .allowed_token_ids = {}}, counts, logits);
  EXPECT_EQ(logits, (std::vector<float>{2.0F, -8.0F, 4.0F}));
}

TEST(Penalties, PresenceAndFrequencySeeTheOutputOnly) {
  TokenCounts counts;
  counts.AddPrompt(TokenId(0));
  for (int i = 0; i < 3; ++i) counts.AddOutput(TokenId(1));
  std::vector<float> logits = {4.0F, 4.0F, 4.0F};
  ApplyPenalties({.presence_penalty = 1.0F, .frequency_penalty = 0.5F, .logit_bias = {}, .allowed_token_ids = {}},
                 counts, logits);
  EXPECT_EQ(logits, (std::vector<float>{4.0F, 1.5F, 4.0F}));
}

TEST(TokenCounts, AreThoseOfAMapWhateverTheOrder) {
  TokenCounts counts;
  std::map<int32_t, std::pair<bool, int32_t>> expected;
  uint32_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 1664525U + 1013904223U;
    const auto token = static_cast<int32_t>(random >> 18);
    if (i < 5'000) {
      counts.AddPrompt(TokenId(token));
      expected[token].first = true;
    } else {
      counts.AddOutput(TokenId(token));
      ++expected[token].second;
    }
  }
  std::map<int32_t, std::pair<bool, int32_t>> found;
  for (const TokenCounts::Count& count : counts.counts()) found[count.token] = {count.in_prompt, count.in_output};
  EXPECT_EQ(found.size(), counts.counts().size()) << "each token stands once";
  EXPECT_EQ(found, expected);
}

// The model of hashes, as if it computed on a backend.
class OnBackend final : public testing::WrappedModel {
 public:
  explicit OnBackend(kernels::Backend& backend) : WrappedModel(models::MakeFingerprintModel({})), backend_(backend) {}
  kernels::Backend* backend() const override { return &backend_; }

 private:
  kernels::Backend& backend_;
};

TEST(Sampler, RunsOnTheInstructionSetThatIsForcedOnTheModel) {
  WorkerPool pool(1);
  for (const std::string& isa : kernels::SupportedIsas()) {
    const std::unique_ptr<kernels::Backend> backend = kernels::MakeBackend({.name = "cpu", .isa = isa}, pool).value();
    EXPECT_EQ(SamplerFor(OnBackend(*backend)).isa(), isa);
  }
  const std::unique_ptr<models::Model> without = models::MakeFingerprintModel({});
  EXPECT_EQ(SamplerFor(*without).isa(), kernels::SupportedIsas().front());
}

TEST(Logprobs, AreOfTheRawRowWithAlternativesBestFirst) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), 0.0F};
  const TokenLogprob logprob = MakeLogprob(Rows(), logits, static_cast<int32_t>(logits.size()), TokenId(0), 2).value();
  EXPECT_EQ(logprob.logit, 0.0F);
  EXPECT_NEAR(logprob.logprob, std::log(0.25), 1e-6);
  ASSERT_EQ(logprob.top.size(), 2U);
  EXPECT_EQ(logprob.top[0].token, TokenId(1));
  EXPECT_EQ(logprob.top[1].token, TokenId(0));  // Ties go to the smallest id.
}

TEST(Logprobs, NameNoPaddingRows) {
  const std::vector<float> logits = {0.0F, 1.0F, 9.0F};
  const TokenLogprob logprob = MakeLogprob(Rows(), logits, /*usable_ids=*/2, TokenId(0), 3).value();
  ASSERT_EQ(logprob.top.size(), 2U);
  EXPECT_EQ(logprob.top[0].token, TokenId(1));
}

TEST(Logprobs, AreMissingWhereTheRowIsNotFinite) {
  const std::vector<float> logits = {0.0F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(MakeLogprob(Rows(), logits, static_cast<int32_t>(logits.size()), TokenId(1), 0).has_value());
}

}  // namespace
}  // namespace invar::engine
