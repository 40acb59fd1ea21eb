// Callers that go away or stop reading at awkward moments, and what open calls may hold: nothing runs on for nobody.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fingerprint.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

// A text whose tokenizing ends with its caller only.
constexpr char kEndless[] = "endless";

Status AwaitInterruption(const models::EncodeLimits& limits) {
  for (;;) {
    if (Status s = limits.interrupted(); !s.ok()) return s;
    std::this_thread::yield();
  }
}

// Stands at a gate before it tokenizes.
class GatedTokenizer final : public models::Tokenizer {
 public:
  GatedTokenizer(std::unique_ptr<models::Tokenizer> tokenizer, StepGate& gate)
      : tokenizer_(std::move(tokenizer)), gate_(gate) {}

  StatusOr<std::vector<TokenId>> Encode(const std::string_view text, const models::ControlTokens control,
                                        const bool add_special, const models::EncodeLimits& limits) const override {
    if (text == kEndless) return AwaitInterruption(limits);
    gate_.Pass();
    return tokenizer_->Encode(text, control, add_special, limits);
  }
  StatusOr<std::vector<TokenId>> EncodePieces(const std::span<const models::PromptPiece> pieces,
                                              const models::EncodeLimits& limits) const override {
    return tokenizer_->EncodePieces(pieces, limits);
  }
  StatusOr<models::EncodedBeside> EncodeBeside(const std::span<const models::PromptPiece> pieces,
                                               const std::span<const models::PromptPiece> beside,
                                               const models::EncodeLimits& limits) const override {
    return tokenizer_->EncodeBeside(pieces, beside, limits);
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

TEST(Preparing, ListModelsAnswersWhileTextsKeepEveryPreparer) {
  StepGate gate;
  RunningDaemon daemon(TinyConfig(), GatedTokenizerLoader(gate));
  gate.Close();
  std::vector<std::future<Outcome>> texts;
  for (int i = 0; i < 4; ++i) {
    texts.push_back(std::async(std::launch::async, [&daemon] {
      return Collect(*daemon.NewStub(), TextRequest("a text that takes its time", 1));
    }));
  }
  daemon.AwaitCallsOpen(4);
  gate.AwaitStanding();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::ListModelsResponse models;
  const auto stub = daemon.NewStub();
  EXPECT_EQ(stub->ListModels(&context, {}, &models).error_code(), grpc::StatusCode::OK);
  EXPECT_EQ(models.models_size(), 1);
  gate.Open();
  for (std::future<Outcome>& text : texts) EXPECT_TRUE(text.get().status.ok());
}

TEST(Preparing, TextsEndWithTheirCallersOrTheirTime) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.limits.request_timeout = config::Duration(300);
  RunningDaemon daemon(config, GatedTokenizerLoader(gate));
  const auto stub = daemon.NewStub();
  // As many as keep every preparer, thrice: cancelled, expired, and expired as unary calls.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 4; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->Generate(contexts.back().get(), TextRequest(kEndless, 1)));
  }
  daemon.AwaitCallsOpen(4);
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& reader : readers) EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const auto expired = [&] { return Collect(*daemon.NewStub(), TextRequest(kEndless, 1)).status.error_code(); };
  std::vector<std::future<grpc::StatusCode>> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(std::async(std::launch::async, expired));
  for (auto& call : calls) EXPECT_EQ(call.get(), grpc::StatusCode::DEADLINE_EXCEEDED);
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text(kEndless);
  v1::TokenizeResponse response;
  EXPECT_EQ(stub->Tokenize(&context, request, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Collect(*stub, TextRequest("short", 1)).status.ok());
  EXPECT_TRUE(daemon.BecomesIdle());
}

TEST(Preparing, RefusalsNameTheirLimitAndAreCounted) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.auth.tokens = {{.tenant = "a", .sha256 = ToHex(Sha256("token-a"))},
                        {.tenant = "b", .sha256 = ToHex(Sha256("token-b"))}};
  config.limits.preparing_max = 2;  // One each of two tenants.
  RunningDaemon daemon(config, GatedTokenizerLoader(gate));
  gate.Close();
  const auto metric = [&](const std::string& name, const std::string& label = {}) {
    return MetricSum(daemon.daemon().MetricsText(), name, label);
  };
  const auto call = [&](const std::string& token) {
    return Collect(*daemon.NewStub(), TextRequest("text", 1), std::chrono::seconds(60), token).status;
  };
  std::vector<std::future<grpc::Status>> calls;
  const auto begin = [&](const std::string& token, const int preparing) {
    calls.push_back(std::async(std::launch::async, call, token));
    daemon.AwaitCallsOpen(static_cast<int64_t>(calls.size()));
    while (metric("invar_calls_preparing") != preparing) std::this_thread::yield();
  };
  begin("token-a", 0);  // Two keep the two preparers.
  begin("token-a", 0);
  begin("token-a", 1);
  const grpc::Status share = call("token-a");
  EXPECT_EQ(share.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(share.error_message().find("limits.tenant_share_percent: 1 calls"), std::string::npos)
      << share.error_message();
  EXPECT_EQ(metric("invar_tenant_share_refusals_total"), 1);
  begin("token-b", 2);
  const grpc::Status full = call("token-b");
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(full.error_message().find("limits.preparing_max: 2 calls"), std::string::npos) << full.error_message();
  EXPECT_EQ(metric("invar_limit_refusals_total", "preparing_max"), 1);
  gate.Open();
  for (auto& each : calls) EXPECT_TRUE(each.get().ok());
}

// Callers without a token: their requests are refused and take nothing from those who have one.
TEST(OpenRequests, OfCallersWithoutATokenLeaveTenantsTheirRoom) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.auth.tokens = {{.tenant = "a", .sha256 = ToHex(Sha256("token-a"))}};
  config.limits.open_request_bytes_max = 1 << 20;
  RunningDaemon daemon(config, FingerprintLoader(&gate));
  gate.Close();
  const auto call = [&] {
    return Collect(*daemon.NewStub(), TokensRequest({1}, 2), std::chrono::seconds(60), "token-a").status;
  };
  std::future<grpc::Status> first = std::async(std::launch::async, call);
  gate.AwaitStanding();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Collect(*daemon.NewStub(), TextRequest(std::string(2 << 20, 'a'), 1)).status.error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
  }
  EXPECT_LT(MetricSum(daemon.daemon().MetricsText(), "invar_open_request_bytes"), 1 << 20);
  std::future<grpc::Status> second = std::async(std::launch::async, call);
  daemon.AwaitCallsOpen(2);
  gate.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
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
  EXPECT_TRUE(daemon.daemon().WaitIdle(std::chrono::seconds(20))) << "the call stays open for ever";
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
