// Compressed KV as a caller sees it: answers that say what they were computed on, take less memory, and leave everybody
// else's bits alone; and all that is joined in one engine at once, against a cold exact run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "engine/validate.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

v1::GenerateRequest Prompt(const uint32_t seed, const int32_t tokens, const int32_t max_tokens) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
  return TokensRequest(ids, max_tokens);
}

v1::GenerateRequest Approximate(v1::GenerateRequest request, const std::string& compressor = "") {
  request.mutable_kv_policy()->set_exactness(v1::KvPolicy::APPROXIMATE);
  request.mutable_kv_policy()->set_compressor(compressor);
  return request;
}

TEST(ApproximateAnswers, SayWhatTheyWereComputedOnAndLeaveOthersExact) {
  RunningDaemon daemon(TinyConfig());
  const v1::GenerateRequest request = Prompt(1, 600, 150);
  const Outcome exact = Collect(*daemon.NewStub(), request);
  ASSERT_TRUE(exact.status.ok()) << exact.status.error_message();
  EXPECT_TRUE(exact.finished.kv().exact());
  EXPECT_EQ(exact.finished.kv().compressor(), "");

  std::vector<std::string> compressors = {"", "streaming", "kivi4", "centroid:encoding=int8"};
  std::vector<Outcome> alone;
  for (const std::string& compressor : compressors) {
    v1::GenerateRequest cold = Approximate(request, compressor);
    cold.mutable_cache()->set_bypass_read(true);
    alone.push_back(Collect(*daemon.NewStub(), cold));
    const Outcome& outcome = alone.back();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    const v1::KvReport& kv = outcome.finished.kv();
    EXPECT_FALSE(kv.exact());
    EXPECT_THAT(kv.compressor(), testing::StartsWith(compressor.empty() ? "centroid" : compressor.substr(0, 5)));
    EXPECT_LT(kv.fast_tier_bytes(), kv.full_bytes()) << compressor;
    EXPECT_EQ(kv.full_bytes(), exact.finished.kv().full_bytes());
    EXPECT_NE(outcome.logit_bits, exact.logit_bits) << compressor;
    EXPECT_EQ(outcome.logit_bits[0], exact.logit_bits[0]) << "the prompt runs on full KV";
  }
  // All at once, from the cache, exact ones between them.
  std::vector<Outcome> together(2 * compressors.size());
  std::vector<std::thread> callers;
  for (size_t i = 0; i < together.size(); ++i) {
    callers.emplace_back([&, i] {
      together[i] = Collect(*daemon.NewStub(), i % 2 == 0 ? request : Approximate(request, compressors[i / 2]));
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i].logit_bits, i % 2 == 0 ? exact.logit_bits : alone[i / 2].logit_bits) << i;
    EXPECT_GT(together[i].finished.usage().cached_tokens(), 0) << i;
  }
  EXPECT_EQ(Collect(*daemon.NewStub(), request).logit_bits, exact.logit_bits) << "exact after approximate";

  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string metrics = daemon.daemon().MetricsText();
  EXPECT_EQ(MetricSum(metrics, "invar_views_made_total"), 8);
  EXPECT_EQ(MetricSum(metrics, "invar_view_upkeeps_total"), 16) << "149 tokens each behind the first: two boundaries";
  EXPECT_EQ(MetricSum(metrics, "invar_approximate_tokens_total"), 8 * 149);
  EXPECT_EQ(MetricSum(metrics, "invar_views_serving"), 0);
  EXPECT_EQ(MetricSum(metrics, "invar_view_body_bytes"), 0);
}

TEST(ApproximateAnswers, ShortOnesNeedNoViewAndAreExact) {
  RunningDaemon daemon(TinyConfig());
  const v1::GenerateRequest request = Prompt(2, 40, 20);
  const Outcome exact = Collect(*daemon.NewStub(), request);
  const Outcome outcome = Collect(*daemon.NewStub(), Approximate(request));
  EXPECT_EQ(outcome.logit_bits, exact.logit_bits);
  EXPECT_TRUE(outcome.finished.kv().exact());
  EXPECT_EQ(outcome.finished.kv().compressor(), "");
}

// As many tokens as there is room for: fewer than an exact answer may have, and never a refusal.
TEST(ApproximateAnswers, WithoutALimitGetWhatTheBudgetHolds) {
  config::Config config = TinyConfig();
  config.engine.kv_budget = 2 << 20;
  RunningDaemon daemon(config);
  v1::GenerateRequest request = Approximate(Prompt(6, 300, 1), "random_drop");
  request.mutable_stopping()->clear_max_tokens();
  request.mutable_stopping()->set_ignore_eos(true);
  const Outcome outcome = Collect(*daemon.NewStub(), request);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.finished.reason(), v1::Finished::LENGTH);
  EXPECT_EQ(outcome.finished.usage().completion_tokens() + 300,
            engine::MaxApproximateTokens(daemon.daemon().model()->engine->request_limits()));
  EXPECT_GT(outcome.finished.usage().completion_tokens(), 500);
}

TEST(ApproximateAnswers, AreRefusedWhereTheDeploymentSaysSo) {
  config::Config config = TinyConfig();
  config.engine.approximate.allowed = false;
  RunningDaemon daemon(config);
  const Outcome refused = Collect(*daemon.NewStub(), Approximate(Prompt(3, 400, 5)));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(), testing::HasSubstr("engine.approximate.allowed is false"));
}

TEST(ApproximateAnswers, AWrongDefaultCompressorIsABadConfiguration) {
  config::Config config = TinyConfig();
  EXPECT_TRUE(server::CheckCompressors(config).ok());
  config.engine.approximate.compressor = "zip";
  EXPECT_THAT(server::CheckCompressors(config).message(), testing::HasSubstr("engine.approximate.compressor"));
  config = TinyConfig();
  config.engine.speculation.compressor = "snapkv";
  EXPECT_THAT(server::CheckCompressors(config).message(), testing::HasSubstr("engine.speculation.compressor"));
}

// A prefix from the disk of an earlier process, a lossless answer at temperature 1 that is preempted and drafted on
// compressed KV, neighbours answered on compressed KV of the same prefix: the bits of a cold exact run.
TEST(Composed, AllMethodsTogetherKeepTheBitsOfAColdExactRun) {
  constexpr int32_t kShared = 700;
  const std::string folder = testing::TempDir() + "/composed";
  std::filesystem::remove_all(folder);
  v1::GenerateRequest request = Prompt(4, kShared, 100);
  request.mutable_sampling()->set_temperature(1.0F);
  request.mutable_sampling()->set_seed(77);
  std::vector<uint32_t> wanted;
  {
    RunningDaemon cold(TinyConfig());
    v1::GenerateRequest bypassing = request;
    bypassing.mutable_cache()->set_bypass_read(true);
    bypassing.mutable_cache()->set_bypass_write(true);
    const Outcome outcome = Collect(*cold.NewStub(), bypassing);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    wanted = outcome.logit_bits;
  }
  config::Config config = TinyConfig();
  config.cache.tiers.disk.path = folder;
  config.drain.persist_timeout = std::chrono::seconds(60);
  config.limits.priority_max = 1;
  {
    RunningDaemon first(config);
    ASSERT_TRUE(Collect(*first.NewStub(), Prompt(4, kShared, 3)).status.ok());
    first.daemon().BeginDrain();
    first.daemon().Persist({});
  }
  // Memory for all four while they share their prompt, not when they part.
  {
    RunningDaemon probe(TinyConfig());
    const models::ModelSpec& spec = probe.daemon().model()->spec();
    config.engine.kv_budget = (4 * spec.state_bytes + 22 * spec.page_bytes) * 17 / 16;
    config.engine.speculation.draft_memory = spec.state_bytes + 22 * spec.page_bytes;
  }
  RunningDaemon daemon(config);
  v1::GenerateRequest lossless = request;
  lossless.mutable_kv_policy()->set_exactness(v1::KvPolicy::LOSSLESS);
  lossless.mutable_kv_policy()->set_draft_tokens(4);
  lossless.mutable_scheduling()->set_priority(-1);
  std::vector<v1::GenerateRequest> neighbours = {Approximate(request), Approximate(request, "streaming"),
                                                 Approximate(request, "kivi2")};
  Outcome found;
  std::atomic<bool> ended = false;
  std::thread caller([&] {
    found = Collect(*daemon.NewStub(), lossless);
    ended = true;
  });
  while (daemon.stats().generated_tokens < 5 && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::vector<std::thread> others;
  std::vector<Outcome> approximate(neighbours.size());
  for (size_t i = 0; i < neighbours.size(); ++i) {
    others.emplace_back([&, i] { approximate[i] = Collect(*daemon.NewStub(), neighbours[i]); });
  }
  for (std::thread& other : others) other.join();
  caller.join();
  ASSERT_TRUE(found.status.ok()) << found.status.error_message();
  EXPECT_EQ(found.logit_bits, wanted);
  EXPECT_EQ(found.finished.reuse().tier(), "disk");
  EXPECT_GT(found.finished.speculation().rounds(), 10) << "drafted on compressed KV";
  EXPECT_GT(daemon.stats().preemptions, 0);
  for (const Outcome& outcome : approximate) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_FALSE(outcome.finished.kv().exact());
  }
  EXPECT_EQ(Collect(*daemon.NewStub(), request).logit_bits, wanted) << "exact after approximate";
  daemon.Destroy();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace invar::e2e
