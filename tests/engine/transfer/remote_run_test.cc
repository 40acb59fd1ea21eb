// A run elsewhere under every fault of link, producer and consumer, at every frame, on a model of hashes: bits of a
// local run, nothing lost, nothing held.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
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
constexpr int32_t kOutput = 20;
constexpr TimeNs kTimeout = 5'000 * kMs;

Request Prompt(const int32_t which) {
  Request request;
  for (int32_t i = 0; i < kPrompt; ++i) request.prompt.emplace_back((which * 7 + i * (which + 1)) % 60);
  request.sampling.temperature = 0.8F;
  request.sampling.seed = 11;
  request.sampling.presence_penalty = 0.5F;
  request.stopping.max_tokens = kOutput;
  request.output.logprobs = 2;
  return request;
}
Request Pulled(const int32_t which) {
  Request request = Prompt(which);
  request.transfer.allowed = true;
  return request;
}

class RemoteRuns : public ::testing::Test {
 protected:
  RemoteRuns() { Open(/*frames_per_step=*/4); }

  void Open(const int64_t frames_per_step) {
    EngineOptions options;
    options.max_batch_tokens = 64;
    options.prefill_chunk_tokens = 64;
    options.max_logits_rows = 16;
    options.kv_budget_bytes = 1 << 20;
    options.draft_tokens_max = 8;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    options.transfer.timeout = kTimeout;
    options.transfer.runs_there = true;
    consumer_.reset();
    source_ = std::make_unique<DirectSource>(
        DirectSource::Options{.credit_bytes = 4096, .chunk_bytes = 1024, .frames_per_step = frames_per_step});
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
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(cold_->Submit(std::move(request), events).ok());
    while (events->ends() == 0) cold_->RunOneStep();
    return BitsOf(*events);
  }
  TransferStats stats() const { return consumer_->Stats().transfer; }
  void ExpectNothingHeld() { invar::engine::ExpectNothingHeld(*consumer_, *producer_, *source_); }

  SimulatedClock clock_;
  std::unique_ptr<DirectSource> source_;
  std::unique_ptr<Engine> producer_;
  std::unique_ptr<Engine> consumer_;
  const std::unique_ptr<Engine> cold_ =
      Engine::Create({.max_logits_rows = 16}, models::MakeFingerprintModel(kModel), nullptr, clock_).value();
};

TEST_F(RemoteRuns, TokensComeBeforeThePrefixAndTheRestIsRunHere) {
  const auto events = Run(Pulled(1));
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_EQ(events->finished()->reuse.transfer_mode, "raw+verify");
  EXPECT_EQ(events->finished()->reuse.transferred_tokens, kPrompt - 1);
  EXPECT_EQ(stats().remote_runs, 1);
  EXPECT_GT(stats().remote_tokens, 2);
  EXPECT_LT(stats().remote_tokens, kOutput);
  ExpectNothingHeld();
}

TEST_F(RemoteRuns, AnAnswerMayEndBeforeItsPrefixHasCome) {
  Open(/*frames_per_step=*/1);
  source_->tamper = [](int, ProducerFrame&) { return Fate::kFreezes; };
  const auto events = Run(Pulled(1));
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  EXPECT_EQ(events->finished()->reuse.transfer_mode, "verify");
  EXPECT_EQ(events->finished()->reuse.computed_tokens, 0);
  EXPECT_EQ(stats().remote_tokens, kOutput);
  EXPECT_EQ(stats().cancelled, 1);
  ExpectNothingHeld();
}

TEST_F(RemoteRuns, AStopTokenEndsItAsItDoesHere) {
  Open(/*frames_per_step=*/1);
  Request request = Prompt(1);
  auto whole = std::make_shared<Collector>();
  ASSERT_TRUE(cold_->Submit(request, whole).ok());
  while (whole->ends() == 0) cold_->RunOneStep();
  request.stopping.stop_token_ids = {whole->tokens()[7]};
  request.stopping.min_tokens = 3;
  request.transfer.allowed = true;
  const auto events = Run(request);
  EXPECT_EQ(events->finished()->reason, FinishReason::kStop);
  EXPECT_EQ(BitsOf(*events), Cold(request));
  ExpectNothingHeld();
}

struct RunFault {
  std::string name;
  std::function<Fate(VerifiedFrame&)> happens;
};
const std::vector<RunFault>& RunFaults() {
  static const std::vector<RunFault> faults = {
      {"killed", [](VerifiedFrame&) { return Fate::kCuts; }},
      {"frozen", [](VerifiedFrame&) { return Fate::kFreezes; }},
      {"lost", [](VerifiedFrame&) { return Fate::kLost; }},
      {"replayed", [](VerifiedFrame&) { return Fate::kTwice; }},
      {"another token",
       [](VerifiedFrame& frame) {
         frame.tokens[0] = TokenId((frame.tokens[0].value() + 1) % 60);
         return Fate::kArrives;
       }},
      {"another place",
       [](VerifiedFrame& frame) {
         --frame.first;
         return Fate::kArrives;
       }},
      {"another bit of a logit",
       [](VerifiedFrame& frame) {
         frame.logprobs[0].logit += 0.5F;
         return Fate::kArrives;
       }},
      {"no token of the model, checksum and all",
       [](VerifiedFrame& frame) {
         frame.tokens[0] = TokenId(1 << 30);
         frame.logprobs[0].token = frame.tokens[0];
         frame.crc32c = ChecksumOf(frame);
         return Fate::kArrives;
       }},
      {"without what was asked for",
       [](VerifiedFrame& frame) {
         frame.logprobs.clear();
         frame.crc32c = ChecksumOf(frame);
         return Fate::kArrives;
       }},
  };
  return faults;
}

TEST_F(RemoteRuns, EveryFaultAtEveryMomentEndsInTheBitsOfALocalRun) {
  int32_t which = 0;
  for (const int64_t frames_per_step : {int64_t{1}, int64_t{4}}) {
    Open(frames_per_step);
    Run(Pulled(0));
    const int frames = source_->run_frames_sent();
    ASSERT_GT(frames, 2);
    for (const RunFault& fault : RunFaults()) {
      for (int moment = 0; moment < frames; ++moment) {
        ++which;
        source_->tamper_run = [&](const int index, VerifiedFrame& frame) {
          return index == moment ? fault.happens(frame) : Fate::kArrives;
        };
        const TimeNs begin = clock_.Now();
        const auto events = Run(Pulled(which));
        ASSERT_EQ(BitsOf(*events), Cold(Prompt(which))) << fault.name << " at " << moment;
        EXPECT_LT(clock_.Now() - begin, kTimeout + 1'000 * kMs);
        ExpectNothingHeld();
      }
    }
  }
}

// The producer goes: the run and the prefix with it.
TEST_F(RemoteRuns, AProducerThatGoesAtAnyMomentCostsALocalRunAndNothingElse) {
  Run(Pulled(0));
  const int frames = source_->frames_sent();
  for (int moment = 0; moment < frames; ++moment) {
    source_->tamper = [&](const int index, ProducerFrame&) { return index == moment ? Fate::kCuts : Fate::kArrives; };
    const auto events = Run(Pulled(moment + 1));
    ASSERT_EQ(BitsOf(*events), Cold(Prompt(moment + 1))) << moment;
    EXPECT_EQ(events->finished()->reuse.transfer_mode, "verify");
    ExpectNothingHeld();
  }
}

TEST_F(RemoteRuns, AConsumerThatGoesAtAnyMomentLeavesNothingAtTheProducer) {
  for (int moment = 0; moment < 40; ++moment) {
    auto gone = std::make_shared<Collector>();
    const SequenceId id = consumer_->Submit(Pulled(100 + moment), gone).value();
    for (int step = 0; step < moment; ++step) Step();
    consumer_->Cancel(id);
    Step();
    ExpectNothingHeld();
    EXPECT_EQ(gone->ends(), 1) << moment;
  }
}

// Tokens that have come wait for their reader; the prefix does not.
TEST_F(RemoteRuns, WhoseReaderIsBehindGetsThemLater) {
  auto events = std::make_shared<Collector>(/*bound=*/3);  // Started and a token before.
  const SequenceId id = consumer_->Submit(Pulled(1), events).value();
  for (int step = 0; step < 200; ++step) Step();
  EXPECT_EQ(events->tokens().size(), 2);
  for (int steps = 0; events->ends() == 0 && steps < 100'000; ++steps) {
    consumer_->Unpause(id);
    Step();
  }
  EXPECT_EQ(BitsOf(*events), Cold(Prompt(1)));
  ExpectNothingHeld();
}

// A guess of the consumer changes nothing but how many steps the producer takes.
TEST_F(RemoteRuns, DraftsThatComeFromOutsideChangeNoToken) {
  auto whole = std::make_shared<Collector>();
  ASSERT_TRUE(cold_->Submit(Prompt(1), whole).ok());
  while (whole->ends() == 0) cold_->RunOneStep();
  const std::vector<TokenId>& right = whole->tokens();
  for (const int32_t wrong_at : {0, 1, 3, 100}) {
    for (const int32_t length : {1, 4, 8}) {
      std::vector<VerifiedFrame> came;
      std::optional<Status> end;
      const Request request = Prompt(1);
      const auto session = VerifySession::Begin(*producer_,
                                                {.request_id = "peer",
                                                 .open = {.identity = {},
                                                          .scope = {},
                                                          .prompt = request.prompt,
                                                          .sampling = request.sampling,
                                                          .stopping = request.stopping,
                                                          .output = request.output}},
                                                [&](VerifySession::Event event) {
                                                  if (auto* frame = std::get_if<VerifiedFrame>(&event)) {
                                                    came.push_back(std::move(*frame));
                                                  } else {
                                                    end = std::get<Status>(event);
                                                  }
                                                });
      size_t offered_for = 0;
      int idle = 0;
      for (int step = 0; !end.has_value() && step < 10'000; ++step) {
        if (!producer_->RunOneStep() && ++idle > 3) {
          session->Beat();
          idle = 0;
        }
        size_t known = 0;
        for (const VerifiedFrame& frame : came) known += frame.tokens.size();
        if (known == offered_for) continue;
        offered_for = known;
        DraftFrame draft{.first = static_cast<int32_t>(known)};
        for (int32_t i = 0; i < length && known + i < right.size(); ++i) {
          const TokenId token = right[known + i];
          draft.tokens.push_back(i == wrong_at ? TokenId((token.value() + 1) % 60) : token);
        }
        EXPECT_TRUE(session->Offer(std::move(draft)).ok());
      }
      ASSERT_TRUE(end.has_value() && end->ok());
      std::vector<TokenId> tokens;
      for (const VerifiedFrame& frame : came) {
        EXPECT_EQ(frame.first, std::ssize(tokens));
        tokens.insert(tokens.end(), frame.tokens.begin(), frame.tokens.end());
      }
      EXPECT_EQ(tokens, right) << length << ", wrong at " << wrong_at;
    }
  }
  EXPECT_GT(producer_->Stats().speculation.accepted_tokens, 50);
  EXPECT_GT(producer_->Stats().speculation.drafted_tokens, producer_->Stats().speculation.accepted_tokens);
}

}  // namespace
}  // namespace invar::engine
