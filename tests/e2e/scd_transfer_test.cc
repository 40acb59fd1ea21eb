// A prefill instance of a base model and a decode instance of its fine-tune: prefixes come in codes, answers on them
// say so, and whatever goes wrong ends in the answer of the fine-tune alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <future>
#include <iterator>

#include "engine/transfer/scd_profile_file.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/invard_process.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_pair.h"

namespace invar::e2e {
namespace {

using std::chrono::milliseconds;
using testing::PairTokens;

constexpr int32_t kPrompt = 600;

v1::GenerateRequest Prompt(const int32_t from, const v1::KvPolicy::Transfer transfer, const int32_t tokens = kPrompt) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < tokens; ++i) ids.push_back(PairTokens()[static_cast<size_t>(from + i)].value());
  v1::GenerateRequest request = TokensRequest(ids, 4);
  request.mutable_kv_policy()->set_transfer(transfer);
  return request;
}
v1::GenerateRequest Any(const int32_t from) { return Prompt(from, v1::KvPolicy::ANY_TRANSFER); }

std::string FineTune() { return TinyModelFolder() + "-ft"; }

class ScdBetweenDaemons : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder;
    testing::CalibrateTinyPair(Profile());
    testing::CalibrateTinyPair(OtherProfile(), 300);
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string Profile() { return folder_->path() + "/pair.scd"; }
  static std::string OtherProfile() { return folder_->path() + "/other.scd"; }

  static config::Config ProducerConfig() {
    config::Config config = TinyConfig();
    config.transfer.role = "prefill";
    config.transfer.profile = Profile();
    return config;
  }
  static config::Config ConsumerConfig(const std::string& producers) {
    config::Config config = TinyConfig();
    config.model.path = FineTune();
    config.transfer.role = "decode";
    config.transfer.choose = "always";
    config.transfer.producers = producers;
    config.transfer.profile = Profile();
    return config;
  }
  static std::vector<uint32_t> Cold(v1::GenerationService::Stub& stub, v1::GenerateRequest request) {
    request.mutable_kv_policy()->set_transfer(v1::KvPolicy::NO_TRANSFER);
    request.mutable_cache()->set_bypass_read(true);
    request.mutable_cache()->set_bypass_write(true);
    const Outcome outcome = Collect(stub, request);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_TRUE(outcome.finished.kv().exact());
    return outcome.logit_bits;
  }
  static void ExpectLocal(RunningDaemon& consumer, const int32_t from, const engine::TransferFault fault) {
    const auto stub = consumer.NewStub();
    const int64_t before = consumer.stats().transfer.faults[static_cast<size_t>(fault)];
    const Outcome outcome = Collect(*stub, Any(from));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_TRUE(outcome.finished.kv().exact());
    EXPECT_EQ(outcome.finished.kv().scd_profile(), "");
    EXPECT_EQ(outcome.finished.kv().transfer_mode(), "");
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Any(from)));
    EXPECT_EQ(consumer.stats().transfer.faults[static_cast<size_t>(fault)], before + 1) << engine::NameOf(fault);
    EXPECT_TRUE(consumer.BecomesIdle());
  }

  static testing::TemporaryFolder* folder_;
};
testing::TemporaryFolder* ScdBetweenDaemons::folder_ = nullptr;

TEST_F(ScdBetweenDaemons, AnswersSayThatTheyAreApproximateAndHow) {
  const engine::NamedScd scd = engine::LoadNamedScd(Profile()).value();
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  const auto stub = consumer.NewStub();
  int64_t bytes = 0;
  for (const int32_t from : {0, 700, 1400}) {
    const Outcome outcome = Collect(*stub, Any(from));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    const v1::KvReport& kv = outcome.finished.kv();
    EXPECT_FALSE(kv.exact());
    EXPECT_NE(kv.scd_profile().find(scd.digest), std::string::npos) << kv.scd_profile();
    EXPECT_NE(kv.scd_profile().find("0: "), std::string::npos) << "modes and ranks of the layers: " << kv.scd_profile();
    EXPECT_NE(kv.transfer_mode(), "");
    EXPECT_NE(kv.transfer_mode(), "raw");
    EXPECT_EQ(outcome.finished.reuse().transferred_tokens(), kPrompt - 1);
    EXPECT_EQ(outcome.finished.reuse().computed_tokens(), 1);
    EXPECT_EQ(outcome.finished.reuse().tier(), "peer");
    bytes += kv.transfer_bytes();
    EXPECT_NE(outcome.logit_bits, Cold(*stub, Any(from))) << "codes that change nothing would be no test";
  }
  EXPECT_TRUE(consumer.BecomesIdle());
  EXPECT_TRUE(producer.BecomesIdle());
  const std::string here = HttpGet(consumer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(here, "invar_transfer_coded_landed_total"), 3);
  EXPECT_EQ(MetricSum(here, "invar_transfer_coded_tokens_total"), 3 * (kPrompt - 1));
  EXPECT_EQ(MetricSum(here, "invar_transfer_coded_bytes_total"), static_cast<double>(bytes));
  EXPECT_GT(MetricSum(here, "invar_transfer_rebuild_seconds_total"), 0);
  EXPECT_EQ(MetricSum(here, "invar_transfer_fallbacks_total"), 0);
  const std::string there = HttpGet(producer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(there, "invar_transfer_sent_total"), 3);
  EXPECT_EQ(MetricSum(there, "invar_transfer_sent_bytes_total"), static_cast<double>(bytes));
  EXPECT_EQ(MetricSum(there, "invar_transfer_held_bytes"), 0);
}

TEST_F(ScdBetweenDaemons, ExactAndLosslessAnswersSeeNothingOfIt) {
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  const auto stub = consumer.NewStub();
  const Outcome coded = Collect(*stub, Any(0));
  EXPECT_FALSE(coded.finished.kv().exact());
  // Allowed, and contradicted by what is asked for.
  v1::GenerateRequest exact = Any(0);
  exact.mutable_kv_policy()->set_exactness(v1::KvPolicy::EXACT);
  const Outcome answer = Collect(*stub, exact);
  EXPECT_TRUE(answer.finished.kv().exact());
  EXPECT_EQ(answer.finished.reuse().computed_tokens(), kPrompt);
  EXPECT_EQ(answer.logit_bits, Cold(*stub, exact));
  Collect(*stub, Any(1000));
  v1::GenerateRequest lossless = Any(1000);
  lossless.mutable_kv_policy()->set_exactness(v1::KvPolicy::LOSSLESS);
  lossless.mutable_kv_policy()->set_drafter("ngram");
  const Outcome drafted = Collect(*stub, lossless);
  EXPECT_TRUE(drafted.finished.kv().exact());
  EXPECT_EQ(drafted.finished.reuse().computed_tokens(), kPrompt);
  EXPECT_EQ(drafted.logit_bits, Cold(*stub, Any(1000)));
  // Exact transfer from other weights is refused as before.
  const int64_t refused = consumer.stats().transfer.faults[static_cast<size_t>(engine::TransferFault::kRefused)];
  const Outcome other = Collect(*stub, Prompt(2000, v1::KvPolicy::EXACT_TRANSFER));
  EXPECT_TRUE(other.finished.kv().exact());
  EXPECT_EQ(consumer.stats().transfer.faults[static_cast<size_t>(engine::TransferFault::kRefused)], refused + 1);
}

TEST_F(ScdBetweenDaemons, AProducerOfEqualWeightsSendsWhatItHasAsItIs) {
  config::Config equal = ProducerConfig();
  equal.model.path = FineTune();
  equal.transfer.profile.clear();
  RunningDaemon producer(equal);
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  const auto stub = consumer.NewStub();
  const Outcome outcome = Collect(*stub, Any(0));
  EXPECT_TRUE(outcome.finished.kv().exact());
  EXPECT_EQ(outcome.finished.kv().transfer_mode(), "raw");
  EXPECT_EQ(outcome.logit_bits, Cold(*stub, Any(0)));
}

TEST_F(ScdBetweenDaemons, OneProducerServesSeveralAndOthersAreRefused) {
  config::Config both = ProducerConfig();
  both.transfer.profile = Profile() + "," + OtherProfile();
  RunningDaemon producer(both);
  config::Config other = ConsumerConfig("a=" + producer.daemon().grpc_address());
  other.transfer.profile = OtherProfile();
  RunningDaemon first(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  RunningDaemon second(other);
  const Outcome one = Collect(*first.NewStub(), Any(0));
  const Outcome two = Collect(*second.NewStub(), Any(0));
  EXPECT_FALSE(one.finished.kv().exact() || two.finished.kv().exact());
  EXPECT_NE(one.finished.kv().scd_profile(), two.finished.kv().scd_profile());

  RunningDaemon with_one(ProducerConfig());
  config::Config stranger = ConsumerConfig("a=" + with_one.daemon().grpc_address());
  stranger.transfer.profile = OtherProfile();
  RunningDaemon wrong(stranger);
  ExpectLocal(wrong, 0, engine::TransferFault::kRefused);
  config::Config without = ProducerConfig();
  without.transfer.profile.clear();
  RunningDaemon exact_only(without);
  RunningDaemon consumer(ConsumerConfig("a=" + exact_only.daemon().grpc_address()));
  ExpectLocal(consumer, 0, engine::TransferFault::kRefused);
}

TEST_F(ScdBetweenDaemons, WhatWentOutOnceIsNotRunAgainUntilItIsFlushed) {
  RunningDaemon producer(ProducerConfig());
  const std::string address = "a=" + producer.daemon().grpc_address();
  std::vector<std::vector<uint32_t>> bits;
  for (int i = 0; i < 3; ++i) {
    RunningDaemon consumer(ConsumerConfig(address));
    const Outcome outcome = Collect(*consumer.NewStub(), Any(0));
    EXPECT_EQ(outcome.finished.reuse().transferred_tokens(), kPrompt - 1);
    bits.push_back(outcome.logit_bits);
    EXPECT_EQ(producer.stats().submitted, i == 2 ? 2 : 1);
    EXPECT_GT(MetricSum(HttpGet(producer.daemon().ops_address(), "/metrics").body, "invar_transfer_codes_kept_bytes"),
              0);
    if (i == 1) {
      ASSERT_TRUE(producer.daemon().model()->engine->FlushCache({}).ok());
    }
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(bits[0], bits[2]);
}

TEST_F(ScdBetweenDaemons, TheDeploymentMayAllowIt) {
  RunningDaemon producer(ProducerConfig());
  config::Config config = ConsumerConfig("a=" + producer.daemon().grpc_address());
  config.transfer.mode = "any";
  config.transfer.point = engine::LoadNamedScd(Profile()).value().profile.points.front().name;
  RunningDaemon consumer(config);
  const Outcome outcome = Collect(*consumer.NewStub(), Prompt(0, v1::KvPolicy::TRANSFER_UNSPECIFIED));
  EXPECT_FALSE(outcome.finished.kv().exact());
  EXPECT_TRUE(outcome.finished.kv().scd_profile().starts_with(config.transfer.point));
}

// --- As processes ---

std::vector<std::string> ProducerArguments(const std::string& profile) {
  return {"--set", "transfer.role=prefill", "--set", "transfer.profile=" + profile};
}
std::vector<std::string> ConsumerArguments(const std::string& address, const std::string& profile) {
  return {"--set", "model.path=" + FineTune(),        "--set", "transfer.role=decode",
          "--set", "transfer.producers=a=" + address, "--set", "transfer.profile=" + profile,
          "--set", "transfer.choose=always",          "--set", "transfer.lease=1s"};
}

TEST_F(ScdBetweenDaemons, AKilledProducerCostsALocalRunAndNothingElse) {
  std::vector<std::vector<uint32_t>> cold;
  {
    InvardProcess alone({"--set", "model.path=" + FineTune()});
    for (int32_t i = 0; i < 5; ++i)
      cold.push_back(Collect(*alone.stub, Prompt(i, v1::KvPolicy::NO_TRANSFER, 1500)).logit_bits);
  }
  for (int32_t i = 0; i < 5; ++i) {
    InvardProcess producer(ProducerArguments(Profile()));
    InvardProcess consumer(ConsumerArguments(producer.address, Profile()));
    auto call = std::async(std::launch::async,
                           [&] { return Collect(*consumer.stub, Prompt(i, v1::KvPolicy::ANY_TRANSFER, 1500)); });
    (void)producer.process.Wait(milliseconds(1) * (i * i * 6));
    producer.process.Signal(SIGKILL);
    const Outcome outcome = call.get();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    const std::string metrics = HttpGet(consumer.ops, "/metrics").body;
    const double landed = MetricSum(metrics, "invar_transfer_coded_landed_total");
    EXPECT_EQ(landed + MetricSum(metrics, "invar_transfer_fallbacks_total"), 1);
    EXPECT_EQ(outcome.finished.kv().exact(), landed == 0);
    if (landed == 0) {
      EXPECT_EQ(outcome.logit_bits, cold[static_cast<size_t>(i)]) << i;
    }
    EXPECT_EQ(MetricSum(metrics, "invar_transfer_under_way"), 0);
    EXPECT_TRUE(Collect(*consumer.stub, Any(3000)).status.ok()) << "it goes on without it";
  }
}

TEST_F(ScdBetweenDaemons, AProfileThatDoesNotFitEndsTheStartByName) {
  const auto says = [](const config::Config& config, const std::string& word) {
    const RealClock clock;
    StatusOr<server::ModelParts> parts = server::LoadModelFolder(config);
    ASSERT_TRUE(parts.ok()) << parts.status().message();
    const auto started = server::StartEngine(config, *std::move(parts), clock);
    ASSERT_FALSE(started.ok()) << word;
    EXPECT_NE(started.status().message().find(word), std::string::npos) << started.status().message();
  };
  std::string bytes;
  {
    std::ifstream file(Profile(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto changed = [&](const std::string& name, const size_t at) {
    std::string other = bytes;
    other[at] ^= 1;
    const std::string path = folder_->path() + "/" + name;
    std::ofstream(path, std::ios::binary) << other;
    return path;
  };
  config::Config producer = ProducerConfig();
  producer.transfer.profile = changed("damaged.scd", bytes.size() / 2);
  says(producer, "transfer.profile: " + producer.transfer.profile + ": checksum");
  producer.transfer.profile = changed("older.scd", 8);
  says(producer, ": version: wanted");
  producer.transfer.profile = folder_->path() + "/none.scd";
  says(producer, "none.scd");
  config::Config consumer = ConsumerConfig("a=127.0.0.1:1");
  consumer.transfer.point = "best";
  says(consumer, "transfer.point: ");
  consumer.transfer.point.clear();
  consumer.transfer.profile += "," + OtherProfile();
  says(consumer, "give one");
  consumer.transfer.profile = Profile();
  consumer.model.path = TinyModelFolder();
  says(consumer, "no file's consumer is this model");
}

}  // namespace
}  // namespace invar::e2e
