// Callers that go away or stop reading at awkward moments, and what open calls may hold: nothing runs on for nobody.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

// Stands at a gate before it tokenizes.
class GatedTokenizer final : public models::Tokenizer {
 public:
  GatedTokenizer(std::unique_ptr<models::Tokenizer> tokenizer, StepGate& gate)
      : tokenizer_(std::move(tokenizer)), gate_(gate) {}

  StatusOr<std::vector<TokenId>> Encode(const std::string_view text, const models::ControlTokens control,
                                        const bool add_special) const override {
    gate_.Pass();
    return tokenizer_->Encode(text, control, add_special);
  }
  StatusOr<std::vector<TokenId>> EncodePieces(const std::span<const models::PromptPiece> pieces) const override {
    return tokenizer_->EncodePieces(pieces);
  }
  std::string Decode(const std::span<const TokenId> ids, const bool skip_special) const override {
    return tokenizer_->Decode(ids, skip_special);
  }
  std::string TokenBytes(const TokenId id, const bool skip_special) const override {
    return tokenizer_->TokenBytes(id, skip_special);
  }
  int32_t vocabulary_size() const override { return tokenizer_->vocabulary_size(); }
  std::optional<TokenId> FindToken(const std::string_view content) const override {
    return tokenizer_->FindToken(content);
  }
  bool IsSpecial(const TokenId id) const override { return tokenizer_->IsSpecial(id); }
  bool strips_leading_space() const override { return tokenizer_->strips_leading_space(); }

 private:
  std::unique_ptr<models::Tokenizer> tokenizer_;
  StepGate& gate_;
};

server::ModelLoader GatedTokenizerLoader(StepGate& gate) {
  return [&gate](const config::Config& config) {
    StatusOr<server::ModelParts> parts = FingerprintLoader(nullptr)(config);
    if (parts.ok()) parts->tokenizer = std::make_unique<GatedTokenizer>(std::move(parts->tokenizer), gate);
    return parts;
  };
}

TEST(GoneReader, ACancelWhileTheRequestIsPreparedIsNotLost) {
  StepGate gate;
  RunningDaemon daemon(TinyConfig(), GatedTokenizerLoader(gate));
  const auto stub = daemon.NewStub();
  gate.Close();
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, TextRequest("to be cancelled", 60000));
  gate.AwaitStanding();
  context.TryCancel();
  // A round trip on the same connection: the server has then read the cancel, which came before it.
  grpc::ClientContext other;
  v1::ListModelsResponse models;
  EXPECT_TRUE(stub->ListModels(&other, {}, &models).ok());
  gate.Open();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(daemon.BecomesIdle());
  EXPECT_EQ(daemon.stats().finished_length, 0) << "it ran to its end for nobody";
}

TEST(GoneReader, OneThatTakesNotEvenItsStatusIsResetThoughTheEngineIsDone) {
  config::Config config = TinyConfig();
  config.limits.stream_buffer = 16 << 20;  // The engine never waits.
  config.limits.slow_reader_timeout = config::Duration(200);
  HandClock clock;
  RunningDaemon daemon(config, FingerprintLoader(nullptr), &clock);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::GenerationService::NewStub(daemon.NewChannel(arguments));
  grpc::ClientContext context;
  v1::GenerateRequest request = TokensRequest({1, 2, 3}, 4000);
  request.mutable_output()->set_logprobs(20);
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  while (daemon.stats().finished_length == 0) std::this_thread::yield();
  EXPECT_FALSE(daemon.daemon().WaitIdle(std::chrono::milliseconds(300))) << "its time is not over";
  // Time goes on, since the write in flight may still have been taken and another begun.
  while (MetricSum(daemon.daemon().MetricsText(), "invar_rpcs_total", "ABORTED") < 1) {
    clock.Advance(config.limits.slow_reader_timeout / 4);
    daemon.daemon().WaitIdle(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(daemon.daemon().WaitIdle(std::chrono::milliseconds(300))) << "its status waits behind the data";
  // Time to take the status: the limit again and two seconds.
  clock.Advance(config.limits.slow_reader_timeout + std::chrono::seconds(2));
  EXPECT_TRUE(daemon.daemon().WaitIdle(std::chrono::seconds(5))) << "the call stays open for ever";
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(OpenRequests, HoldNoMoreMemoryThanConfigured) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.limits.open_request_bytes_max = 6000;
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  const auto stub = daemon.NewStub();
  const v1::GenerateRequest request = TokensRequest(std::vector<int32_t>(1000, 1), 2);
  gate.Close();
  std::thread first([&] { EXPECT_TRUE(Collect(*daemon.NewStub(), request).status.ok()) << "alone it has room"; });
  gate.AwaitStanding();
  EXPECT_GE(MetricSum(daemon.daemon().MetricsText(), "invar_open_request_bytes"), 4000);
  EXPECT_EQ(Collect(*stub, request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  gate.Open();
  first.join();
  EXPECT_TRUE(daemon.BecomesIdle());
  EXPECT_EQ(MetricSum(daemon.daemon().MetricsText(), "invar_open_request_bytes"), 0);
  EXPECT_TRUE(Collect(*stub, request).status.ok());
}

}  // namespace
}  // namespace invar::e2e
