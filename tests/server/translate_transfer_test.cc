// Frames of a transfer over the wire: they come back as they went, and bytes that were changed on the way never become
// a prefix.
#include "server/wire/translate_transfer.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "engine/prefix_receiver.h"
#include "engine/prefix_sender.h"
#include "kernels/numerics.h"

namespace invar::server {
namespace {

engine::TransferIdentity Identity() {
  return {.fingerprint = "f",
          .numerics_id = "n",
          .tokenizer = "t",
          .mtp = true,
          .attention_layers = 2,
          .recurrent_layers = 3,
          .page_tokens = kernels::kPageTokens,
          .page_bytes = 100,
          .state_bytes = 70,
          .layers = {{.page = 60}, {.state = 70}, {.page = 40}},
          .profile = {}};
}

// All that a producer says to one who asks for 130 tokens, over the wire as bytes.
std::vector<std::string> Said(const engine::OpenFrame& open, const uint64_t epoch) {
  engine::PrefixSender sender(Identity(), {.tokens_max = 1000, .salt_bytes_max = 10, .chunk_bytes = 64});
  EXPECT_TRUE(sender.Open(open).ok());
  cache::PrefixImage image{.first_page = 0, .end = 130, .pages = {}, .state = std::vector<std::byte>(70)};
  image.pages.resize(3, std::vector<std::byte>(100));
  std::mt19937 random(1);
  for (auto& page : image.pages) {
    for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  }
  sender.Offer(std::move(image));
  std::vector<std::string> said;
  while (std::optional<engine::ProducerFrame> frame = sender.Next()) {
    said.push_back(ToMessage(*std::move(frame)).SerializeAsString());
    if (said.size() == 1) {
      EXPECT_TRUE(sender.On(engine::GrantFrame{.epoch = epoch, .credit_bytes = 1 << 20}).ok());
    }
  }
  return said;
}

engine::PrefixReceiver Receiver(const uint64_t epoch) {
  return engine::PrefixReceiver({.identity = Identity(), .epoch = epoch, .credit_bytes = 1 << 20, .bytes_max = 1 << 20},
                                {.tokens = std::vector<TokenId>(130, TokenId(7))});
}

TEST(TranslateTransfer, WhatTheConsumerSaysComesAsItWent) {
  engine::PrefixReceiver receiver = Receiver(1);
  engine::OpenFrame open = receiver.Open();
  open.scope = {.tenant = "a", .salt = "s", .provenance = {}};
  open.have_kv = 64;
  open.have_state = 3;
  open.view = {.compressor = "streaming", .kv_budget = 0.5F};
  OpenExtras extras;
  const auto back = ToFrame(ToMessage(open, {.request_id = "r", .timeout_ms = 5}), &extras).value();
  const auto& opened = std::get<engine::OpenFrame>(back);
  EXPECT_EQ(opened.identity, open.identity);
  EXPECT_EQ(opened.scope, open.scope);
  EXPECT_EQ(opened.tokens, open.tokens);
  EXPECT_EQ(opened.have_kv, 64);
  EXPECT_EQ(opened.have_state, 3);
  EXPECT_EQ(opened.view.compressor, "streaming");
  EXPECT_EQ(opened.view.kv_budget, 0.5F);
  EXPECT_EQ(extras.request_id, "r");
  EXPECT_EQ(extras.timeout_ms, 5);
  EXPECT_EQ(std::get<engine::GrantFrame>(ToFrame(ToMessage(engine::GrantFrame{3, 4})).value()).credit_bytes, 4);
  EXPECT_EQ(std::get<engine::CreditFrame>(ToFrame(ToMessage(engine::CreditFrame{3, 4})).value()).epoch, 3);
  EXPECT_EQ(std::get<engine::AckFrame>(ToFrame(ToMessage(engine::AckFrame{9})).value()).epoch, 9);
  for (size_t i = 0; i < engine::kAbortReasons; ++i) {
    const engine::AbortFrame abort{.epoch = 8, .reason = static_cast<engine::AbortReason>(i), .why = "why"};
    v1::ConsumerMessage message = ToMessage(abort);
    EXPECT_EQ(message.abort().reason(), static_cast<int>(i) + 1);
    const auto told = std::get<engine::AbortFrame>(ToFrame(message).value());
    EXPECT_EQ(told.epoch, 8U);
    EXPECT_EQ(told.reason, abort.reason);
    EXPECT_EQ(told.why, "why");
    for (const int unknown : {std::numeric_limits<int>::min(), -1, 0, 6}) {
      message.mutable_abort()->set_reason(static_cast<v1::AbortReason>(unknown));
      EXPECT_EQ(ToFrame(message).status().field(), "abort.reason");
    }
  }
  v1::ProducerMessage answer = ToMessage(engine::ProducerFrame(engine::AbortAckFrame{8}));
  EXPECT_EQ(std::get<engine::AbortAckFrame>(ToFrame(answer).value()).epoch, 8U);
  const engine::ConsumerFrame beat = engine::HeartbeatFrame{};
  EXPECT_EQ(ToFrame(ToMessage(beat)).value().index(), beat.index());
  EXPECT_FALSE(ToFrame(v1::ConsumerMessage()).ok());
}

TEST(TranslateTransfer, AQuoteHasNumbersThatCanBeReckonedWith) {
  v1::QuoteResponse said;
  said.set_as_is(true);
  said.set_cached_tokens(128);
  said.set_tokens_per_second(500);
  said.set_queue_seconds(0.25);
  said.set_step_tokens(256);
  const engine::ProducerQuote quote = QuoteOf(said, 130);
  EXPECT_TRUE(quote.sends_as_is);
  EXPECT_FALSE(quote.sends_codes);
  EXPECT_EQ(quote.cached, 128);
  EXPECT_EQ(quote.tokens_per_second, 500);
  EXPECT_EQ(quote.queue_seconds, 0.25);
  EXPECT_EQ(quote.step_tokens, 256);

  said.set_cached_tokens(131);
  EXPECT_EQ(QuoteOf(said, 130).cached, 130);
  said.set_cached_tokens(std::numeric_limits<int32_t>::min());
  said.set_step_tokens(-1);
  for (const double number : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()}) {
    said.set_tokens_per_second(number);
    said.set_queue_seconds(number);
    const engine::ProducerQuote sane = QuoteOf(said, 130);
    EXPECT_EQ(sane.cached, 0);
    EXPECT_EQ(sane.tokens_per_second, 0) << number;
    EXPECT_EQ(sane.queue_seconds, 0) << number;
    EXPECT_EQ(sane.step_tokens, engine::ProducerQuote().step_tokens);
  }
}

TEST(TranslateTransfer, WhatIsTooLongIsRefusedByItsField) {
  const auto refused = [](const auto& change) {
    v1::ConsumerMessage message;
    change(*message.mutable_open());
    const Status status = ToFrame(message).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().starts_with(status.field() + ": ")) << status.message();
    return status.field();
  };
  const std::string text(1025, 'a');
  using Open = v1::ConsumerMessage::Open;
  EXPECT_EQ(refused([&](Open& open) { open.set_tenant(text); }), "open.tenant");
  EXPECT_EQ(refused([&](Open& open) { open.set_provenance(text); }), "open.provenance");
  EXPECT_EQ(refused([&](Open& open) { open.set_point(text); }), "open.point");
  EXPECT_EQ(refused([&](Open& open) { open.set_request_id(text); }), "open.request_id");
  EXPECT_EQ(refused([&](Open& open) { open.set_view_compressor(text); }), "open.view_compressor");
  EXPECT_EQ(refused([&](Open& open) { open.mutable_identity()->set_fingerprint(text); }), "open.identity.fingerprint");
  EXPECT_EQ(refused([&](Open& open) { open.mutable_identity()->set_numerics_id(text); }), "open.identity.numerics_id");
  EXPECT_EQ(refused([&](Open& open) { open.mutable_identity()->set_tokenizer(text); }), "open.identity.tokenizer");
  EXPECT_EQ(refused([&](Open& open) { open.mutable_identity()->set_profile(text); }), "open.identity.profile");
  EXPECT_EQ(ToFrame(v1::ConsumerMessage()).status().field(), "frame");
}

// What the state machine refuses of a message, by the names of the wire.
TEST(TranslateTransfer, AnOpenThatCannotBeIsRefusedByItsField) {
  const auto refused = [](const auto& change) {
    engine::OpenFrame open{.identity = Identity(), .scope = {}, .tokens = std::vector<TokenId>(130, TokenId(7))};
    change(open);
    engine::PrefixSender sender(Identity(), {.tokens_max = 1000, .salt_bytes_max = 10});
    const Status status = sender.Open(open);
    EXPECT_TRUE(status.message().starts_with(status.field() + ": ")) << status.message();
    return status.field();
  };
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.tokens.clear(); }), "open.tokens");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.tokens.resize(1001); }), "open.tokens");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.scope.salt = "eleven bytes"; }), "open.salt");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.have_kv = -1; }), "open.have_kv_tokens");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.have_state = 130; }), "open.have_state_tokens");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.scope.provenance = "int8"; }), "open.provenance");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.view.compressor = "no such"; }), "open.view_compressor");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.view.compressor = "snapkv"; }), "open.view_compressor");
  EXPECT_EQ(refused([](engine::OpenFrame& open) { open.view.compressor = "streaming"; }), "open.view_kv_budget");
  EXPECT_EQ(refused([](engine::OpenFrame& open) {
              open.view.compressor = "kivi4";
              open.have_kv = 64;
            }),
            "open.have_kv_tokens");
}

TEST(TranslateTransfer, WhatTheProducerSaysComesAsItWent) {
  engine::PrefixReceiver receiver = Receiver(5);
  for (const std::string& bytes : Said(receiver.Open(), 5)) {
    v1::ProducerMessage message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    receiver.On(ToFrame(message).value());
  }
  EXPECT_TRUE(receiver.is_complete());
  v1::ProducerMessage nothing;
  EXPECT_FALSE(ToFrame(nothing).ok());
}

// A view of two layers, with the states: in its place, where it was asked for, and of the sizes that were said.
TEST(TranslateTransfer, AViewComesAsItWentAndNothingElseInItsPlace) {
  const engine::PrefixView view{
      .end = 130,
      .layers = {std::vector<std::byte>(150, std::byte{1}), std::vector<std::byte>(9, std::byte{2})},
      .state = std::vector<std::byte>(70, std::byte{3})};
  for (const bool wants : {true, false}) {
    engine::PrefixWant want{.tokens = std::vector<TokenId>(130, TokenId(7))};
    engine::PrefixSender sender(Identity(), {.tokens_max = 1000, .salt_bytes_max = 10, .chunk_bytes = 64});
    engine::OpenFrame open{.identity = Identity(), .scope = {}, .tokens = want.tokens, .view = {.compressor = "kivi4"}};
    ASSERT_TRUE(sender.Open(open).ok());
    if (wants) want.view.compressor = "kivi4";
    engine::PrefixReceiver receiver(
        {.identity = Identity(), .epoch = 5, .credit_bytes = 1 << 20, .bytes_max = 150 + 9 + 70}, want);
    sender.Offer(engine::PrefixPart(view));
    while (std::optional<engine::ProducerFrame> frame = sender.Next()) {
      v1::ProducerMessage message = ToMessage(*std::move(frame));
      for (const engine::ConsumerFrame& answer : receiver.On(ToFrame(message).value())) {
        ASSERT_TRUE(sender.On(answer).ok());
      }
    }
    EXPECT_EQ(receiver.is_complete(), wants);
    const engine::FetchedPrefix fetched = receiver.Take();
    if (!wants) {
      EXPECT_EQ(fetched.fault, engine::TransferFault::kRefused);
      continue;
    }
    EXPECT_TRUE(sender.acknowledged());
    ASSERT_TRUE(fetched.view.has_value());
    EXPECT_EQ(fetched.view->end, 130);
    EXPECT_EQ(fetched.view->layers, view.layers);
    EXPECT_EQ(fetched.view->state, view.state);
  }
}

TEST(TranslateTransfer, TakesNoMemoryForAViewByAManifestThatLies) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{}, {10}, {10, 10, 10}, {10, -1}, {10, int64_t{1} << 62}, {1000, 1000}}) {
    engine::PrefixReceiver receiver({.identity = Identity(), .epoch = 5, .credit_bytes = 1 << 20, .bytes_max = 1500},
                                    {.tokens = std::vector<TokenId>(130, TokenId(7)), .view = {.compressor = "kivi4"}});
    receiver.On(engine::ManifestFrame{.identity = Identity(),
                                      .end = 130,
                                      .chunk_bytes = 64,
                                      .codec = engine::ChunkCodec::kView,
                                      .view_bytes = sizes});
    ASSERT_TRUE(receiver.has_ended());
    EXPECT_TRUE(receiver.Take().fault.has_value());
  }
}

// Of any message, any bits: what is a prefix at the end is the one that was sent.
TEST(TranslateTransfer, BytesThatWereChangedNeverBecomeAPrefix) {
  engine::PrefixReceiver whole = Receiver(5);
  const std::vector<std::string> said = Said(whole.Open(), 5);
  for (const std::string& bytes : said) {
    v1::ProducerMessage message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    whole.On(ToFrame(message).value());
  }
  const engine::FetchedPrefix sent = whole.Take();
  ASSERT_FALSE(sent.fault.has_value());
  std::mt19937_64 random(1);
  const google::protobuf::LogSilencer quiet;  // It says of every field what is wrong with it.
  int refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    engine::PrefixReceiver receiver = Receiver(5);
    const size_t at = random() % said.size();
    for (size_t m = 0; m < said.size() && !receiver.has_ended(); ++m) {
      std::string bytes = said[m];
      if (m == at) {
        for (uint64_t flips = 1 + random() % 3; flips > 0; --flips)
          bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
        if (random() % 8 == 0) bytes.resize(random() % bytes.size());
      }
      v1::ProducerMessage message;
      if (!message.ParseFromString(bytes)) break;
      const auto frame = ToFrame(message);
      if (!frame.ok()) break;
      receiver.On(*frame);
    }
    if (!receiver.is_complete()) {
      ++refused;
      continue;
    }
    // A field that nobody reads may have come of it.
    const engine::FetchedPrefix fetched = receiver.Take();
    ASSERT_EQ(fetched.image.end, sent.image.end);
    ASSERT_EQ(fetched.image.pages, sent.image.pages);
    ASSERT_EQ(fetched.image.state, sent.image.state);
  }
  EXPECT_GT(refused, 29'000);
}

}  // namespace
}  // namespace invar::server
