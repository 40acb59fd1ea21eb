// Frames of a run elsewhere over the wire: they come back as they went, and bytes that were changed on the way never
// become a token.
#include "server/wire/translate_verify.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/remote_run.h"

namespace invar::server {
namespace {

engine::VerifyOpenFrame Open() {
  engine::VerifyOpenFrame open{
      .identity = {},
      .scope = {.tenant = "a", .salt = "s", .provenance = {}},
      .prompt = {TokenId(3), TokenId(4), TokenId(5)},
      .sampling = {.temperature = 0.5F,
                   .top_p = 0.9F,
                   .top_k = 7,
                   .min_p = 0.1F,
                   .repetition_penalty = 1.2F,
                   .presence_penalty = 0.3F,
                   .frequency_penalty = 0.4F,
                   .seed = 0xFFFF'FFFF'FFFF'FFF1,
                   .output_index = 2,
                   .logit_bias = {{1, 2.5F}, {9, -1.0F}},
                   .allowed_token_ids = {TokenId(1), TokenId(9)}},
      .stopping = {.max_tokens = 11, .min_tokens = 2, .stop = {}, .stop_token_ids = {TokenId(8)}},
      .output = {}};
  open.identity.fingerprint = "f";
  open.identity.numerics_id = "n";
  open.identity.page_bytes = 100;
  open.output.logprobs = 0;  // Asked for, without alternatives: not the same as not asked for.
  open.output.logprob_bits = true;
  return open;
}

TEST(TranslateVerify, WhatTheConsumerSaysComesAsItWent) {
  const engine::VerifyOpenFrame open = Open();
  OpenExtras extras;
  engine::RunConsumerFrame back;
  ASSERT_TRUE(
      ToFrame(ToMessage(engine::RunConsumerFrame(open), {.request_id = "r", .timeout_ms = 5}), back, extras).ok());
  const auto& opened = std::get<engine::VerifyOpenFrame>(back);
  EXPECT_EQ(opened.identity, open.identity);
  EXPECT_EQ(opened.scope, open.scope);
  EXPECT_EQ(opened.prompt, open.prompt);
  EXPECT_EQ(opened.sampling.temperature, 0.5F);
  EXPECT_EQ(opened.sampling.top_p, 0.9F);
  EXPECT_EQ(opened.sampling.top_k, 7);
  EXPECT_EQ(opened.sampling.min_p, 0.1F);
  EXPECT_EQ(opened.sampling.repetition_penalty, 1.2F);
  EXPECT_EQ(opened.sampling.presence_penalty, 0.3F);
  EXPECT_EQ(opened.sampling.frequency_penalty, 0.4F);
  EXPECT_EQ(opened.sampling.seed, open.sampling.seed);
  EXPECT_EQ(opened.sampling.output_index, 2U);
  EXPECT_EQ(opened.sampling.logit_bias, open.sampling.logit_bias);
  EXPECT_EQ(opened.sampling.allowed_token_ids, open.sampling.allowed_token_ids);
  EXPECT_EQ(opened.stopping.max_tokens, 11);
  EXPECT_EQ(opened.stopping.min_tokens, 2);
  EXPECT_EQ(opened.stopping.stop_token_ids, open.stopping.stop_token_ids);
  EXPECT_EQ(opened.output.logprobs, 0);
  EXPECT_TRUE(opened.output.logprob_bits);
  EXPECT_EQ(extras.request_id, "r");
  EXPECT_EQ(extras.timeout_ms, 5);

  const engine::DraftFrame draft{.first = 4, .tokens = {TokenId(6), TokenId(7)}};
  engine::RunConsumerFrame next;
  ASSERT_TRUE(ToFrame(ToMessage(engine::RunConsumerFrame(draft)), next, extras).ok());
  EXPECT_EQ(std::get<engine::DraftFrame>(next).first, 4);
  EXPECT_EQ(std::get<engine::DraftFrame>(next).tokens, draft.tokens);
  ASSERT_TRUE(ToFrame(ToMessage(engine::RunConsumerFrame(engine::HeartbeatFrame{})), next, extras).ok());
  EXPECT_TRUE(std::holds_alternative<engine::HeartbeatFrame>(next));
  EXPECT_EQ(ToFrame(v1::VerifyRequest(), next, extras).field(), "frame");
  EXPECT_EQ(ToFrame(v1::VerifyResponse()).status().field(), "frame");
}

TEST(TranslateVerify, WhatIsTooLongIsRefusedByItsField) {
  const auto refused = [](const auto& change) {
    v1::VerifyRequest message;
    change(*message.mutable_open());
    OpenExtras extras;
    engine::RunConsumerFrame frame;
    const Status status = ToFrame(message, frame, extras);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().starts_with(status.field() + ": ")) << status.message();
    return status.field();
  };
  const std::string text(1025, 'a');
  using Proto = v1::VerifyRequest::Open;
  EXPECT_EQ(refused([&](Proto& open) { open.set_tenant(text); }), "open.tenant");
  EXPECT_EQ(refused([&](Proto& open) { open.set_request_id(text); }), "open.request_id");
  EXPECT_EQ(refused([&](Proto& open) { open.mutable_identity()->set_fingerprint(text); }), "open.identity.fingerprint");
}

std::vector<engine::VerifiedFrame> Verified() {
  std::vector<engine::VerifiedFrame> frames;
  for (int32_t first = 0; first < 6; first += 2) {
    engine::VerifiedFrame frame{.first = first};
    for (int32_t i = first; i < first + 2; ++i) {
      frame.tokens.emplace_back(20 + i);
      frame.logprobs.push_back({.token = TokenId(20 + i),
                                .logit = 1.5F * static_cast<float>(i),
                                .logprob = -0.25F,
                                .top = {{TokenId(i), -0.5F}}});
    }
    frame.crc32c = ChecksumOf(frame);
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::vector<engine::RemoteRun::Token> All(engine::RemoteRun& run) {
  std::vector<engine::RemoteRun::Token> all;
  while (std::optional<engine::RemoteRun::Token> token = run.Next()) all.push_back(*std::move(token));
  return all;
}
engine::RemoteRun NewRun() {
  engine::VerifyOpenFrame open = Open();
  open.output.logprobs = 1;
  return engine::RemoteRun(std::move(open), {.usable_ids = 60, .wake = [] {}});
}
bool AreEqual(const engine::RemoteRun::Token& a, const engine::RemoteRun::Token& b) {
  return a.id == b.id && a.logprob->token == b.logprob->token && a.logprob->logit == b.logprob->logit &&
         a.logprob->logprob == b.logprob->logprob && a.logprob->top.size() == b.logprob->top.size() &&
         a.logprob->top[0].token == b.logprob->top[0].token && a.logprob->top[0].logprob == b.logprob->top[0].logprob;
}

// Of any message, any bits: what has come is what was said, as far as it has come.
TEST(TranslateVerify, BytesThatWereChangedNeverBecomeAToken) {
  std::vector<std::string> said;
  engine::RemoteRun whole = NewRun();
  for (const engine::VerifiedFrame& frame : Verified()) {
    said.push_back(ToMessage(engine::RunProducerFrame(frame)).SerializeAsString());
    v1::VerifyResponse message;
    ASSERT_TRUE(message.ParseFromString(said.back()));
    ASSERT_TRUE(whole.Take(std::get<engine::VerifiedFrame>(ToFrame(message).value())).ok());
  }
  const std::vector<engine::RemoteRun::Token> right = All(whole);
  ASSERT_EQ(right.size(), 6U);
  std::mt19937_64 random(1);
  const google::protobuf::LogSilencer quiet;
  int refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    engine::RemoteRun run = NewRun();
    const size_t at = random() % said.size();
    for (size_t m = 0; m < said.size(); ++m) {
      std::string bytes = said[m];
      if (m == at) {
        for (uint64_t flips = 1 + random() % 3; flips > 0; --flips)
          bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
        if (random() % 8 == 0) bytes.resize(random() % bytes.size());
      }
      v1::VerifyResponse message;
      if (!message.ParseFromString(bytes)) break;
      auto frame = ToFrame(message);
      auto* const verified = frame.ok() ? std::get_if<engine::VerifiedFrame>(&*frame) : nullptr;
      if (verified == nullptr || !run.Take(std::move(*verified)).ok()) break;
    }
    const std::vector<engine::RemoteRun::Token> came = All(run);
    refused += came.size() < right.size() ? 1 : 0;
    ASSERT_LE(came.size(), right.size());
    for (size_t t = 0; t < came.size(); ++t) ASSERT_TRUE(AreEqual(came[t], right[t])) << i << ", token " << t;
  }
  EXPECT_GT(refused, 29'000);
}

}  // namespace
}  // namespace invar::server
