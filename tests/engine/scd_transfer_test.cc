// SCD between two engines of the trained pair: what a consumer makes of codes that came in chunks while the prompt ran
// is what the library makes of a whole prefix, such answers never mix with exact ones, and every fault ends in the bits
// of a local run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/transfer/scd_payload.h"
#include "engine/transfer/scd_profile_file.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/engine/transfer_rig.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_pair.h"
#include "tools/calibrate/party.h"

namespace invar::engine {
namespace {

using testing::AssetFolder;
using testing::PairTokens;
using testing::TinyModel;

constexpr int32_t kPrefillChunk = 48;

TinyModel Load(const std::string& name) {
  auto loaded = testing::LoadTinyModel(AssetFolder(name), {.backend = "cpu",
                                                           .isa = {},
                                                           .activations = kernels::DType::kBf16,
                                                           .threads = 1,
                                                           .max_batch_tokens = 64,
                                                           .max_logits_rows = 8,
                                                           .mtp_head = false});
  Check(loaded.ok(), "a model of the tree loads", loaded.status().message());
  return *std::move(loaded);
}

Request Prompt(const int32_t tokens, const size_t from = 0) {
  Request request;
  request.prompt = {PairTokens().begin() + static_cast<int64_t>(from),
                    PairTokens().begin() + static_cast<int64_t>(from) + tokens};
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = 3;
  request.output.logprobs = 2;
  return request;
}
Request Coded(Request request) {
  request.transfer = {.allowed = true, .coded = true};
  return request;
}

class ScdTransfer : public ::testing::Test {
 protected:
  struct Pair {
    TransferIdentity producer, consumer;
    ScdProfiles sends, takes;
  };
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder;
    testing::CalibrateTinyPair(folder_->path() + "/pair.scd");
    testing::CalibrateTinyPair(folder_->path() + "/other.scd", 300);
    pair_ = new Pair;
    // The tokenizers of the two are one file, whose digest the profile has.
    const auto scd = LoadNamedScd(folder_->path() + "/pair.scd");
    Check(scd.ok(), "the profile is read", scd.status().message());
    const std::string tokenizer = scd->profile.producer.tokenizer;
    for (const bool sends : {true, false}) {
      const TinyModel tiny = Load(sends ? "tiny-hybrid" : "tiny-hybrid-ft");
      (sends ? pair_->producer : pair_->consumer) = IdentityOf(tiny.model->spec(), tokenizer);
      auto profiles = ScdProfiles::Load(folder_->path() + "/pair.scd", tiny.model->spec(), tokenizer);
      Check(profiles.ok(), "the profile is of the pair", profiles.status().message());
      (sends ? pair_->sends : pair_->takes) = *std::move(profiles);
    }
  }
  static void TearDownTestSuite() {
    delete pair_;
    delete folder_;
  }

  ScdTransfer() { Open({}); }

  // `point`: empty: the best of the profile.
  void Open(const std::string& point, const int32_t producer_pages = 64, const int32_t tokens_min = 1) {
    consumer_.reset();
    producer_.reset();
    source_ = std::make_unique<DirectSource>(DirectSource::Options{.chunk_bytes = 2048});
    EngineOptions options{.max_batch_tokens = 64,
                          .max_logits_rows = 8,
                          .max_running = 4,
                          .max_pages = producer_pages,
                          .prefill_chunk_tokens = kPrefillChunk,
                          .check_integrity_every_step = true,
                          .poison_freed_memory = true};
    producer_tiny_ = Load("tiny-hybrid");
    producer_ = Engine::Create(options, std::move(producer_tiny_.model), nullptr, clock_).value();
    options.max_pages = 64;
    options.transfer.profile = pair_->takes.ToTake();
    options.transfer.point = point;
    options.transfer.tokens_min = tokens_min;
    consumer_tiny_ = Load("tiny-hybrid-ft");
    consumer_ = Engine::Create(options, std::move(consumer_tiny_.model), nullptr, clock_, {}, source_.get()).value();
    source_->Serve(*producer_);
    source_->profiles = &pair_->sends;
    source_->producer_identity = pair_->producer;
    source_->consumer_identity = pair_->consumer;
  }
  void Step() {
    consumer_->RunOneStep();
    source_->Work();
    clock_.Advance(1'000'000);
  }
  std::shared_ptr<Collector> Run(const Request& request) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(consumer_->Submit(request, events).ok());
    for (int steps = 0; events->ends() == 0 && steps < 100'000; ++steps) Step();
    EXPECT_TRUE(events->finished().has_value());
    return events;
  }
  std::vector<uint32_t> Cold(Request request) {
    request.transfer = {};
    request.cache.bypass_read = request.cache.bypass_write = true;
    return BitsOf(*Run(request));
  }
  TransferStats stats() const { return consumer_->Stats().transfer; }
  void ExpectNothingHeld() { invar::engine::ExpectNothingHeld(*consumer_, *producer_, *source_); }
  static const ScdProfile& profile() { return pair_->takes.ToTake()->profile; }

  static testing::TemporaryFolder* folder_;
  static Pair* pair_;
  SimulatedClock clock_;
  TinyModel producer_tiny_, consumer_tiny_;
  std::unique_ptr<DirectSource> source_;
  std::unique_ptr<Engine> producer_;
  std::unique_ptr<Engine> consumer_;
};
testing::TemporaryFolder* ScdTransfer::folder_ = nullptr;
ScdTransfer::Pair* ScdTransfer::pair_ = nullptr;

// The logits after `tokens` as the library has them, the last token being run on a prefix that crossed in one piece.
std::vector<float> LogitsOf(const ScdProfile& profile, const ScdPoint& point, const std::vector<TokenId>& tokens) {
  const TinyModel from_tiny = Load("tiny-hybrid");
  const TinyModel to_tiny = Load("tiny-hybrid-ft");
  const auto limits = calibrate::PartyLimits{.checkpoints = 1, .tokens_max = 400, .rows_max = 8};
  const auto from = calibrate::Party::Make(*from_tiny.model, limits);
  const auto to = calibrate::Party::Make(*to_tiny.model, limits);
  Check(from.ok() && to.ok(), "both models are of the kind");
  const std::span<const TokenId> prefix = std::span(tokens).first(tokens.size() - 1);
  int32_t tail = 0;
  for (const ScdLayerPlan& plan : point.layers) tail = std::max(tail, plan.tail);
  const auto after = static_cast<int32_t>(prefix.size()) - tail;
  std::vector<models::StateCopy> copies;
  if (after > 0) copies.push_back({.after = Position(after), .to = (*from)->checkpoint(0)});
  calibrate::LayerTap tap((*from)->spec());
  (*from)->Read(0, prefix, 0, {.layers = &tap, .checkpoints = copies});
  const ScdProducerPrefix sent{.sequence = (*from)->sequence(0),
                               .tokens = std::ssize(prefix),
                               .inputs = tap.inputs,
                               .residuals = tap.residuals,
                               .state_at = [&](const int64_t position) {
                                 return position == std::ssize(prefix) ? SlotId(0) : (*from)->checkpoint(0);
                               }};
  for (size_t layer = 0; layer < point.layers.size(); ++layer) {
    std::vector<std::byte> payload;
    EncodeScdLayer(profile, point, layer, sent, payload);
    const Status made = DecodeScdLayer(profile, point, layer, payload,
                                       {.sequence = (*to)->sequence(0), .tokens = prefix, .rows_max = 64});
    Check(made.ok(), "what was encoded is decoded", made.message());
  }
  std::vector<float> logits;
  (*to)->Read(0, std::span(tokens).last(1), std::ssize(prefix),
              {.on_row = [&](int64_t, const std::span<const float> row) { logits.assign(row.begin(), row.end()); }});
  return logits;
}

// Sums of a row of codes may come in another order where rows come in other groups, which may move a code by one step:
// answers are then as close as those steps are small. What is not coded is equal.
TEST_F(ScdTransfer, WhatComesInChunksIsWhatTheLibraryMakesOfAWholePrefix) {
  for (const ScdPoint& point : profile().points) {
    Open(point.name);
    const bool copies = ModesOf(point) == "raw" || ModesOf(point) == "drop";
    size_t from = 0;
    for (const int32_t tokens : {3, 40, 64, 65, 66, 130, 300}) {
      Request request = Coded(Prompt(tokens, from += 7));
      request.cache.salt = std::to_string(tokens);  // Nothing of the ones before.
      const auto events = Run(request);
      const PrefixReuse& reuse = events->finished()->reuse;
      EXPECT_EQ(reuse.transferred_tokens, tokens - 1) << point.name;
      EXPECT_EQ(reuse.computed_tokens, 1) << point.name;
      EXPECT_EQ(reuse.transfer_mode, ModesOf(point));
      EXPECT_EQ(reuse.transfer_bytes, ScdPayloadBytes(profile().shape, point, tokens - 1)) << point.name;
      EXPECT_NE(reuse.made_of_codes.find(ToWords(point)), std::string::npos) << reuse.made_of_codes;
      const std::vector<float> wanted = LogitsOf(profile(), point, request.prompt);
      const TokenLogprob& first = events->logprobs().front();
      const float difference = std::abs(first.logit - wanted[static_cast<size_t>(first.token.value())]);
      EXPECT_LE(difference, copies ? 0.0F : 0.03F) << point.name << " of " << tokens;
    }
    ExpectNothingHeld();
  }
}

TEST_F(ScdTransfer, WhatIsMadeOfCodesMeetsNothingExact) {
  Open({}, 64, 100);
  const Request prompt = Prompt(200);
  const std::vector<uint32_t> cold = Cold(prompt);
  const auto coded = Run(Coded(prompt));
  EXPECT_NE(BitsOf(*coded), cold) << "the test would see nothing";
  EXPECT_EQ(stats().coded_landed, 1);
  EXPECT_EQ(stats().coded_tokens, 199);

  const auto exact = Run(prompt);
  EXPECT_EQ(BitsOf(*exact), cold);
  EXPECT_EQ(exact->finished()->reuse.made_of_codes, "");
  EXPECT_EQ(exact->finished()->reuse.computed_tokens, 200) << "nothing of the codes is used";
  Request other = Prompt(200);
  other.cache.salt = "before it is cached exactly";
  Run(Coded(other));
  Request lossless = other;
  lossless.speculation.drafter = "ngram";
  EXPECT_EQ(BitsOf(*Run(lossless)), cold);

  // A chat that goes on: what came in codes is gone on from, here, and said.
  Request follow = Coded(Prompt(200));
  follow.cache.salt = "chat";
  const auto first = Run(follow);
  follow.prompt.insert(follow.prompt.end(), first->tokens().begin(), first->tokens().end());
  for (const TokenId token : Prompt(30, 500).prompt) follow.prompt.push_back(token);
  const int64_t begun = stats().begun;
  const auto second = Run(follow);
  EXPECT_EQ(stats().begun, begun);
  EXPECT_GE(second->finished()->reuse.state_match_tokens, 199);
  EXPECT_EQ(second->finished()->reuse.transferred_tokens, 0);
  EXPECT_NE(second->finished()->reuse.made_of_codes, "");
  ExpectNothingHeld();
}

TEST_F(ScdTransfer, CodesGoOutWhileThePromptStillRuns) {
  const auto events = std::make_shared<Collector>();
  ASSERT_TRUE(consumer_->Submit(Coded(Prompt(1100)), events).ok());
  int before_the_end = 0;
  for (int steps = 0; events->ends() == 0 && steps < 10'000; ++steps) {
    Step();
    if (producer_->Stats().running > 0) before_the_end = source_->frames_sent();
  }
  EXPECT_EQ(events->finished()->reuse.transferred_tokens, 1099);
  EXPECT_GE(before_the_end, 5) << "four pieces of 256 tokens, and the manifest";
}

TEST_F(ScdTransfer, APreemptedProducerSendsNothingTwice) {
  Open({}, 8);
  const auto cold = Run(Coded(Prompt(300)));
  Open({}, 8);
  const auto urgent = std::make_shared<Collector>();
  const auto events = std::make_shared<Collector>();
  ASSERT_TRUE(consumer_->Submit(Coded(Prompt(300)), events).ok());
  for (int steps = 0; steps < 4; ++steps) Step();
  Request first = Prompt(300, 400);
  first.priority = 1;
  first.stopping.max_tokens = 100;
  ASSERT_TRUE(producer_->Submit(first, urgent).ok());
  for (int steps = 0; (events->ends() == 0 || urgent->ends() == 0) && steps < 10'000; ++steps) Step();
  EXPECT_GT(producer_->Stats().preemptions, 0);
  EXPECT_EQ(events->finished()->reuse.transferred_tokens, 299);
  EXPECT_EQ(BitsOf(*events), BitsOf(*cold));
}

TEST_F(ScdTransfer, OneThatIsCancelledWhileItIsMadeLeavesNothing) {
  for (int steps = 0; steps < 40; ++steps) {
    const auto events = std::make_shared<Collector>();
    const auto id = consumer_->Submit(Coded(Prompt(260, static_cast<size_t>(steps))), events);
    ASSERT_TRUE(id.ok());
    for (int i = 0; i < steps; ++i) Step();
    consumer_->Cancel(*id);
    for (int i = 0; events->ends() == 0 && i < 100; ++i) Step();
    while (source_->waiting() > 0) Step();
    ExpectNothingHeld();
  }
  EXPECT_GT(stats().cancelled, 10);
}

// --- Mismatches and faults ---

TEST_F(ScdTransfer, MismatchesAreRefusedByField) {
  const auto why = [&](const auto& change) {
    TransferIdentity asks = pair_->consumer;
    asks.profile = pair_->takes.ToTake()->digest;
    OpenFrame open{.identity = asks, .scope = {}, .tokens = Prompt(9).prompt, .point = profile().points[0].name};
    change(open);
    PrefixSender sender(pair_->producer, {.tokens_max = 100, .salt_bytes_max = 10}, &pair_->sends);
    const Status opened = sender.Open(open);
    EXPECT_EQ(sender.coded().has_value(), opened.ok());
    EXPECT_TRUE(opened.ok() || opened.code() == StatusCode::kFailedPrecondition) << opened.message();
    return opened.message();
  };
  EXPECT_EQ(why([](OpenFrame&) {}), "");
  const auto has = [&](const std::string& word, const auto& change) {
    const std::string message = why(change);
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  has("profile differs: 'abc'", [](OpenFrame& o) { o.identity.profile = "abc"; });
  has("fingerprint differs", [](OpenFrame& o) { o.identity.profile.clear(); });
  has("fingerprint differs: the profile's consumer", [](OpenFrame& o) { o.identity.fingerprint = "other"; });
  has("numerics_id differs", [](OpenFrame& o) { o.identity.numerics_id = "other"; });
  has("tokenizer differs", [](OpenFrame& o) { o.identity.tokenizer = "other"; });
  has("protocol differs", [](OpenFrame& o) { ++o.identity.protocol; });
  has("attention_layers differs", [](OpenFrame& o) { ++o.identity.attention_layers; });
  has("no point 'best'", [](OpenFrame& o) { o.point = "best"; });
}

TEST_F(ScdTransfer, AProfileOfOtherModelsEndsTheStart) {
  const auto load = [&](const std::string& path, const std::string& model, const std::string& tokenizer) {
    const TinyModel tiny = Load(model);
    const auto loaded = ScdProfiles::Load(path, tiny.model->spec(), tokenizer);
    return loaded.ok() ? std::string() : loaded.status().message();
  };
  const std::string path = folder_->path() + "/pair.scd";
  const std::string tokenizer = profile().producer.tokenizer;
  EXPECT_EQ(load(path, "tiny-hybrid", tokenizer), "");
  EXPECT_EQ(load(" " + path + " ,", "tiny-hybrid-ft", tokenizer), "");
  EXPECT_NE(load(path, "tiny-hybrid", "abc").find("producer.tokenizer: wanted " + tokenizer + ", found abc"),
            std::string::npos);
  EXPECT_NE(load(path + "," + folder_->path() + "/other.scd", "tiny-hybrid-ft", tokenizer).find("give one"),
            std::string::npos);
  EXPECT_EQ(load(path + "," + folder_->path() + "/other.scd", "tiny-hybrid", tokenizer), "")
      << "a producer serves several";
  const auto golden = testing::LoadTinyModel(testing::GoldenFolder("qwen3_5"), {});
  ASSERT_TRUE(golden.ok());
  const auto other = ScdProfiles::Load(path, golden->model->spec(), tokenizer);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("transfer.profile: "), std::string::npos) << other.status().message();
}

TEST_F(ScdTransfer, EveryFaultAtEveryMomentEndsInTheBitsOfALocalRun) {
  Run(Coded(Prompt(200, 1)));
  const int frames = source_->frames_sent();
  ASSERT_GT(frames, 4);
  struct Case {
    std::string name;
    Fate (*happens)(ProducerFrame& frame);
    std::set<TransferFault> named;
  };
  const auto in_chunk = [](ProducerFrame& frame, const auto& change) {
    if (auto* const chunk = std::get_if<ChunkFrame>(&frame); chunk != nullptr) change(*chunk);
    return Fate::kArrives;
  };
  static const auto chunk = in_chunk;
  const std::vector<Case> cases = {
      {"killed", [](ProducerFrame&) { return Fate::kCuts; }, {TransferFault::kCut}},
      {"frozen", [](ProducerFrame&) { return Fate::kFreezes; }, {TransferFault::kLate}},
      {"lost", [](ProducerFrame&) { return Fate::kLost; }, {TransferFault::kProtocol, TransferFault::kLate}},
      {"a code changed",
       [](ProducerFrame& frame) { return chunk(frame, [](ChunkFrame& c) { c.bytes[c.bytes.size() / 2] ^= 4; }); },
       {TransferFault::kDamaged}},
      {"of another layer",
       [](ProducerFrame& frame) { return chunk(frame, [](ChunkFrame& c) { ++c.header.layer; }); },
       {TransferFault::kProtocol}},
      {"of another place",
       [](ProducerFrame& frame) { return chunk(frame, [](ChunkFrame& c) { c.header.offset += 8; }); },
       {TransferFault::kProtocol}},
      {"another epoch",
       [](ProducerFrame& frame) { return chunk(frame, [](ChunkFrame& c) { --c.epoch; }); },
       {TransferFault::kProtocol}},
      {"another point",
       [](ProducerFrame& frame) {
         if (auto* const manifest = std::get_if<ManifestFrame>(&frame))
           manifest->point = profile().points[0].name + "x";
         return Fate::kArrives;
       },
       {TransferFault::kRefused}},
      {"another profile",
       [](ProducerFrame& frame) {
         if (auto* const manifest = std::get_if<ManifestFrame>(&frame)) manifest->identity.profile = "abc";
         return Fate::kArrives;
       },
       {TransferFault::kRefused}},
      {"exact, of other weights",
       [](ProducerFrame& frame) {
         if (auto* const manifest = std::get_if<ManifestFrame>(&frame)) manifest->codec = ChunkCodec::kRaw;
         return Fate::kArrives;
       },
       {TransferFault::kRefused}},
  };
  size_t which = 1;
  for (const Case& fault : cases) {
    int64_t happened = 0;
    for (int moment = 0; moment < frames; ++moment) {
      const Request request = Prompt(200, ++which);
      const TransferStats before = stats();
      source_->tamper = [&](const int index, ProducerFrame& frame) {
        return index == moment ? fault.happens(frame) : Fate::kArrives;
      };
      const auto events = Run(Coded(request));
      source_->tamper = nullptr;
      ExpectNothingHeld();
      int64_t named = 0;
      for (const TransferFault f : fault.named) {
        named += stats().faults[static_cast<size_t>(f)] - before.faults[static_cast<size_t>(f)];
      }
      EXPECT_EQ(named + stats().landed - before.landed, 1) << fault.name << " at " << moment;
      happened += named;
      if (named == 0) continue;
      EXPECT_EQ(BitsOf(*events), Cold(request)) << fault.name << " at " << moment;
      EXPECT_EQ(events->finished()->reuse.made_of_codes, "") << fault.name << " at " << moment;
    }
    EXPECT_GT(happened, 0) << fault.name;
  }
}

}  // namespace
}  // namespace invar::engine
