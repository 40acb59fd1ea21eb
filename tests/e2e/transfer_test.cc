// A prefill and a decode instance: answers of the second are those of a cold run, whether the prefix came from the
// first or that one was killed, frozen, of other weights, or did not let it in.
#include <fmt/format.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/fingerprint.h"
#include "invar/v1/transfer.grpc.pb.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/invard_process.h"

namespace invar::e2e {
namespace {

using std::chrono::milliseconds;

constexpr char kToken[] = "token-of-the-decode-instance";
constexpr int32_t kPrompt = 700;

v1::GenerateRequest Prompt(const uint32_t seed, const int32_t tokens = kPrompt) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
  return TokensRequest(ids, 4);
}

// A producer that has nothing, and writes down what it is asked for.
class Scribe final : public v1::TransferService::Service {
 public:
  Scribe() {
    server_ = grpc::ServerBuilder()
                  .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_)
                  .RegisterService(this)
                  .BuildAndStart();
  }
  ~Scribe() override { server_->Shutdown(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  v1::ConsumerMessage::Open asked() { return asked_.get_future().get(); }

  grpc::Status FetchPrefix(grpc::ServerContext*,
                           grpc::ServerReaderWriter<v1::ProducerMessage, v1::ConsumerMessage>* stream) override {
    v1::ConsumerMessage message;
    if (stream->Read(&message)) asked_.set_value(message.open());
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "nothing is here");
  }

 private:
  int port_ = 0;
  std::promise<v1::ConsumerMessage::Open> asked_;  // Once.
  std::unique_ptr<grpc::Server> server_;
};

class TransferBetweenDaemons : public testing::Test {
 protected:
  TransferBetweenDaemons() : folder_(testing::TempDir() + "invar_transfer_XXXXXX") {
    Check(mkdtemp(folder_.data()) != nullptr, "a folder for the test", folder_);
    WriteFile("secret", std::string(32, 's'));
    WriteFile("token", kToken);
  }
  ~TransferBetweenDaemons() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text << '\n';
    return folder_ + "/" + name;
  }

  static config::Config ProducerConfig() {
    config::Config config = TinyConfig();
    config.transfer.role = "prefill";
    config.transfer.lease = milliseconds(1000);
    return config;
  }
  static config::Config ConsumerConfig(const std::string& producers) {
    config::Config config = TinyConfig();
    config.transfer.role = "decode";
    config.transfer.choose = "always";
    config.transfer.producers = producers;
    config.transfer.lease = milliseconds(1000);
    return config;
  }
  // An Open of a prompt as a daemon with FingerprintLoader writes it.
  static v1::ConsumerMessage::Open AskedByAConsumer() {
    Scribe scribe;
    RunningDaemon consumer(ConsumerConfig("a=" + scribe.address()), FingerprintLoader(nullptr));
    EXPECT_TRUE(Collect(*consumer.NewStub(), Prompt(5)).status.ok());
    return scribe.asked();
  }
  // One that weighs, and knows how fast it is itself.
  static void Practise(v1::GenerationService::Stub& stub) {
    v1::GenerateRequest request = Prompt(77, 2048);
    request.mutable_kv_policy()->set_transfer(v1::KvPolicy::NO_TRANSFER);
    EXPECT_TRUE(Collect(stub, request).status.ok());
  }
  // Bits that a run gives which reads nothing from anywhere.
  static std::vector<uint32_t> Cold(v1::GenerationService::Stub& stub, v1::GenerateRequest request) {
    request.mutable_cache()->set_bypass_read(true);
    request.mutable_cache()->set_bypass_write(true);
    const Outcome outcome = Collect(stub, request);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.finished.reuse().transferred_tokens(), 0);
    return outcome.logit_bits;
  }
  static int64_t Faults(RunningDaemon& consumer, const engine::TransferFault fault) {
    return consumer.stats().transfer.faults[static_cast<size_t>(fault)];
  }
  // The consumer's answer to a prompt that nothing of came for, and why.
  static void ExpectFallback(RunningDaemon& consumer, const uint32_t seed, const engine::TransferFault fault) {
    const auto stub = consumer.NewStub();
    const int64_t before = Faults(consumer, fault);
    const Outcome outcome = Collect(*stub, Prompt(seed));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.finished.reuse().transferred_tokens(), 0);
    EXPECT_EQ(outcome.finished.kv().transfer_mode(), "");
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(seed)));
    EXPECT_EQ(Faults(consumer, fault), before + 1) << engine::NameOf(fault);
    EXPECT_TRUE(consumer.BecomesIdle());
  }

  std::string folder_;
};

TEST_F(TransferBetweenDaemons, AnswersAreThoseOfAColdRunAndSayWhatCame) {
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  const auto stub = consumer.NewStub();
  for (const int32_t tokens : {300, 320, 321, 513, 700, 1025}) {
    const v1::GenerateRequest request = Prompt(static_cast<uint32_t>(tokens), tokens);
    const Outcome outcome = Collect(*stub, request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, request)) << tokens;
    const v1::PrefixReuse& reuse = outcome.finished.reuse();
    EXPECT_EQ(reuse.transferred_tokens(), tokens - 1);
    EXPECT_EQ(reuse.computed_tokens(), 1);
    EXPECT_EQ(reuse.tier(), "peer");
    EXPECT_EQ(outcome.finished.kv().transfer_mode(), "raw");
    EXPECT_TRUE(outcome.finished.kv().exact());
    EXPECT_GT(outcome.finished.kv().transfer_bytes(), 0);
    EXPECT_EQ(outcome.finished.usage().cached_tokens(), tokens - 1);
  }
  // Again: it is cached now, and nothing is asked for.
  EXPECT_EQ(Collect(*stub, Prompt(700)).finished.reuse().transferred_tokens(), 0);
  v1::GenerateRequest without = Prompt(2);
  without.mutable_kv_policy()->set_transfer(v1::KvPolicy::NO_TRANSFER);
  EXPECT_EQ(Collect(*stub, without).finished.reuse().transferred_tokens(), 0);
  EXPECT_EQ(Collect(*stub, Prompt(3, 200)).finished.reuse().transferred_tokens(), 0) << "transfer.tokens_min";

  EXPECT_TRUE(consumer.BecomesIdle());
  EXPECT_TRUE(producer.BecomesIdle());
  const std::string here = HttpGet(consumer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(here, "invar_transfer_begun_total"), 6);
  EXPECT_EQ(MetricSum(here, "invar_transfer_landed_total"), 6);
  EXPECT_EQ(MetricSum(here, "invar_transfer_fallbacks_total"), 0);
  const std::string there = HttpGet(producer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(there, "invar_transfer_sent_total"), 6);
  EXPECT_EQ(MetricSum(there, "invar_transfer_held_bytes"), 0);
  EXPECT_EQ(MetricSum(there, "invar_transfer_sent_bytes_total"),
            MetricSum(here, "invar_transfer_received_bytes_total"));
}

TEST_F(TransferBetweenDaemons, ManyAtOnceAreAnsweredAlike) {
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  std::vector<std::future<Outcome>> calls;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    calls.push_back(std::async(std::launch::async, [&, seed] { return Collect(*consumer.NewStub(), Prompt(seed)); }));
  }
  const auto stub = producer.NewStub();
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Outcome outcome = calls[seed].get();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(seed))) << seed;
  }
  EXPECT_GE(consumer.stats().transfer.landed, 4);
  EXPECT_TRUE(producer.BecomesIdle());
}

// Beside one that is not there.
TEST_F(TransferBetweenDaemons, ANameIsLookedUp) {
  RunningDaemon producer(ProducerConfig());
  const std::string& address = producer.daemon().grpc_address();
  const std::string port = address.substr(address.rfind(':') + 1);
  RunningDaemon consumer(ConsumerConfig("dead=127.0.0.1:1, a=dns:localhost:" + port));
  const auto stub = consumer.NewStub();
  // The first lookup runs beside the first request.
  int32_t tokens = 0;
  for (uint32_t seed = 0; tokens == 0 && seed < 1000; ++seed) {
    const Outcome outcome = Collect(*stub, Prompt(seed));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(seed)));
    tokens = outcome.finished.reuse().transferred_tokens();
  }
  EXPECT_EQ(tokens, kPrompt - 1);
}

// The prefix is still being run when the producer is told to stop: whoever asked for it gets it.
TEST_F(TransferBetweenDaemons, ADrainWaitsForThePrefixThatIsOnItsWay) {
  StepGate gate;
  RunningDaemon producer(ProducerConfig(), FingerprintLoader(&gate));
  config::Config config = ConsumerConfig("a=" + producer.daemon().grpc_address());
  config.transfer.lease = milliseconds(60'000);
  RunningDaemon consumer(config, FingerprintLoader(nullptr));
  gate.Close();
  auto call = std::async(std::launch::async, [&] { return Collect(*consumer.NewStub(), Prompt(1)); });
  gate.AwaitStanding();
  producer.daemon().BeginDrain();
  EXPECT_FALSE(producer.daemon().WaitIdle(milliseconds(0)));
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_calls_open", "rpc=\"FetchPrefix\""), 1)
      << "who looks at the drain sees what it waits for";
  gate.Open();
  EXPECT_EQ(call.get().finished.reuse().transferred_tokens(), kPrompt - 1);
  EXPECT_TRUE(producer.daemon().WaitIdle(std::chrono::seconds(60)));
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_calls_open"), 0);
}

// While another call is open, so that what is asked for is not its tenant's only one, and the engine stands: `ask` is
// refused for its bytes, and holds none when all is over.
template <typename Ask>
void ExpectRefusedForItsBytes(RunningDaemon& producer, StepGate& gate, const Ask& ask) {
  gate.Close();
  auto other = std::async(std::launch::async, [&] { return Collect(*producer.NewStub(), Prompt(1)); });
  gate.AwaitStanding();
  const grpc::Status refused = ask();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(refused.error_message().find("limits.open_request_bytes_max"), std::string::npos)
      << refused.error_message();
  gate.Open();
  EXPECT_TRUE(other.get().status.ok());
  EXPECT_TRUE(producer.BecomesIdle());
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_open_request_bytes"), 0);
}

// The tokens of an Open are a request's memory as any other, though they come when the call is open already.
TEST_F(TransferBetweenDaemons, WhatAConsumerSendsIsInTheLimitOfRequests) {
  StepGate gate;
  config::Config config = ProducerConfig();
  config.limits.open_request_bytes_max = 64 << 10;
  RunningDaemon producer(config, FingerprintLoader(&gate));
  const auto stub = v1::TransferService::NewStub(producer.NewChannel());
  const auto ask = [&](const int tokens) {
    grpc::ClientContext context;
    const auto call = stub->FetchPrefix(&context);
    v1::ConsumerMessage open;
    for (int i = 0; i < tokens; ++i) open.mutable_open()->add_tokens(i);
    call->Write(open);
    v1::ProducerMessage message;
    while (call->Read(&message)) {
    }
    return call->Finish();
  };
  ExpectRefusedForItsBytes(producer, gate, [&] {
    EXPECT_EQ(ask(10).error_code(), grpc::StatusCode::FAILED_PRECONDITION) << "another model, but that was read";
    return ask(100'000);
  });
}

// What is only there so that a link can be measured is memory like any other, and nobody gets more than that takes.
TEST_F(TransferBetweenDaemons, PaddingIsInTheLimitOfRequests) {
  StepGate gate;
  config::Config config = ProducerConfig();
  config.limits.open_request_bytes_max = 64 << 10;
  RunningDaemon producer(config, FingerprintLoader(&gate));
  v1::QuoteRequest request;
  *request.mutable_open() = AskedByAConsumer();
  request.set_padding_bytes(int64_t{1} << 20);
  const auto stub = v1::TransferService::NewStub(producer.NewChannel());
  const auto ask = [&](v1::QuoteResponse& response) {
    grpc::ClientContext context;
    // What is not refused waits for the engine, which stands.
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return stub->QuotePrefix(&context, request, &response);
  };
  v1::QuoteResponse alone;
  const grpc::Status status = ask(alone);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(alone.as_is());
  EXPECT_EQ(alone.padding().size(), 256 << 10);

  ExpectRefusedForItsBytes(producer, gate, [&] {
    v1::QuoteResponse refused;
    return ask(refused);
  });
}

// It beats, or may be silent for long, and never takes what it asked for.
TEST_F(TransferBetweenDaemons, ACopyStaysNoLongerThanItsConsumerWaits) {
  config::Config config = ProducerConfig();
  config.transfer.lease = milliseconds(20'000);
  RunningDaemon producer(config, FingerprintLoader(nullptr));
  const auto stub = v1::TransferService::NewStub(producer.NewChannel());
  grpc::ClientContext context;
  const auto call = stub->FetchPrefix(&context);
  v1::ConsumerMessage open;
  *open.mutable_open() = AskedByAConsumer();
  open.mutable_open()->set_timeout_ms(500);
  call->Write(open);
  v1::ProducerMessage message;
  while (call->Read(&message)) {
  }
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(producer.BecomesIdle());
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_transfer_held_bytes"), 0);
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_transfer_abandoned_total"), 1);
}

// Before anything was computed for it, and with chunks on their way: what was held is free when the answer comes.
TEST_F(TransferBetweenDaemons, AnAbortFreesWhatIsHeldBeforeItIsAnswered) {
  for (const bool is_granted : {false, true}) {
    SCOPED_TRACE(is_granted);
    StepGate gate;
    RunningDaemon producer(ProducerConfig(), FingerprintLoader(is_granted ? nullptr : &gate));
    if (!is_granted) gate.Close();
    const auto metric = [&](const char* const name, const std::string& labels = {}) {
      return MetricSum(producer.daemon().MetricsText(), name, labels);
    };
    const auto stub = v1::TransferService::NewStub(producer.NewChannel());
    grpc::ClientContext context;
    const auto call = stub->FetchPrefix(&context);
    v1::ConsumerMessage message;
    *message.mutable_open() = AskedByAConsumer();
    message.mutable_open()->set_timeout_ms(0);
    call->Write(message);
    v1::ProducerMessage said;
    while (call->Read(&said) && !(is_granted ? said.has_manifest() : said.has_heartbeat())) {
    }
    if (is_granted) {
      message.mutable_grant()->set_epoch(5);
      message.mutable_grant()->set_credit_bytes(0);
      call->Write(message);
    }
    EXPECT_GT(metric("invar_transfer_held_bytes"), 0);
    message.mutable_abort()->set_epoch(5);
    message.mutable_abort()->set_reason(v1::ABORT_NO_ROOM);
    call->Write(message);
    while (call->Read(&said) && !said.has_abort_ack()) {
    }
    EXPECT_TRUE(said.has_abort_ack());
    EXPECT_EQ(said.abort_ack().epoch(), 5U);
    EXPECT_EQ(metric("invar_transfer_held_bytes"), 0);
    EXPECT_FALSE(call->Read(&said));
    EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
    if (!is_granted) gate.Open();
    EXPECT_TRUE(producer.BecomesIdle());
    EXPECT_EQ(metric("invar_transfer_aborted_total", "reason=\"no_room\""), 1);
    EXPECT_EQ(metric("invar_transfer_aborted_total"), 1);
    EXPECT_EQ(metric("invar_transfer_abandoned_total"), 0);
  }
}

TEST_F(TransferBetweenDaemons, AConsumerThatTakesNothingIsCut) {
  config::Config config = ProducerConfig();
  config.transfer.lease = milliseconds(60'000);
  config.limits.slow_reader_timeout = milliseconds(200);
  RunningDaemon producer(config, FingerprintLoader(nullptr));
  grpc::ChannelArguments arguments;
  // Nothing is taken ahead of who reads.
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::TransferService::NewStub(producer.NewChannel(arguments));
  grpc::ClientContext context;
  const auto call = stub->FetchPrefix(&context);
  v1::ConsumerMessage open;
  *open.mutable_open() = AskedByAConsumer();
  // More than lies in buffers on the way.
  while (open.open().tokens_size() < 3000) open.mutable_open()->add_tokens(open.open().tokens_size() % 2000);
  open.mutable_open()->set_timeout_ms(0);
  call->Write(open);
  v1::ConsumerMessage grant;
  grant.mutable_grant()->set_epoch(1);
  grant.mutable_grant()->set_credit_bytes(int64_t{1} << 30);
  v1::ProducerMessage message;
  while (call->Read(&message) && !message.has_manifest()) {
  }
  ASSERT_TRUE(message.has_manifest());
  call->Write(grant);
  const auto cut = [&] { return MetricSum(producer.daemon().MetricsText(), "invar_transfer_expired_total") == 1; };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!cut() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(cut());
  while (call->Read(&message)) {
  }
  EXPECT_FALSE(call->Finish().ok());
  EXPECT_TRUE(producer.BecomesIdle());
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_transfer_held_bytes"), 0);
}

TEST_F(TransferBetweenDaemons, ATenantHasItsShareOfTheMemoryOfPrefixes) {
  v1::ConsumerMessage open;
  *open.mutable_open() = AskedByAConsumer();
  const v1::TransferIdentity& identity = open.open().identity();
  const int64_t pages = (open.open().tokens_size() + identity.page_tokens() - 1) / identity.page_tokens();
  config::Config config = ProducerConfig();
  config.transfer.lease = milliseconds(60'000);
  config.transfer.bytes_max = 4 * (pages * identity.page_bytes() + identity.state_bytes());
  config.auth.tokens = {{.tenant = "flood", .sha256 = ToHex(Sha256("flood"))},
                        {.tenant = "other", .sha256 = ToHex(Sha256("other"))}};
  RunningDaemon producer(config, FingerprintLoader(nullptr));
  const auto stub = v1::TransferService::NewStub(producer.NewChannel());
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ConsumerMessage, v1::ProducerMessage>> stream;
  };
  std::vector<std::unique_ptr<Call>> calls;
  // Whether it was let in; it stays open then, ungranted.
  const auto ask = [&](const std::string& tenant) {
    Call& call = *calls.emplace_back(std::make_unique<Call>());
    call.context.AddMetadata("authorization", "Bearer " + tenant);
    call.stream = stub->FetchPrefix(&call.context);
    open.mutable_open()->set_tenant(tenant);
    call.stream->Write(open);
    v1::ProducerMessage message;
    while (call.stream->Read(&message)) {
      if (message.has_manifest()) return grpc::Status();
    }
    return call.stream->Finish();
  };
  EXPECT_TRUE(ask("flood").ok());
  EXPECT_TRUE(ask("flood").ok());
  const grpc::Status beyond = ask("flood");
  EXPECT_EQ(beyond.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(beyond.error_message().find("limits.tenant_share_percent"), std::string::npos) << beyond.error_message();
  EXPECT_TRUE(ask("other").ok());
  for (const std::unique_ptr<Call>& call : calls) call->context.TryCancel();
  EXPECT_TRUE(producer.BecomesIdle());
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_transfer_held_bytes"), 0);
  EXPECT_TRUE(ask("flood").ok()) << "what was given back is there again";
  calls.back()->context.TryCancel();
}

TEST_F(TransferBetweenDaemons, OtherWeightsAreRefusedByName) {
  config::Config config = ProducerConfig();
  config.model.path = TinyModelFolder() + "-ft";
  RunningDaemon producer(config);
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  ExpectFallback(consumer, 1, engine::TransferFault::kRefused);
  EXPECT_EQ(MetricSum(HttpGet(producer.daemon().ops_address(), "/metrics").body, "invar_transfer_refused_total"), 1);
}

TEST_F(TransferBetweenDaemons, OneThatServesNoPrefixesAndOneThatIsNotThere) {
  RunningDaemon producer(TinyConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  ExpectFallback(consumer, 1, engine::TransferFault::kRefused);
  RunningDaemon other(ConsumerConfig("a=127.0.0.1:1"));
  ExpectFallback(other, 1, engine::TransferFault::kUnreachable);
}

TEST_F(TransferBetweenDaemons, AnotherProducerIsAskedWhereOneIsDown) {
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("dead=127.0.0.1:1, alive=" + producer.daemon().grpc_address()));
  for (uint32_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(Collect(*consumer.NewStub(), Prompt(seed)).finished.reuse().transferred_tokens(), kPrompt - 1) << seed;
  }
}

// Wherever this runs, a prompt that lies ready is sooner fetched than run, and one that does not is sooner run here. A
// busy machine may let a producer answer too late to be of use, but never ask the wrong one.
TEST_F(TransferBetweenDaemons, TheOneThatHasItIsAskedAndNobodyElse) {
  RunningDaemon cold(ProducerConfig());
  RunningDaemon warm(ProducerConfig());
  config::Config config =
      ConsumerConfig("cold=" + cold.daemon().grpc_address() + ", warm=" + warm.daemon().grpc_address());
  config.transfer.choose = "shortest";
  RunningDaemon consumer(config);
  const auto stub = consumer.NewStub();
  Practise(*stub);
  int landed = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const v1::GenerateRequest request = Prompt(seed, 3000);
    EXPECT_TRUE(Collect(*warm.NewStub(), request).status.ok());
    const Outcome outcome = Collect(*stub, request);
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, request));
    landed += outcome.finished.reuse().transferred_tokens() > 0 ? 1 : 0;
    if (outcome.finished.reuse().transferred_tokens() == 0) continue;
    EXPECT_NE(outcome.finished.kv().transfer_plan().find("of: here"), std::string::npos)
        << outcome.finished.kv().transfer_plan();
  }
  EXPECT_GT(landed, 0);
  EXPECT_EQ(cold.stats().submitted, 0) << "it was asked what it has, and nothing more";
  EXPECT_EQ(consumer.stats().transfer.begun, 8);
}

// Being asked what it has, and then not fetched from, is no end of being tried again.
TEST_F(TransferBetweenDaemons, OneThatCameBackIsAskedAgainThoughItWasNotWorthItAtFirst) {
  std::string address;
  {
    RunningDaemon before(ProducerConfig());
    address = before.daemon().grpc_address();
  }
  config::Config config = ConsumerConfig("a=" + address);
  config.transfer.choose = "shortest";
  RunningDaemon consumer(config);
  const auto stub = consumer.NewStub();
  Practise(*stub);
  for (uint32_t seed = 0; seed < 3; ++seed) EXPECT_TRUE(Collect(*stub, Prompt(seed)).status.ok());
  EXPECT_EQ(Faults(consumer, engine::TransferFault::kUnreachable), 3);
  config::Config again = ProducerConfig();
  again.server.listen = address;
  RunningDaemon producer(again);
  bool landed = false;
  bool answered = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (uint32_t seed = 100; !landed && std::chrono::steady_clock::now() < end; ++seed) {
    const v1::GenerateRequest request = Prompt(seed, 3000);
    // The first that it is asked for it has not.
    if (answered) {
      EXPECT_TRUE(Collect(*producer.NewStub(), request).status.ok());
    }
    landed = Collect(*stub, request).finished.reuse().transferred_tokens() > 0;
    answered = answered || Faults(consumer, engine::TransferFault::kSlower) > 0;
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_TRUE(answered);
  EXPECT_TRUE(landed);
}

TEST_F(TransferBetweenDaemons, WhatIsSoonerRunHereIsRunHere) {
  RunningDaemon producer(ProducerConfig());
  config::Config config = ConsumerConfig("a=" + producer.daemon().grpc_address());
  config.transfer.choose = "shortest";
  RunningDaemon consumer(config);
  const auto stub = consumer.NewStub();
  Practise(*stub);
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const Outcome outcome = Collect(*stub, Prompt(seed, 1500));
    EXPECT_EQ(outcome.finished.reuse().transferred_tokens(), 0);
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(seed, 1500)));
  }
  EXPECT_EQ(Faults(consumer, engine::TransferFault::kSlower) + Faults(consumer, engine::TransferFault::kBusy), 4);
  EXPECT_EQ(producer.stats().submitted, 0);
}

TEST_F(TransferBetweenDaemons, IsBehindTokensAndTls) {
  const CertificateSet certificates = MakeCertificates();
  const auto tls = [&](config::Config& config) {
    config.tls.certificate = WriteFile("server.pem", certificates.server.certificate);
    config.tls.key = WriteFile("server.key", certificates.server.key);
    config.tls.client_ca = WriteFile("ca.pem", certificates.ca.certificate);
  };
  config::Config config = ProducerConfig();
  tls(config);
  config.auth.tokens = {{.tenant = "other", .sha256 = ToHex(Sha256("another"))},
                        {.tenant = "decode", .sha256 = ToHex(Sha256(kToken)), .instance = true}};
  RunningDaemon producer(config);
  std::string address = producer.daemon().grpc_address();
  address = "localhost" + address.substr(address.rfind(':'));
  config::Config good = ConsumerConfig("a=" + address);
  good.transfer.tls = true;
  good.transfer.tls_ca = WriteFile("ca.pem", certificates.ca.certificate);
  good.transfer.tls_certificate = WriteFile("client.pem", certificates.client.certificate);
  good.transfer.tls_key = WriteFile("client.key", certificates.client.key);
  good.transfer.token_file = folder_ + "/token";
  {
    RunningDaemon consumer(good);
    const auto stub = consumer.NewStub();
    const Outcome outcome = Collect(*stub, Prompt(1));
    EXPECT_EQ(outcome.finished.reuse().transferred_tokens(), kPrompt - 1);
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(1)));
  }
  config::Config no_token = good;
  no_token.transfer.token_file.clear();
  RunningDaemon unknown(no_token);
  ExpectFallback(unknown, 2, engine::TransferFault::kDenied);
  config::Config other_tenant = good;
  other_tenant.transfer.token_file = WriteFile("other", "another");
  RunningDaemon of_a_tenant(other_tenant);
  ExpectFallback(of_a_tenant, 3, engine::TransferFault::kDenied);
  config::Config no_certificate = good;
  no_certificate.transfer.tls_certificate.clear();
  no_certificate.transfer.tls_key.clear();
  RunningDaemon stranger(no_certificate);
  ExpectFallback(stranger, 4, engine::TransferFault::kUnreachable);
  config::Config plain = ConsumerConfig("a=" + address);
  RunningDaemon without_tls(plain);
  ExpectFallback(without_tls, 5, engine::TransferFault::kUnreachable);
}

// What a gateway does: the prompt to a prefill instance for one token, and what that says to a decode instance.
TEST_F(TransferBetweenDaemons, AHandOffNamesTheOneThatHasIt) {
  config::Config prefill = ProducerConfig();
  prefill.transfer.name = "prefill-1";
  prefill.transfer.hmac_secret_file = folder_ + "/secret";
  RunningDaemon producer(prefill);
  RunningDaemon idle(ProducerConfig());
  config::Config decode =
      ConsumerConfig("prefill-0=" + idle.daemon().grpc_address() + ", prefill-1=" + producer.daemon().grpc_address());
  decode.transfer.hmac_secret_file = folder_ + "/secret";
  decode.transfer.mode = "none";
  RunningDaemon consumer(decode);
  const auto stub = consumer.NewStub();
  for (uint32_t seed = 0; seed < 3; ++seed) {
    v1::GenerateRequest request = Prompt(seed);
    request.mutable_stopping()->set_max_tokens(1);
    const std::string hand_off = Collect(*producer.NewStub(), request).finished.kv_transfer_params_json();
    ASSERT_FALSE(hand_off.empty());
    request = Prompt(seed);
    request.set_kv_transfer_params_json(hand_off);
    const Outcome outcome = Collect(*stub, request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_GE(outcome.finished.reuse().transferred_tokens(), kPrompt - 65);
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(seed)));
    EXPECT_TRUE(outcome.finished.kv_transfer_params_json().empty()) << "nobody fetches from a decode instance";
  }
  EXPECT_EQ(idle.stats().submitted, 0);
  EXPECT_EQ(consumer.stats().transfer.landed, 3);

  nlohmann::json forged =
      nlohmann::json::parse(Collect(*producer.NewStub(), Prompt(9)).finished.kv_transfer_params_json());
  forged["producer"] = "prefill-0";
  v1::GenerateRequest request = Prompt(9);
  request.set_kv_transfer_params_json(forged.dump());
  const Outcome refused = Collect(*stub, request);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(refused.status.error_message().find("kv_transfer_params_json"), std::string::npos);
}

// --- As processes ---

std::vector<std::string> ProducerArguments() {
  return {"--set", "transfer.role=prefill", "--set", "transfer.lease=1s"};
}
std::vector<std::string> ConsumerArguments(const std::string& address) {
  return {"--set", "transfer.role=decode", "--set", "transfer.producers=a=" + address, "--set", "transfer.lease=1s",
          "--set", "transfer.timeout=10s", "--set", "transfer.choose=always"};
}

// Bug case 34: a producer that dies at any moment of a transfer.
TEST(TransferBetweenProcesses, AKilledProducerCostsALocalRunAndNothingElse) {
  std::vector<std::vector<uint32_t>> cold;
  {
    InvardProcess alone;
    for (uint32_t seed = 0; seed < 6; ++seed) cold.push_back(Collect(*alone.stub, Prompt(seed, 1500)).logit_bits);
  }
  for (uint32_t seed = 0; seed < 6; ++seed) {
    InvardProcess producer(ProducerArguments());
    InvardProcess consumer(ConsumerArguments(producer.address));
    auto call = std::async(std::launch::async, [&] { return Collect(*consumer.stub, Prompt(seed, 1500)); });
    // From before the transfer to after it, as the machine has it.
    (void)producer.process.Wait(milliseconds(1) * (seed * seed * 4));
    producer.process.Signal(SIGKILL);
    const Outcome outcome = call.get();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, cold[seed]) << seed;
    const std::string metrics = HttpGet(consumer.ops, "/metrics").body;
    EXPECT_EQ(MetricSum(metrics, "invar_transfer_landed_total") + MetricSum(metrics, "invar_transfer_fallbacks_total"),
              1);
    EXPECT_EQ(MetricSum(metrics, "invar_transfer_under_way"), 0);
    // It goes on without it.
    EXPECT_TRUE(Collect(*consumer.stub, Prompt(100, 400)).status.ok());
  }
}

TEST(TransferBetweenProcesses, AFrozenOneIsGivenUpAfterItsLease) {
  InvardProcess producer(ProducerArguments());
  InvardProcess consumer(ConsumerArguments(producer.address));
  ASSERT_EQ(Collect(*consumer.stub, Prompt(1)).finished.reuse().transferred_tokens(), kPrompt - 1);
  producer.process.Signal(SIGSTOP);
  const Outcome outcome = Collect(*consumer.stub, Prompt(2));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  const std::string metrics = HttpGet(consumer.ops, "/metrics").body;
  EXPECT_EQ(MetricSum(metrics, "invar_transfer_fallbacks_total", "reason=\"silent\""), 1) << metrics;
  producer.process.Signal(SIGCONT);
  const Outcome again = Collect(*producer.stub, Prompt(2));
  EXPECT_EQ(outcome.logit_bits, again.logit_bits);
  // What it held for the transfer is free again.
  for (int i = 0; i < 100; ++i) {
    if (MetricSum(HttpGet(producer.ops, "/metrics").body, "invar_transfer_held_bytes") == 0) return;
    (void)producer.process.Wait(milliseconds(50));
  }
  ADD_FAILURE() << "a prefix is held for a consumer that has gone";
}

}  // namespace
}  // namespace invar::e2e
