// The consumer's end against a producer that only writes down what it is asked.
#include "server/peers/transfer_client.h"

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

// One that serves a manifest of another model, or none, beats, and may or may not answer an Abort.
class AbortedProducer final : public v1::TransferService::Service {
 public:
  AbortedProducer(const bool has_manifest, const bool answers) : has_manifest_(has_manifest), answers_(answers) {
    server_ = grpc::ServerBuilder()
                  .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_)
                  .RegisterService(this)
                  .BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::future<void> opened() { return opened_.get_future(); }
  // What it was told, when the call has ended.
  std::future<v1::ConsumerMessage::Abort> told() { return told_.get_future(); }

  grpc::Status FetchPrefix(grpc::ServerContext*,
                           grpc::ServerReaderWriter<v1::ProducerMessage, v1::ConsumerMessage>* stream) override {
    v1::ConsumerMessage message;
    stream->Read(&message);
    opened_.set_value();
    v1::ProducerMessage said;
    if (has_manifest_) {
      said.mutable_manifest()->mutable_identity()->set_fingerprint("another");
    } else {
      said.mutable_heartbeat();
    }
    stream->Write(said);
    v1::ConsumerMessage::Abort abort;
    while (stream->Read(&message)) {
      if (!message.has_abort()) continue;
      abort = message.abort();
      if (!answers_) continue;
      said.mutable_abort_ack()->set_epoch(abort.epoch());
      stream->Write(said);
      break;
    }
    told_.set_value(abort);
    return grpc::Status::CANCELLED;
  }

 private:
  const bool has_manifest_;
  const bool answers_;
  int port_ = 0;
  std::promise<void> opened_;
  std::promise<v1::ConsumerMessage::Abort> told_;
  std::unique_ptr<grpc::Server> server_;
};

// One that answers no quote until the call is cut, or the test is over.
class SlowToQuote final : public v1::TransferService::Service {
 public:
  SlowToQuote() {
    server_ = grpc::ServerBuilder()
                  .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_)
                  .RegisterService(this)
                  .BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::future<void> asked() { return asked_.get_future(); }
  void Release() { released_ = true; }

  grpc::Status QuotePrefix(grpc::ServerContext* context, const v1::QuoteRequest*, v1::QuoteResponse*) override {
    asked_.set_value();
    while (!context->IsCancelled() && !released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  }

 private:
  int port_ = 0;
  std::promise<void> asked_;
  std::atomic<bool> released_ = false;
  std::unique_ptr<grpc::Server> server_;
};

// Nobody waits for it, or the instance stops: neither waits for producers that take their time over a quote.
TEST(TransferClient, CutsQuotesThatNobodyWaitsFor) {
  for (const bool stops : {false, true}) {
    SlowToQuote producer;
    const RealClock clock;
    config::Config::Transfer config;
    config.producers = "a=" + producer.address();
    config.lease = std::chrono::hours(1);
    auto client = TransferClient::Make(config, {}, clock).value();
    std::promise<engine::FetchedPrefix> done;
    client->Fetch(1,
                  {.tokens = std::vector<TokenId>(500, TokenId(7)),
                   .deadline = clock.Now() + TimeNs{3'600'000'000'000},
                   .problem = engine::TransferProblem{.end = 500}},
                  [&](engine::FetchedPrefix fetched) { done.set_value(std::move(fetched)); });
    producer.asked().wait();
    std::future<void> stopped;
    if (stops) {
      stopped = std::async(std::launch::async, [&] { client.reset(); });
    } else {
      client->Cancel(1);
    }
    std::future<engine::FetchedPrefix> fetched = done.get_future();
    const bool came = fetched.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    producer.Release();
    ASSERT_TRUE(came) << stops;
    EXPECT_EQ(fetched.get().fault, engine::TransferFault::kLate);
  }
}

// Whether its producer was to be refused or nobody waited any more, and whether that answers or must be cut.
TEST(TransferClient, TellsWhomItGivesUpAndWaitsForTheAnswerAWhile) {
  for (const bool has_manifest : {true, false}) {
    for (const bool answers : {true, false}) {
      SCOPED_TRACE(testing::Message() << has_manifest << answers);
      AbortedProducer producer(has_manifest, answers);
      const RealClock clock;
      config::Config::Transfer config;
      config.producers = "a=" + producer.address();
      const auto client = TransferClient::Make(config, {}, clock).value();
      std::promise<engine::FetchedPrefix> done;
      client->Fetch(1,
                    {.tokens = std::vector<TokenId>(500, TokenId(7)), .deadline = clock.Now() + TimeNs{60'000'000'000}},
                    [&](engine::FetchedPrefix fetched) { done.set_value(std::move(fetched)); });
      producer.opened().wait();
      if (!has_manifest) client->Cancel(1);
      EXPECT_EQ(done.get_future().get().fault,
                has_manifest ? engine::TransferFault::kRefused : engine::TransferFault::kLate);
      const v1::ConsumerMessage::Abort told = producer.told().get();
      EXPECT_EQ(told.reason(), has_manifest ? v1::ABORT_REFUSED : v1::ABORT_UNWANTED);
      EXPECT_FALSE(told.why().empty());
      EXPECT_EQ(client->aborts().answered, answers ? 1 : 0);
      EXPECT_EQ(client->aborts().unanswered, answers ? 0 : 1);
    }
  }
}

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
