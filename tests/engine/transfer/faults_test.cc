// What may happen to a transfer, at every frame of it, through two whole engines: the request ends with the bits of a
// cold run, in time, its fault is counted by name, and neither side keeps anything.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/engine/transfer_rig.h"

namespace invar::engine {
namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr models::FingerprintOptions kModel{
    .attention_layers = 2, .recurrent_layers = 2, .state_padding_bytes = 3000, .max_sequence_tokens = 4096};
constexpr int32_t kPrompt = 300;
constexpr TimeNs kTimeout = 5'000 * kMs;

Request Prompt(const int32_t which) {
  Request request;
  for (int32_t i = 0; i < kPrompt; ++i) request.prompt.emplace_back((which * 7 + i * (which + 1)) % 60);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = 3;
  request.output.logprobs = 2;
  return request;
}
Request Pulled(const int32_t which) {
  Request request = Prompt(which);
  request.transfer.allowed = true;
  return request;
}

class Transfer : public ::testing::Test {
 protected:
  Transfer() { Open({}); }

  void Open(EngineOptions options) {
    options.max_batch_tokens = 64;
    options.prefill_chunk_tokens = 64;
    options.max_logits_rows = 16;
    options.kv_budget_bytes = 1 << 20;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    options.transfer.timeout = kTimeout;
    consumer_.reset();
    source_ = std::make_unique<DirectSource>(DirectSource::Options{.credit_bytes = 4096, .chunk_bytes = 1024});
    producer_ = Engine::Create(options, models::MakeFingerprintModel(kModel), nullptr, clock_).value();
    consumer_ =
        Engine::Create(options, models::MakeFingerprintModel(kModel), nullptr, clock_, {}, source_.get()).value();
    source_->Serve(*producer_);
  }
  void Step() {
    consumer_->RunOneStep();
    source_->Work();
    clock_.Advance(kMs);
  }
  std::shared_ptr<Collector> Submit(const Request& request) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(consumer_->Submit(request, events).ok());
    return events;
  }
  std::shared_ptr<Collector> Run(const Request& request) {
    const auto events = Submit(request);
    for (int steps = 0; events->ends() == 0 && steps < 100'000; ++steps) Step();
    EXPECT_TRUE(events->finished().has_value());
    return events;
  }
  std::vector<uint32_t> Cold(Request request) {
    request.transfer = {};
    request.cache.bypass_read = request.cache.bypass_write = true;
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(cold_->Submit(std::move(request), events).ok());
    while (events->ends() == 0) cold_->RunOneStep();
    return BitsOf(*events);
  }
  TransferStats stats() const { return consumer_->Stats().transfer; }
  int64_t Faults(const TransferFault fault) const { return stats().faults[static_cast<size_t>(fault)]; }
  void ExpectNothingHeld() { invar::engine::ExpectNothingHeld(*consumer_, *producer_, *source_); }

  SimulatedClock clock_;
  std::unique_ptr<DirectSource> source_;
  std::unique_ptr<Engine> producer_;
  std::unique_ptr<Engine> consumer_;
  const std::unique_ptr<Engine> cold_ =
      Engine::Create({.max_logits_rows = 16}, models::MakeFingerprintModel(kModel), nullptr, clock_).value();
};

TEST_F(Transfer, TheLastPromptTokenRunsHere) {
  const auto events = Run(Pulled(1));
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  const PrefixReuse& reuse = events->finished()->reuse;
  EXPECT_EQ(reuse.transferred_tokens, kPrompt - 1);
  EXPECT_EQ(reuse.computed_tokens, 1);
  EXPECT_EQ(reuse.tier, "peer");
  EXPECT_GT(reuse.transfer_bytes, 0);
  EXPECT_EQ(stats().landed, 1);
  EXPECT_EQ(stats().tokens, kPrompt - 1);
  ExpectNothingHeld();
}

TEST_F(Transfer, WhatIsHereAlreadyIsNotSent) {
  const int64_t whole = Run(Pulled(1))->finished()->reuse.transfer_bytes;
  Request beginning = Prompt(2);
  beginning.prompt.resize(200);
  Run(beginning);
  const auto events = Run(Pulled(2));
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(2)));
  const PrefixReuse& reuse = events->finished()->reuse;
  EXPECT_EQ(reuse.computed_tokens, 1);
  EXPECT_LT(reuse.transferred_tokens, kPrompt - 190);
  EXPECT_EQ(reuse.transfer_bytes, whole - 3 * consumer_->spec().page_bytes);
}

TEST_F(Transfer, PagesGoOutWhileThePromptStillRuns) {
  const auto events = Submit(Pulled(1));
  int frames_before_the_end = 0;
  for (int steps = 0; events->ends() == 0 && steps < 1'000; ++steps) {
    Step();
    if (producer_->Stats().running > 0) frames_before_the_end = source_->frames_sent();
  }
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  const int frames = source_->frames_sent();
  EXPECT_GE(frames_before_the_end, 4) << "the manifest and the pages of the chunks that had run";
  EXPECT_GT(frames, frames_before_the_end);
}

// The same prompt is run again in parts that went out already: they do not go out twice.
TEST_F(Transfer, APreemptedProducerSendsNothingTwice) {
  Open({.max_pages = 8});
  auto first = std::make_shared<Collector>();
  const auto events = Submit(Pulled(1));
  for (int steps = 0; steps < 4; ++steps) Step();
  Request urgent = Prompt(2);
  urgent.priority = 1;
  urgent.stopping.max_tokens = 200;
  ASSERT_TRUE(producer_->Submit(urgent, first).ok());
  for (int steps = 0; (events->ends() == 0 || first->ends() == 0) && steps < 10'000; ++steps) Step();
  EXPECT_GT(producer_->Stats().preemptions, 0);
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_EQ(events->finished()->reuse.transferred_tokens, kPrompt - 1);
}

TEST_F(Transfer, AWarmProducerRunsNothing) {
  auto events = std::make_shared<Collector>();
  ASSERT_TRUE(producer_->Submit(Prompt(1), events).ok());
  while (events->ends() == 0) producer_->RunOneStep();
  const int64_t steps = producer_->Stats().steps;
  EXPECT_EQ(BitsOf(*Run(Pulled(1))), Cold(Prompt(1)));
  EXPECT_EQ(producer_->Stats().steps, steps);
  EXPECT_EQ(stats().landed, 1);
}

TEST_F(Transfer, IsAskedForByRequestsThatAllowItAndBothReadAndWrite) {
  Run(Prompt(1));
  Request request = Pulled(2);
  request.cache.bypass_read = true;
  Run(request);
  request = Pulled(3);
  request.cache.bypass_write = true;
  Run(request);
  request = Pulled(4);
  request.output.prompt_logprobs = 0;  // Every row is wanted: nothing of it can come from elsewhere.
  Run(request);
  EXPECT_EQ(stats().begun, 0);
}

// --- Faults ---

struct FaultCase {
  std::string name;
  // What happens to the frame at the chosen moment; nullopt: this frame cannot have it.
  std::optional<Fate> (*happens)(ProducerFrame& frame);
  std::set<TransferFault> named;  // One of these is counted; none: the transfer may go well.
};

template <typename Change>
std::optional<Fate> OfChunk(ProducerFrame& frame, const Change& change) {
  auto* const chunk = std::get_if<ChunkFrame>(&frame);
  if (chunk == nullptr) return std::nullopt;
  change(*chunk);
  return Fate::kArrives;
}
template <typename Change>
std::optional<Fate> OfManifest(ProducerFrame& frame, const Change& change) {
  auto* const manifest = std::get_if<ManifestFrame>(&frame);
  if (manifest == nullptr) return std::nullopt;
  change(*manifest);
  return Fate::kArrives;
}

const std::vector<FaultCase>& FaultCases() {
  static const std::vector<FaultCase> cases = {
      {"killed", [](ProducerFrame&) { return std::optional(Fate::kCuts); }, {TransferFault::kCut}},
      {"frozen", [](ProducerFrame&) { return std::optional(Fate::kFreezes); }, {TransferFault::kLate}},
      {"lost",
       [](ProducerFrame&) { return std::optional(Fate::kLost); },
       {TransferFault::kProtocol, TransferFault::kLate}},
      {"replayed",
       [](ProducerFrame& frame) {
         // Behind a commit nothing is read any more.
         return std::holds_alternative<CommitFrame>(frame) ? std::nullopt : std::optional(Fate::kTwice);
       },
       {TransferFault::kProtocol}},
      {"bit flipped in a payload",
       [](ProducerFrame& frame) { return OfChunk(frame, [](ChunkFrame& c) { c.bytes[c.bytes.size() / 2] ^= 16; }); },
       {TransferFault::kDamaged}},
      {"payload of zeros",
       [](ProducerFrame& frame) {
         return OfChunk(frame, [](ChunkFrame& c) { c.bytes = std::string(c.bytes.size(), '\1'); });
       },
       {TransferFault::kDamaged}},
      {"range moved",
       [](ProducerFrame& frame) { return OfChunk(frame, [](ChunkFrame& c) { c.header.token_begin += 64; }); },
       {TransferFault::kProtocol}},
      {"truncated",
       [](ProducerFrame& frame) { return OfChunk(frame, [](ChunkFrame& c) { c.bytes.pop_back(); }); },
       {TransferFault::kProtocol}},
      {"too long",
       [](ProducerFrame& frame) { return OfChunk(frame, [](ChunkFrame& c) { c.bytes += "more"; }); },
       {TransferFault::kProtocol}},
      {"another epoch",
       [](ProducerFrame& frame) { return OfChunk(frame, [](ChunkFrame& c) { --c.epoch; }); },
       {TransferFault::kProtocol}},
      {"another version",
       [](ProducerFrame& frame) { return OfManifest(frame, [](ManifestFrame& m) { ++m.identity.protocol; }); },
       {TransferFault::kRefused}},
      {"another profile",
       [](ProducerFrame& frame) { return OfManifest(frame, [](ManifestFrame& m) { m.identity.profile = "scd"; }); },
       {TransferFault::kRefused}},
      {"more than was asked for",
       [](ProducerFrame& frame) { return OfManifest(frame, [](ManifestFrame& m) { m.end = kPrompt; }); },
       {TransferFault::kProtocol}},
      {"a commit of other chunks",
       [](ProducerFrame& frame) -> std::optional<Fate> {
         auto* const commit = std::get_if<CommitFrame>(&frame);
         if (commit == nullptr) return std::nullopt;
         commit->root[5] ^= 1;
         return Fate::kArrives;
       },
       {TransferFault::kDamaged}},
  };
  return cases;
}

TEST_F(Transfer, EveryFaultAtEveryMomentEndsInTheBitsOfALocalRun) {
  Run(Pulled(0));
  const int frames = source_->frames_sent();
  ASSERT_GT(frames, 8);
  int32_t which = 0;
  int64_t happened = 0;
  for (const FaultCase& fault : FaultCases()) {
    for (int moment = 0; moment < frames; ++moment) {
      ++which;
      bool did = false;
      source_->tamper = [&](const int index, ProducerFrame& frame) {
        if (index != moment) return Fate::kArrives;
        const std::optional<Fate> fate = fault.happens(frame);
        did = fate.has_value();
        return fate.value_or(Fate::kArrives);
      };
      const TransferStats before = stats();
      const TimeNs begin = clock_.Now();
      const auto events = Run(Pulled(which));
      ASSERT_EQ(BitsOf(*events), Cold(Prompt(which))) << fault.name << " at " << moment;
      EXPECT_LT(clock_.Now() - begin, kTimeout + 1'000 * kMs);
      ExpectNothingHeld();
      if (!did) continue;
      ++happened;
      int64_t named = 0;
      for (const TransferFault f : fault.named) named += Faults(f) - before.faults[static_cast<size_t>(f)];
      EXPECT_EQ(named, 1) << fault.name << " at " << moment;
      EXPECT_EQ(events->finished()->reuse.transferred_tokens, 0) << fault.name << " at " << moment;
    }
  }
  EXPECT_GT(happened, 5 * frames);
  const TransferStats after = stats();
  int64_t faults = 0;
  for (const int64_t count : after.faults) faults += count;
  EXPECT_EQ(faults, happened);
  EXPECT_EQ(after.begun, after.landed + faults);
}

TEST_F(Transfer, ASlowOneArrivesAllTheSame) {
  source_->tamper = [&](int, ProducerFrame&) {
    clock_.Advance(100 * kMs);
    return Fate::kArrives;
  };
  const auto events = Run(Pulled(1));
  EXPECT_EQ(events->finished()->reuse.transferred_tokens, kPrompt - 1);
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
}

TEST_F(Transfer, LeavesARequestHalfOfItsTime) {
  source_->tamper = [](int, ProducerFrame&) { return Fate::kFreezes; };
  Request request = Pulled(1);
  request.deadline = clock_.Now() + 1'000 * kMs;
  const auto events = Run(request);
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_LT(clock_.Now(), 600 * kMs);
  EXPECT_EQ(Faults(TransferFault::kLate), 1);
}

TEST_F(Transfer, AProducerThatCannotComputeItSaysSo) {
  producer_->Abort();
  const auto events = Run(Pulled(1));
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_EQ(Faults(TransferFault::kFailed), 1);
}

// Bug case 35: a consumer that cancels in the middle, and whose memory others take at once, while frames still come.
TEST_F(Transfer, OneThatWasCancelledTouchesNobodysMemory) {
  Run(Pulled(0));
  const int frames = source_->frames_sent();
  for (int moment = 0; moment < frames; ++moment) {
    const int32_t which = 10 + 2 * moment;
    source_->tamper = [&](const int index, ProducerFrame&) {
      return index == moment ? Fate::kFreezes : Fate::kArrives;
    };
    auto gone = std::make_shared<Collector>();
    const SequenceId id = consumer_->Submit(Pulled(which), gone).value();
    while (source_->frames_sent() <= moment || source_->waiting() == 0) Step();
    source_->tamper = nullptr;
    consumer_->Cancel(id);
    const auto next = Run(Pulled(which + 1));
    EXPECT_EQ(BitsOf(*next), Cold(Prompt(which + 1))) << moment;
    EXPECT_EQ(gone->failed()->code(), StatusCode::kCancelled);
    ExpectNothingHeld();
  }
  EXPECT_EQ(stats().cancelled, frames);
}

TEST_F(Transfer, WhatWasFlushedMeanwhileStaysForgotten) {
  bool flushed = false;
  source_->tamper = [&](int, const ProducerFrame& frame) {
    if (std::holds_alternative<CommitFrame>(frame) && !flushed) {
      flushed = true;
      EXPECT_TRUE(consumer_->FlushCache({}).ok());
      consumer_->RunOneStep();
    }
    return Fate::kArrives;
  };
  const auto events = Run(Pulled(1));
  EXPECT_TRUE(flushed);
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_EQ(events->finished()->reuse.transferred_tokens, 0);
  EXPECT_EQ(Faults(TransferFault::kForgotten), 1);
}

TEST_F(Transfer, WhatOthersFlushedMeanwhileIsNothingToIt) {
  bool flushed = false;
  source_->tamper = [&](int, const ProducerFrame& frame) {
    if (std::holds_alternative<CommitFrame>(frame)) {
      flushed = true;
      EXPECT_TRUE(consumer_->FlushCache({.tenant = "somebody else"}).ok());
      consumer_->RunOneStep();
    }
    return Fate::kArrives;
  };
  const auto events = Run(Pulled(1));
  EXPECT_TRUE(flushed);
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_GT(events->finished()->reuse.transferred_tokens, 0);
  EXPECT_EQ(Faults(TransferFault::kForgotten), 0);
}

// The engine hands parts over and holds nothing while it does.
TEST_F(Transfer, WhoTakesAPartMayCancelTheRest) {
  int parts = 0;
  std::shared_ptr<PrefixExport> exported;
  exported = PrefixExport::Begin(*producer_,
                                 {.request_id = "peer",
                                  .scope = {},
                                  .tokens = Prompt(1).prompt,
                                  .have_kv = 0,
                                  .have_state = 0,
                                  .deadline = kNever},
                                 [&](const StatusOr<PrefixPart>& part) {
                                   ++parts;
                                   EXPECT_TRUE(part.ok() && !IsLast(*part));
                                   exported->Cancel();
                                 });
  while (producer_->RunOneStep()) {
  }
  EXPECT_EQ(parts, 1);
  EXPECT_EQ(producer_->Stats().cancelled, 1);
  ExpectNothingHeld();
}

TEST_F(Transfer, AFewTokensAreRunHere) {
  Open({.transfer = {.tokens_min = kPrompt}});
  Run(Pulled(1));
  EXPECT_EQ(stats().begun, 0);
}

}  // namespace
}  // namespace invar::engine
