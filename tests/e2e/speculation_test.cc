// Lossless speculation as a caller sees it: the bits of an exact answer, a report of what was saved, and metrics that
// agree with the reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "models/random_model.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

v1::GenerateRequest Lossless(v1::GenerateRequest request, const std::optional<int32_t> draft_tokens = std::nullopt) {
  request.mutable_kv_policy()->set_exactness(v1::KvPolicy::LOSSLESS);
  request.mutable_kv_policy()->set_drafter("ngram");
  if (draft_tokens.has_value()) request.mutable_kv_policy()->set_draft_tokens(*draft_tokens);
  return request;
}

// Ids with a period: the model's answers repeat too.
v1::GenerateRequest Periodic(const int32_t length, const int32_t max_tokens) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back(40 + i % 5);
  return TokensRequest(ids, max_tokens);
}

TEST(LosslessSpeculation, AnswersAreThoseOfExactRequestsBitForBit) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  std::vector<v1::GenerateRequest> requests;
  for (const float temperature : {0.0F, 0.8F}) {
    for (v1::GenerateRequest request : {Periodic(40, 60), Periodic(70, 40), TextRequest("The badge of Clara is", 40)}) {
      request.mutable_sampling()->set_temperature(temperature);
      request.mutable_sampling()->set_seed(11);
      requests.push_back(request);
    }
  }
  requests[1].mutable_stopping()->add_stop("e");
  requests[4].mutable_sampling()->set_repetition_penalty(1.2F);
  std::vector<Outcome> exact;
  for (const v1::GenerateRequest& request : requests) exact.push_back(Collect(*stub, request));
  int64_t rounds = 0;
  for (const std::optional<int32_t> draft :
       {std::optional<int32_t>(1), std::optional<int32_t>(6), std::optional<int32_t>(64), std::optional<int32_t>()}) {
    // All at once.
    std::vector<Outcome> lossless(requests.size());
    std::vector<std::thread> callers;
    for (size_t i = 0; i < requests.size(); ++i) {
      callers.emplace_back([&, i] { lossless[i] = Collect(*daemon.NewStub(), Lossless(requests[i], draft)); });
    }
    for (std::thread& caller : callers) caller.join();
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(lossless[i].status.ok()) << lossless[i].status.error_message();
      EXPECT_EQ(lossless[i].token_ids, exact[i].token_ids) << i;
      EXPECT_EQ(lossless[i].logit_bits, exact[i].logit_bits) << i;
      EXPECT_EQ(lossless[i].logprob_bits, exact[i].logprob_bits) << i;
      EXPECT_EQ(lossless[i].text, exact[i].text) << i;
      EXPECT_TRUE(lossless[i].finished.kv().exact());
      EXPECT_EQ(lossless[i].finished.kv().full_bytes(), exact[i].finished.kv().full_bytes());
      EXPECT_LE(lossless[i].finished.speculation().accepted_tokens(),
                lossless[i].finished.speculation().drafted_tokens());
      rounds += lossless[i].finished.speculation().rounds();
    }
  }
  EXPECT_GT(rounds, 20);
  for (const Outcome& outcome : exact) EXPECT_EQ(outcome.finished.speculation().rounds(), 0);
}

// --- Drafts on compressed KV, the default ---

v1::GenerateRequest Compressed(v1::GenerateRequest request, const std::string& compressor = "",
                               const std::optional<float> kv_budget = std::nullopt) {
  request.mutable_kv_policy()->set_exactness(v1::KvPolicy::LOSSLESS);
  request.mutable_kv_policy()->set_compressor(compressor);
  if (kv_budget.has_value()) request.mutable_kv_policy()->set_kv_budget(*kv_budget);
  return request;
}

TEST(LosslessSpeculation, ByDefaultDraftsAreMadeOnCompressedKv) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  v1::GenerateRequest request = Periodic(150, 60);
  request.mutable_sampling()->set_temperature(0.8F);
  request.mutable_sampling()->set_seed(3);
  const Outcome exact = Collect(*stub, request);
  const Outcome silent = Collect(*stub, Compressed(request));
  ASSERT_TRUE(silent.status.ok()) << silent.status.error_message();
  EXPECT_EQ(silent.token_ids, exact.token_ids);
  EXPECT_EQ(silent.logit_bits, exact.logit_bits);
  for (const char* const compressor :
       {"", "noop", "int8", "k8v4", "kivi2", "centroid:recent=16", "random_drop:recent=16"}) {
    v1::GenerateRequest drafted = Compressed(request, compressor);
    drafted.mutable_kv_policy()->set_draft_tokens(7);
    if (compressor == std::string("random_drop:recent=16")) drafted.mutable_kv_policy()->set_kv_budget(0.3F);
    const Outcome found = Collect(*stub, drafted);
    ASSERT_TRUE(found.status.ok()) << found.status.error_message();
    EXPECT_EQ(found.token_ids, exact.token_ids) << compressor;
    EXPECT_EQ(found.logit_bits, exact.logit_bits) << compressor;
    EXPECT_TRUE(found.finished.kv().exact());
    EXPECT_GT(found.finished.speculation().rounds(), 5);
    const std::string wanted = *compressor == 0 ? "k8v4" : compressor;
    EXPECT_THAT(found.finished.kv().compressor(), testing::StartsWith(wanted.substr(0, wanted.find(':'))));
  }
  EXPECT_EQ(exact.finished.kv().compressor(), "");
  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string text = daemon.daemon().MetricsText();
  EXPECT_EQ(MetricSum(text, "invar_speculation_drafter_bytes"), 0);
  EXPECT_GT(MetricSum(text, "invar_speculation_prepare_seconds_total"), 0);
}

// Every guess is right, so drafts run over the end: nothing behind it is seen.
TEST(LosslessSpeculation, StopsInsideADraftOnCompressedKv) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  v1::GenerateRequest request = TextRequest("The badge of Clara is", 60);
  request.mutable_sampling()->set_temperature(1.0F);
  request.mutable_sampling()->set_seed(21);
  const Outcome whole = Collect(*stub, request);
  ASSERT_GT(whole.token_ids.size(), 30U);
  for (int32_t at = 2; at < 14; ++at) {
    v1::GenerateRequest token = request;
    token.mutable_stopping()->add_stop_token_ids(whole.token_ids[static_cast<size_t>(at)]);
    v1::GenerateRequest text = request;
    text.mutable_stopping()->add_stop(whole.text.substr(static_cast<size_t>(2 * at), 3));
    for (const v1::GenerateRequest& ending : {token, text}) {
      const Outcome exact = Collect(*stub, ending);
      v1::GenerateRequest drafted = Compressed(ending, "noop");
      drafted.mutable_kv_policy()->set_draft_tokens(16);
      const Outcome found = Collect(*stub, drafted);
      EXPECT_EQ(found.token_ids, exact.token_ids) << at;
      EXPECT_EQ(found.text, exact.text) << at;
      EXPECT_EQ(found.logit_bits, exact.logit_bits) << at;
      EXPECT_EQ(found.finished.reason(), exact.finished.reason());
      EXPECT_EQ(found.finished.stop(), exact.finished.stop());
      EXPECT_EQ(found.finished.usage().completion_tokens(), exact.finished.usage().completion_tokens());
    }
  }
}

TEST(LosslessSpeculation, WhatCannotBeDraftedOnIsRefusedByField) {
  RunningDaemon daemon(TinyConfig());
  const auto refused = [&](const v1::GenerateRequest& request, const std::string& field, const std::string& part) {
    const Outcome outcome = Collect(*daemon.NewStub(), request);
    EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(outcome.status.error_message(), testing::HasSubstr(field));
    EXPECT_THAT(outcome.status.error_message(), testing::HasSubstr(part));
  };
  const v1::GenerateRequest request = Periodic(30, 30);
  refused(Compressed(request, "zip"), "kv_policy.compressor", "centroid");
  refused(Compressed(request, "k8v4:recent=minus"), "kv_policy.compressor", "recent");
  for (const char* const kind : {"snapkv", "tova", "h2o", "kvzip", "expected_attention"}) {
    refused(Compressed(request, kind, 0.5F), "kv_policy.compressor", " goes by ");
  }
  refused(Compressed(request, "int8", 0.5F), "kv_policy.kv_budget", "leave it out");
  refused(Compressed(request, "centroid", 1.5F), "kv_policy.kv_budget", "1.5");
  v1::GenerateRequest ngram = Compressed(request, "k8v4");
  ngram.mutable_kv_policy()->set_drafter("ngram");
  refused(ngram, "kv_policy.compressor", "compresses nothing");
  v1::GenerateRequest exact = Compressed(request, "k8v4");
  exact.mutable_kv_policy()->set_exactness(v1::KvPolicy::EXACT);
  refused(exact, "kv_policy.compressor", "LOSSLESS");
}

// A made-up model with a multi-token head.
TEST(LosslessSpeculation, TheMultiTokenHeadDraftsWhereTheModelHasOne) {
  const std::string folder = testing::TempDir() + "/mtp-model";
  const Status made =
      models::MakeRandomModel({.shape = std::string(INVAR_SOURCE_DIR) + "/tests/golden/models/qwen3_5-vl/config.json",
                               .folder = folder,
                               .seed = 9,
                               .progress = {}});
  ASSERT_TRUE(made.ok()) << made.message();
  config::Config config = TinyConfig();
  config.model.path = folder;
  config.engine.speculation.drafter = "mtp";
  v1::GenerateRequest exact = Periodic(40, 60);
  exact.mutable_sampling()->set_temperature(0.8F);
  exact.mutable_sampling()->set_seed(5);
  v1::GenerateRequest lossless = Lossless(exact, 3);
  lossless.mutable_kv_policy()->set_drafter("mtp");
  {
    RunningDaemon daemon(config);
    const Outcome wanted = Collect(*daemon.NewStub(), exact);
    ASSERT_TRUE(wanted.status.ok()) << wanted.status.error_message();
    for (const bool named : {true, false}) {
      if (!named) lossless.mutable_kv_policy()->clear_drafter();
      const Outcome found = Collect(*daemon.NewStub(), lossless);
      ASSERT_TRUE(found.status.ok()) << found.status.error_message();
      EXPECT_EQ(found.token_ids, wanted.token_ids);
      EXPECT_EQ(found.logit_bits, wanted.logit_bits);
      EXPECT_GT(found.finished.speculation().rounds(), 10);
      EXPECT_GT(found.finished.speculation().drafted_tokens(), 30);
    }
  }
  config.engine.speculation.mtp_head = false;
  RunningDaemon without(config);
  const Outcome refused = Collect(*without.NewStub(), lossless);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(),
              testing::HasSubstr("wants one of compressed_kv, ngram, ngram+compressed_kv, found mtp"));
  EXPECT_THAT(refused.status.error_message(), testing::HasSubstr("engine.speculation.mtp_head"));
  std::filesystem::remove_all(folder);
}

TEST(LosslessSpeculation, AModelWithoutAHeadRefusesItAndNamesWhatThereIs) {
  RunningDaemon daemon(TinyConfig());
  v1::GenerateRequest request = Lossless(Periodic(30, 30));
  request.mutable_kv_policy()->set_drafter("mtp");
  const Outcome refused = Collect(*daemon.NewStub(), request);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(),
              testing::HasSubstr("wants one of compressed_kv, ngram, ngram+compressed_kv, found mtp"));
  EXPECT_THAT(refused.status.error_message(), testing::HasSubstr("mtp.*"));
}

TEST(LosslessSpeculation, MetricsAgreeWithTheReports) {
  RunningDaemon daemon(TinyConfig());
  const auto stub = daemon.NewStub();
  int64_t rounds = 0, drafted = 0, accepted = 0;
  for (const int32_t length : {30, 47, 61}) {
    const Outcome outcome = Collect(*stub, Lossless(Periodic(length, 50), 4));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    rounds += outcome.finished.speculation().rounds();
    drafted += outcome.finished.speculation().drafted_tokens();
    accepted += outcome.finished.speculation().accepted_tokens();
  }
  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string text = daemon.daemon().MetricsText();
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(MetricSum(text, "invar_speculation_rounds_total"), rounds);
  EXPECT_EQ(MetricSum(text, "invar_speculation_drafted_tokens_total"), drafted);
  EXPECT_EQ(MetricSum(text, "invar_speculation_accepted_tokens_total"), accepted);
  EXPECT_EQ(MetricSum(text, "vllm:spec_decode_num_accepted_tokens_total"), accepted);
  EXPECT_EQ(MetricSum(text, "invar_speculation_accepted_per_round_count"), rounds);
  EXPECT_EQ(MetricSum(text, "invar_speculation_accepted_per_round_sum"), accepted);
  EXPECT_EQ(MetricSum(text, "invar_speculation_accepted_per_round_bucket", "le=\"+Inf\""), rounds);
  // Every step after a request's first gives its row's token, and those accepted.
  const double plain = MetricSum(text, "invar_speculation_plain_steps_total");
  EXPECT_LE(static_cast<double>(rounds + accepted) + plain, 3 * 49);
}

TEST(LosslessSpeculation, TheConfigurationNamesTheDrafterAndMayForbidDrafts) {
  config::Config config = TinyConfig();
  config.engine.speculation.drafter = "ngram";
  config.engine.speculation.draft_tokens_max = 3;
  {
    RunningDaemon daemon(config);
    v1::GenerateRequest request = Lossless(Periodic(30, 30));
    request.mutable_kv_policy()->clear_drafter();
    const Outcome outcome = Collect(*daemon.NewStub(), request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_LE(outcome.finished.speculation().drafted_tokens(), 3 * outcome.finished.speculation().rounds());
    EXPECT_EQ(Collect(*daemon.NewStub(), Lossless(Periodic(30, 30), 4)).status.error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  config.engine.speculation.draft_tokens_max = 0;
  RunningDaemon daemon(config);
  const Outcome refused = Collect(*daemon.NewStub(), Lossless(Periodic(30, 30)));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.status.error_message(), testing::HasSubstr("engine.speculation.draft_tokens_max"));
}

// Twelve requests where not all fit: full KV moves out so that all run, and comes back a layer at a time.
TEST(SlowTier, AnswersAreThoseOfExactRequestsBitForBit) {
  std::vector<v1::GenerateRequest> requests;
  for (int32_t i = 0; i < 12; ++i) {
    v1::GenerateRequest request = Periodic(300 + i, 150);
    request.mutable_sampling()->set_temperature(i % 2 == 0 ? 0.0F : 0.8F);
    request.mutable_sampling()->set_seed(20 + i);
    requests.push_back(request);
  }
  std::vector<Outcome> exact;
  {
    RunningDaemon daemon(TinyConfig());
    for (const v1::GenerateRequest& request : requests) exact.push_back(Collect(*daemon.NewStub(), request));
  }
  config::Config config = TinyConfig();
  config.engine.kv_budget = 1 << 20;
  config.engine.speculation.draft_memory = 1 << 20;  // Less than all take without views, too.
  config.engine.speculation.slow_tier.path = testing::TempDir();
  RunningDaemon daemon(config);
  // Until there was no room for all at once: on a busy machine one may end before the next has come.
  int64_t read = 0;
  for (int wave = 0; wave < 100 && read == 0; ++wave) {
    std::vector<Outcome> found(requests.size());
    std::vector<std::thread> callers;
    for (size_t i = 0; i < requests.size(); ++i) {
      callers.emplace_back([&, i] {
        v1::GenerateRequest request = Compressed(requests[i], "int8");
        request.mutable_kv_policy()->set_draft_tokens(7);
        request.mutable_cache()->set_salt(std::to_string(wave));
        found[i] = Collect(*daemon.NewStub(), request);
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(found[i].status.ok()) << found[i].status.error_message();
      EXPECT_EQ(found[i].token_ids, exact[i].token_ids) << i;
      EXPECT_EQ(found[i].logit_bits, exact[i].logit_bits) << i;
      EXPECT_TRUE(found[i].finished.kv().exact());
      EXPECT_LE(found[i].finished.kv().fast_tier_bytes(), found[i].finished.kv().full_bytes());
      read += found[i].finished.kv().slow_tier_bytes_read();
    }
  }
  ASSERT_TRUE(daemon.BecomesIdle());
  const std::string text = daemon.daemon().MetricsText();
  EXPECT_GT(read, 0);
  EXPECT_GE(MetricSum(text, "invar_slow_tier_moved_out_total"), 1);
  EXPECT_EQ(MetricSum(text, "invar_slow_tier_streamed_bytes_total"), read);
  EXPECT_EQ(MetricSum(text, "invar_slow_tier_failures_total"), 0);
  EXPECT_EQ(MetricSum(text, "invar_slow_tier_requests"), 0);
  EXPECT_EQ(MetricSum(text, "invar_slow_tier_used_bytes"), 0);
}

TEST(SlowTier, AFolderThatIsNotEndsTheStart) {
  config::Config config = TinyConfig();
  config.engine.speculation.slow_tier.path = testing::TempDir() + "/none";
  const RealClock clock;
  std::promise<Status> loaded;
  const auto daemon = server::Daemon::Start({.config = config}, server::LoadModelFolder, clock,
                                            [&](const Status& status) { loaded.set_value(status); });
  ASSERT_TRUE(daemon.ok());
  const Status status = loaded.get_future().get();
  EXPECT_EQ(status.field(), "engine.speculation.slow_tier.path");
  EXPECT_THAT(status.message(), testing::HasSubstr("name a folder that can be written"));
}

}  // namespace
}  // namespace invar::e2e
