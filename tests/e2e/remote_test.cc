// A decode instance whose requests run at their producer while the prefix is on its way: answers are those of a cold
// run, at once, and whatever becomes of the producer.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/invard_process.h"

namespace invar::e2e {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kPrompt = 700;
constexpr int32_t kOutput = 24;

v1::GenerateRequest Prompt(const uint32_t seed, const int32_t tokens = kPrompt) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2000);
  v1::GenerateRequest request = TokensRequest(ids, kOutput);
  request.mutable_sampling()->set_temperature(0.9F);
  request.mutable_sampling()->set_seed(seed);
  request.mutable_sampling()->set_repetition_penalty(1.1F);
  return request;
}

// A wire to `target` on which each connection brings so many bytes of it back, and then no more until it is over.
class StallingWire {
 public:
  StallingWire(const std::string& target, const int64_t bytes) : bytes_(bytes) {
    const size_t colon = target.rfind(':');
    target_ = Loopback(std::stoi(target.substr(colon + 1)));
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in own = Loopback(0);
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(listen(listening_, 16), 0);
    socklen_t size = sizeof(own);
    EXPECT_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&own), &size), 0);
    address_ = fmt::format("127.0.0.1:{}", ntohs(own.sin_port));
    threads_.emplace_back([this] { Accept(); });
  }
  ~StallingWire() {
    shutdown(listening_, SHUT_RDWR);
    threads_.front().join();  // Adds none from here on.
    for (const int fd : sockets_) shutdown(fd, SHUT_RDWR);
    for (size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
    for (const int fd : sockets_) close(fd);
    close(listening_);
  }
  const std::string& address() const { return address_; }

 private:
  static sockaddr_in Loopback(const int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void Accept() {
    for (int from = 0; (from = accept(listening_, nullptr, nullptr)) >= 0;) {
      const int to = socket(AF_INET, SOCK_STREAM, 0);
      EXPECT_EQ(connect(to, reinterpret_cast<const sockaddr*>(&target_), sizeof(target_)), 0);
      sockets_.insert(sockets_.end(), {from, to});
      threads_.emplace_back([from, to] { Carry(from, to, INT64_MAX); });
      threads_.emplace_back([from, to, this] { Carry(to, from, bytes_); });
    }
  }
  static void Carry(const int from, const int to, int64_t left) {
    std::array<char, 4096> buffer{};
    while (left > 0) {
      const ssize_t got = recv(from, buffer.data(), std::min<size_t>(buffer.size(), static_cast<size_t>(left)), 0);
      if (got <= 0 || send(to, buffer.data(), static_cast<size_t>(got), MSG_NOSIGNAL) != got) {
        shutdown(to, SHUT_RDWR);
        return;
      }
      left -= got;
    }
  }

  const int64_t bytes_;
  sockaddr_in target_{};
  int listening_ = -1;
  std::string address_;
  std::vector<int> sockets_;  // The accepting thread's until it has ended, and so are the other threads.
  std::vector<std::thread> threads_;
};

config::Config ProducerConfig() {
  config::Config config = TinyConfig();
  config.transfer.role = "prefill";
  config.transfer.lease = milliseconds(1000);
  return config;
}
config::Config ConsumerConfig(const std::string& producers) {
  config::Config config = TinyConfig();
  config.transfer.role = "decode";
  config.transfer.choose = "always";
  config.transfer.verify = "there";
  config.transfer.producers = producers;
  config.transfer.lease = milliseconds(1000);
  return config;
}
std::vector<uint32_t> Cold(v1::GenerationService::Stub& stub, v1::GenerateRequest request) {
  request.mutable_cache()->set_bypass_read(true);
  request.mutable_cache()->set_bypass_write(true);
  const Outcome outcome = Collect(stub, request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  return outcome.logit_bits;
}

TEST(RemoteBetweenDaemons, AnswersAreThoseOfAColdRunAndSayWhereTheyCameFrom) {
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  const auto stub = consumer.NewStub();
  for (const int32_t tokens : {300, 320, 321, 513, 700, 1025}) {
    const v1::GenerateRequest request = Prompt(static_cast<uint32_t>(tokens), tokens);
    const Outcome outcome = Collect(*stub, request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, request)) << tokens;
    EXPECT_TRUE(outcome.finished.kv().transfer_mode().ends_with("verify")) << outcome.finished.kv().transfer_mode();
    EXPECT_TRUE(outcome.finished.kv().exact());
  }
  EXPECT_TRUE(consumer.BecomesIdle());
  EXPECT_TRUE(producer.BecomesIdle());
  const std::string here = HttpGet(consumer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(here, "invar_transfer_remote_runs_total"), 6);
  EXPECT_GE(MetricSum(here, "invar_transfer_remote_tokens_total"), 6);
  const std::string there = HttpGet(producer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(there, "invar_transfer_verify_runs_total"), 6);
  EXPECT_GE(MetricSum(there, "invar_transfer_verify_tokens_total"),
            MetricSum(here, "invar_transfer_remote_tokens_total"));
  EXPECT_EQ(MetricSum(there, "invar_calls_open"), 0);
}

// A compressed view comes first, and the consumer's guesses on it are verified there. The wire has room for the view
// and not for the prefix, so that there is time for drafts.
TEST(RemoteBetweenDaemons, DraftsOnAViewThatCameFirstChangeNoBit) {
  RunningDaemon producer(ProducerConfig());
  const v1::GenerateRequest request = Prompt(1, 1500);
  int64_t whole = 0;
  {
    config::Config config = ConsumerConfig("a=" + producer.daemon().grpc_address());
    config.transfer.verify = "here";
    RunningDaemon consumer(config);
    whole = Collect(*consumer.NewStub(), request).finished.kv().transfer_bytes();
    ASSERT_GT(whole, 0);
  }
  StallingWire wire(producer.daemon().grpc_address(), whole * 3 / 5);
  config::Config config = ConsumerConfig("a=" + wire.address());
  config.transfer.verify = "drafted";
  config.transfer.lease = milliseconds(3000);
  config.engine.speculation.compressor = "kivi2";
  config.engine.speculation.draft_tokens_max = 4;
  RunningDaemon consumer(config);
  v1::GenerateRequest long_one = request;
  long_one.mutable_stopping()->set_max_tokens(800);
  const auto stub = consumer.NewStub();
  const Outcome outcome = Collect(*stub, long_one);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.logit_bits, Cold(*stub, long_one));
  EXPECT_EQ(outcome.finished.kv().transfer_mode(), "verify");
  const std::string here = HttpGet(consumer.daemon().ops_address(), "/metrics").body;
  EXPECT_EQ(MetricSum(here, "invar_transfer_remote_views_total"), 1);
  EXPECT_GE(MetricSum(here, "invar_transfer_remote_drafted_total"), 1);
  EXPECT_TRUE(consumer.BecomesIdle());
  EXPECT_TRUE(producer.BecomesIdle());
}

TEST(RemoteBetweenDaemons, OtherWeightsAreRefusedAndTheAnswerIsRunHere) {
  config::Config config = ProducerConfig();
  config.model.path = TinyModelFolder() + "-ft";
  RunningDaemon producer(config);
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  const auto stub = consumer.NewStub();
  const Outcome outcome = Collect(*stub, Prompt(1));
  EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(1)));
  EXPECT_EQ(outcome.finished.kv().transfer_mode(), "");
  EXPECT_EQ(MetricSum(producer.daemon().MetricsText(), "invar_transfer_verify_refused_total"), 1);
}

TEST(RemoteBetweenDaemons, ManyAtOnceAreAnsweredAlike) {
  RunningDaemon producer(ProducerConfig());
  RunningDaemon consumer(ConsumerConfig("a=" + producer.daemon().grpc_address()));
  std::vector<std::future<Outcome>> calls;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    calls.push_back(std::async(std::launch::async, [&, seed] { return Collect(*consumer.NewStub(), Prompt(seed)); }));
  }
  const auto stub = producer.NewStub();
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome = calls[seed].get();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, Cold(*stub, Prompt(seed))) << seed;
  }
  EXPECT_TRUE(producer.BecomesIdle());
}

std::vector<std::string> ProducerArguments() {
  return {"--set", "transfer.role=prefill", "--set", "transfer.lease=1s"};
}
std::vector<std::string> ConsumerArguments(const std::string& address) {
  return {"--set", "transfer.role=decode",   "--set", "transfer.producers=a=" + address,
          "--set", "transfer.lease=1s",      "--set", "transfer.timeout=10s",
          "--set", "transfer.choose=always", "--set", "transfer.verify=there"};
}

TEST(RemoteBetweenProcesses, AKilledProducerCostsALocalRunAndNothingElse) {
  std::vector<std::vector<uint32_t>> cold;
  {
    InvardProcess alone;
    for (uint32_t seed = 0; seed < 6; ++seed) cold.push_back(Collect(*alone.stub, Prompt(seed, 1500)).logit_bits);
  }
  for (uint32_t seed = 0; seed < 6; ++seed) {
    InvardProcess producer(ProducerArguments());
    InvardProcess consumer(ConsumerArguments(producer.address));
    auto call = std::async(std::launch::async, [&] { return Collect(*consumer.stub, Prompt(seed, 1500)); });
    // From before the run to after it, as the machine has it.
    (void)producer.process.Wait(milliseconds(1) * (seed * seed * 10));
    producer.process.Signal(SIGKILL);
    const Outcome outcome = call.get();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.logit_bits, cold[seed]) << seed;
    EXPECT_EQ(MetricSum(HttpGet(consumer.ops, "/metrics").body, "invar_transfer_under_way"), 0);
    EXPECT_TRUE(Collect(*consumer.stub, Prompt(100, 400)).status.ok()) << "it goes on without it";
  }
}

// Neither side keeps anything for one that does not move.
TEST(RemoteBetweenProcesses, AFrozenSideIsGivenUpAfterItsLease) {
  InvardProcess producer(ProducerArguments());
  InvardProcess consumer(ConsumerArguments(producer.address));
  EXPECT_TRUE(Collect(*consumer.stub, Prompt(1)).finished.kv().transfer_mode().ends_with("verify"));
  producer.process.Signal(SIGSTOP);
  const Outcome outcome = Collect(*consumer.stub, Prompt(2));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(outcome.finished.kv().transfer_mode(), "");
  producer.process.Signal(SIGCONT);
  EXPECT_EQ(outcome.logit_bits, Collect(*producer.stub, Prompt(2)).logit_bits);

  v1::GenerateRequest endless = Prompt(3);
  endless.mutable_stopping()->set_max_tokens(3000);
  auto call = std::async(std::launch::async, [&] { return Collect(*consumer.stub, endless); });
  const auto runs = [&] {
    return MetricSum(HttpGet(producer.ops, "/metrics").body, "invar_calls_open", "rpc=\"VerifyPrefix\"");
  };
  for (int i = 0; i < 1000 && runs() == 0; ++i) (void)producer.process.Wait(milliseconds(2));
  consumer.process.Signal(SIGSTOP);
  for (int i = 0; i < 200 && runs() > 0; ++i) (void)producer.process.Wait(milliseconds(50));
  EXPECT_EQ(runs(), 0) << "a run is held for a consumer that has gone";
  consumer.process.Signal(SIGCONT);
  EXPECT_TRUE(call.get().status.ok());
}

}  // namespace
}  // namespace invar::e2e
