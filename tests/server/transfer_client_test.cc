// The consumer's end against a producer that only writes down what it is asked.
#include "server/transfer_client.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/clock.h"
#include "invar/v1/transfer.grpc.pb.h"

namespace invar::server {
namespace {

// One that takes an Open and not a byte more, and says nothing, until the call is cut.
class DeafProducer final : public v1::TransferService::Service {
 public:
  DeafProducer() {
    server_ = grpc::ServerBuilder()
                  .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_)
                  .AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5)
                  .AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0)
                  .RegisterService(this)
                  .BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status FetchPrefix(grpc::ServerContext* context,
                           grpc::ServerReaderWriter<v1::ProducerMessage, v1::ConsumerMessage>* stream) override {
    v1::ConsumerMessage open;
    stream->Read(&open);
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class CountingProducer final : public v1::TransferService::Service {
 public:
  CountingProducer() {
    server_ = grpc::ServerBuilder()
                  .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_)
                  .RegisterService(this)
                  .BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int asked() const { return asked_; }

  grpc::Status FetchPrefix(grpc::ServerContext*,
                           grpc::ServerReaderWriter<v1::ProducerMessage, v1::ConsumerMessage>*) override {
    ++asked_;
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "nothing is here");
  }
  grpc::Status QuotePrefix(grpc::ServerContext*, const v1::QuoteRequest*, v1::QuoteResponse*) override {
    ++asked_;
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "nothing is here");
  }

 private:
  int port_ = 0;
  std::atomic<int> asked_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(TransferClient, AsksNobodyWhenItsTimeIsOver) {
  CountingProducer producer;
  const RealClock clock;
  config::Config::Transfer config;
  config.producers = "a=" + producer.address();
  const auto client = TransferClient::Make(config, {}, clock).value();
  int64_t ticket = 0;
  const auto fetch = [&](const TimeNs deadline, const std::optional<engine::TransferProblem>& problem) {
    std::promise<engine::FetchedPrefix> done;
    client->Fetch(++ticket, {.tokens = std::vector<TokenId>(500, TokenId(7)), .deadline = deadline, .problem = problem},
                  [&](engine::FetchedPrefix fetched) { done.set_value(std::move(fetched)); });
    return done.get_future().get();
  };
  const engine::TransferProblem problem{.end = 500};
  for (const auto& weighed : {std::optional<engine::TransferProblem>(), std::optional(problem)}) {
    EXPECT_EQ(fetch(clock.Now(), weighed).fault, engine::TransferFault::kLate);
    EXPECT_EQ(producer.asked(), 0);
  }
  EXPECT_EQ(fetch(clock.Now() + TimeNs{60'000'000'000}, problem).fault, engine::TransferFault::kRefused);
  EXPECT_EQ(producer.asked(), 1);
}

// Its heartbeats then do not go out: who cuts must not wait for them.
TEST(TransferClient, CutsAProducerThatTakesNoHeartbeats) {
  DeafProducer producer;
  const RealClock clock;
  config::Config::Transfer config;
  config.producers = "a=" + producer.address();
  config.lease = std::chrono::seconds(2);
  const auto client = TransferClient::Make(config, {}, clock).value();
  std::promise<engine::FetchedPrefix> done;
  client->Fetch(1, {.tokens = std::vector<TokenId>(500, TokenId(7)), .deadline = clock.Now() + TimeNs{20'000'000'000}},
                [&](engine::FetchedPrefix fetched) { done.set_value(std::move(fetched)); });
  EXPECT_EQ(done.get_future().get().fault, engine::TransferFault::kSilent);
}

}  // namespace
}  // namespace invar::server
