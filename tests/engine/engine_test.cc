// The engine's promises one by one, on the model of hashes: limits, ends, readers, drain, failures, threads.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "tests/engine/collector.h"
#include "tests/support/wrapped_model.h"
#include "tools/sim/sim_tokenizer.h"

namespace invar::engine {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

struct Rig {
  explicit Rig(const int32_t pages = 40, EngineOptions options_in = {}, std::unique_ptr<models::Model> model = nullptr)
      : options(options_in) {
    if (model == nullptr) model = models::MakeFingerprintModel(fingerprint);
    options.max_pages = pages;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    engine = Engine::Create(options, std::move(model), &tokenizer, clock).value();
  }

  struct Stream {
    SequenceId id;
    std::shared_ptr<Collector> events;
  };
  StatusOr<SequenceId> TrySubmit(Request request) {
    return engine->Submit(std::move(request), std::make_shared<Collector>());
  }
  Stream Submit(Request request, const int bound = 0) {
    auto events = std::make_shared<Collector>(bound);
    const SequenceId id = engine->Submit(std::move(request), events).value();
    return {id, events};
  }
  void RunUntilIdle() {
    while (engine->RunOneStep()) clock.Advance(1'000'000);
  }

  models::FingerprintOptions fingerprint;
  EngineOptions options;
  sim::SimTokenizer tokenizer{60};
  SimulatedClock clock;
  std::unique_ptr<Engine> engine;
};

Request Greedy(const int32_t prompt_tokens, const int32_t max_tokens, const int32_t salt = 0) {
  Request request;
  for (int32_t i = 0; i < prompt_tokens; ++i) request.prompt.emplace_back((i * 7 + salt) % 60);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = max_tokens;
  return request;
}

std::vector<TokenId> GreedyAnswer(const Rig& rig, const Request& request) {
  std::vector<TokenId> tokens = request.prompt;
  for (int32_t i = 0; i < request.stopping.max_tokens; ++i) {
    const std::vector<float> row = models::FingerprintLogits(rig.fingerprint, tokens);
    tokens.emplace_back(static_cast<int32_t>(std::max_element(row.begin(), row.begin() + 60) - row.begin()));
  }
  return {tokens.begin() + static_cast<int64_t>(request.prompt.size()), tokens.end()};
}

// --- Answers ---

TEST(Engine, AnswersWithTheTokensOfTheModel) {
  Rig rig;
  const Request request = Greedy(100, 50);
  const Rig::Stream stream = rig.Submit(request);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->tokens(), GreedyAnswer(rig, request));
  ASSERT_TRUE(stream.events->finished().has_value());
  EXPECT_EQ(stream.events->finished()->reason, FinishReason::kLength);
  EXPECT_EQ(stream.events->finished()->prompt_tokens, 100);
  EXPECT_EQ(stream.events->finished()->completion_tokens, 50);
  EXPECT_EQ(stream.events->finished()->reuse.computed_tokens, 100);
}

TEST(Engine, MaxTokensZeroScoresThePromptOnly) {
  Rig rig;
  Request request = Greedy(10, 0);
  request.output.prompt_logprobs = 1;
  const Rig::Stream stream = rig.Submit(request);
  rig.RunUntilIdle();
  EXPECT_TRUE(stream.events->tokens().empty());
  ASSERT_TRUE(stream.events->finished().has_value());
  EXPECT_EQ(stream.events->finished()->prompt_logprobs.size(), 9U);
}

TEST(Engine, GenerationEndsWithLengthAtTheModelsLimit) {
  for (const int32_t left : {0, 1, 5}) {
    Rig rig(100);
    const Rig::Stream stream = rig.Submit(Greedy(rig.fingerprint.max_sequence_tokens - left, INT32_MAX));
    rig.RunUntilIdle();
    ASSERT_TRUE(stream.events->finished().has_value());
    EXPECT_EQ(stream.events->finished()->reason, FinishReason::kLength);
    EXPECT_EQ(stream.events->tokens().size(), static_cast<size_t>(left));
  }
}

TEST(Engine, PreemptedSequencesGoOnWithTheSameTokens) {
  EngineOptions options;
  options.max_batch_tokens = 64;
  Rig rig(5, options);  // 2.5 sequences of two pages.
  std::vector<Rig::Stream> streams;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i) {
    requests.push_back(Greedy(60, 60, i));
    streams.push_back(rig.Submit(requests.back()));
  }
  rig.RunUntilIdle();
  EXPECT_GT(rig.engine->Stats().preemptions, 0);
  EXPECT_GT(rig.engine->Stats().prefill_tokens, 8 * 60);  // Some prompts ran again.
  for (size_t i = 0; i < streams.size(); ++i) EXPECT_EQ(streams[i].events->tokens(), GreedyAnswer(rig, requests[i]));
}

TEST(Engine, ARecycledSlotKnowsNothingOfItsLastOwner) {
  EngineOptions options;
  options.max_running = 4;
  Rig rig(40, options);
  std::vector<Rig::Stream> old;
  for (int32_t i = 0; i < 4; ++i) old.push_back(rig.Submit(Greedy(150, 500, i)));
  for (int i = 0; i < 5; ++i) rig.engine->RunOneStep();
  for (const Rig::Stream& stream : old) rig.engine->Cancel(stream.id);
  for (const int32_t length : {1, 2}) {
    const Request request = Greedy(length, 5);
    const Rig::Stream stream = rig.Submit(request);
    rig.RunUntilIdle();
    EXPECT_EQ(stream.events->tokens(), GreedyAnswer(rig, request));
  }
}

// --- Limits ---

TEST(Engine, ARequestThatCanNeverFitIsRefusedAtOnceAndOthersRun) {
  Rig rig(10);
  EXPECT_EQ(rig.TrySubmit(Greedy(600, 100)).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(MaxRequestTokens(rig.engine->request_limits()), 640);
  EXPECT_TRUE(rig.TrySubmit(Greedy(600, 40)).ok());
  std::vector<Rig::Stream> small;
  for (int32_t i = 0; i < 5; ++i) small.push_back(rig.Submit(Greedy(10, 5, i)));
  rig.RunUntilIdle();
  for (const Rig::Stream& stream : small) EXPECT_TRUE(stream.events->finished().has_value());
}

TEST(Engine, AFullQueueRefusesAtOnce) {
  EngineOptions options;
  options.max_queued = 2;
  Rig rig(40, options);
  EXPECT_TRUE(rig.TrySubmit(Greedy(4, 4)).ok());
  EXPECT_TRUE(rig.TrySubmit(Greedy(4, 4)).ok());
  EXPECT_EQ(rig.TrySubmit(Greedy(4, 4)).status().code(), StatusCode::kResourceExhausted);
  rig.engine->RunOneStep();
  EXPECT_TRUE(rig.TrySubmit(Greedy(4, 4)).ok());
}

TEST(Engine, ABudgetThatHoldsNoSequenceIsRefusedAtCreation) {
  const SimulatedClock clock;
  EngineOptions options;
  options.kv_budget_bytes = 100;
  EXPECT_EQ(Engine::Create(options, models::MakeFingerprintModel({}), nullptr, clock).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(Engine, StopStringsWithoutATokenizerAreRefused) {
  const SimulatedClock clock;
  auto engine = Engine::Create({}, models::MakeFingerprintModel({}), nullptr, clock).value();
  Request request = Greedy(4, 4);
  request.stopping.stop = {"x"};
  EXPECT_EQ(engine->Submit(request, std::make_shared<Collector>()).status().field(), "stopping.stop");
}

// --- Ends ---

TEST(Engine, ACancelledRequestRunsNoFurtherStep) {
  Rig rig;
  const Rig::Stream stream = rig.Submit(Greedy(10, 1000));
  for (int i = 0; i < 10; ++i) rig.engine->RunOneStep();
  const size_t tokens = stream.events->tokens().size();
  rig.engine->Cancel(stream.id);
  rig.engine->RunOneStep();
  EXPECT_EQ(stream.events->tokens().size(), tokens);
  EXPECT_EQ(stream.events->failed()->code(), StatusCode::kCancelled);
  EXPECT_EQ(rig.engine->Stats().pages_used, 0);
  rig.engine->Cancel(stream.id);  // Harmless when it has ended.
  rig.engine->Cancel(SequenceId(999));
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->ends(), 1);
}

TEST(Engine, ACancelledWaitingRequestNeverStarts) {
  Rig rig;
  const Rig::Stream stream = rig.Submit(Greedy(10, 10));
  rig.engine->Cancel(stream.id);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->events(), 1);  // The end alone.
}

TEST(Engine, DeadlinesHoldWhileQueuedAndWhileRunning) {
  EngineOptions options;
  options.max_running = 1;
  Rig rig(40, options);
  Request running = Greedy(10, 100000 / 100);
  running.deadline = 5'000'000;
  Request queued = Greedy(10, 10);
  queued.deadline = 3'000'000;
  const Rig::Stream first = rig.Submit(running);
  const Rig::Stream second = rig.Submit(queued);
  rig.RunUntilIdle();
  EXPECT_EQ(first.events->failed()->code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(second.events->failed()->code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(second.events->events(), 1);  // It never started.
  EXPECT_EQ(rig.engine->Stats().expired, 2);
  EXPECT_EQ(rig.TrySubmit(queued).status().code(), StatusCode::kDeadlineExceeded);  // Already past.
}

TEST(Engine, StopIdsEndWithTheirTokenAndWithoutItsText) {
  Rig rig;
  Request request = Greedy(10, 50);
  const std::vector<TokenId> answer = GreedyAnswer(rig, request);
  request.stopping.stop_token_ids = {answer[7]};
  const size_t first = static_cast<size_t>(std::find(answer.begin(), answer.end(), answer[7]) - answer.begin());
  const Rig::Stream stream = rig.Submit(request);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->finished()->reason, FinishReason::kStop);
  EXPECT_EQ(std::get<TokenId>(stream.events->finished()->matched), answer[7]);
  EXPECT_EQ(stream.events->tokens().size(), first + 1);
  EXPECT_EQ(stream.events->text(), rig.tokenizer.Decode(std::span(answer).first(first), true));
}

// --- Readers ---

TEST(Engine, ASlowReaderPausesOnlyItsOwnStream) {
  Rig rig;
  const Request request = Greedy(10, 40);
  const Rig::Stream slow = rig.Submit(request, /*bound=*/5);
  const Rig::Stream other = rig.Submit(Greedy(10, 40, 1));
  rig.RunUntilIdle();
  EXPECT_EQ(slow.events->events(), 5);
  EXPECT_TRUE(other.events->finished().has_value());
  EXPECT_EQ(rig.engine->Stats().paused, 1);
  while (slow.events->ends() == 0) {  // Each resumption gives one more token: it is always behind.
    rig.engine->Unpause(slow.id);
    rig.engine->RunOneStep();
  }
  EXPECT_EQ(slow.events->tokens(), GreedyAnswer(rig, request));
}

// --- The end ---

TEST(Engine, AbortAndDestructionEndWhatIsLeft) {
  Rig rig;
  const Rig::Stream first = rig.Submit(Greedy(10, 1000));
  rig.engine->RunOneStep();
  rig.engine->Abort();
  EXPECT_EQ(rig.TrySubmit(Greedy(4, 4)).status().code(), StatusCode::kUnavailable);
  rig.engine->RunOneStep();
  EXPECT_EQ(first.events->failed()->code(), StatusCode::kUnavailable);

  Rig other;
  const Rig::Stream second = other.Submit(Greedy(10, 1000));
  other.engine.reset();
  EXPECT_EQ(second.events->failed()->code(), StatusCode::kUnavailable);
  EXPECT_EQ(second.events->ends(), 1);
}

// --- A model that gives nonsense ---

class NanModel final : public testing::WrappedModel {
 public:
  using WrappedModel::WrappedModel;
  // Rows of spans that begin with token 59 are NaN.
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    const kernels::ConstF32View logits = model_->Forward(memory, spans);
    rows_.assign(logits.data, logits.data + logits.rows * logits.stride);
    int64_t row = 0;
    for (const models::ForwardSpan& span : spans) {
      if (span.tokens[0] == TokenId(59)) {
        std::fill_n(rows_.begin() + row * logits.stride, span.logits_rows * logits.stride,
                    std::numeric_limits<float>::quiet_NaN());
      }
      row += span.logits_rows;
    }
    return {rows_.data(), logits.rows, logits.cols, logits.stride};
  }

 private:
  std::vector<float> rows_;
};

TEST(Engine, LogitsThatAreNotFiniteFailTheirRequestAlone) {
  for (const bool scored : {false, true}) {
    Rig rig(40, {}, std::make_unique<NanModel>(models::MakeFingerprintModel({})));
    Request bad = Greedy(1, 10);
    bad.prompt = {TokenId(59), TokenId(1)};
    if (scored) bad.output.prompt_logprobs = 0;
    const Request good = Greedy(10, 1);
    const Rig::Stream bad_stream = rig.Submit(bad);
    const Rig::Stream good_stream = rig.Submit(good);
    rig.RunUntilIdle();
    EXPECT_EQ(bad_stream.events->failed()->code(), StatusCode::kInternal);
    EXPECT_EQ(good_stream.events->tokens(), GreedyAnswer(rig, good));
    Rig alone(40, {}, std::make_unique<NanModel>(models::MakeFingerprintModel({})));
    alone.Submit(good);
    alone.RunUntilIdle();
    EXPECT_EQ(rig.engine->Stats().cache.nodes, alone.engine->Stats().cache.nodes)
        << "nothing of what gave nonsense is shared";
  }
}

// --- Threads ---

TEST(EngineThread, ManySubmittersAndCancelsEndExactlyOnceAndNumbersAddUp) {
  const RealClock clock;
  const sim::SimTokenizer tokenizer(60);
  EngineOptions options;
  options.max_running = 6;
  options.max_pages = 10;
  auto engine = Engine::Create(options, models::MakeFingerprintModel({}), &tokenizer, clock).value();
  engine->StartThread();
  constexpr int kThreads = 4;
  constexpr int kRequests = 99;
  constexpr int kCancelEvery = 3;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        // A reader behind its bound never lets its request finish: only the cancel ends it.
        const bool cancels = i % kCancelEvery == 0;
        auto events = std::make_shared<Collector>(/*bound=*/cancels ? 2 : 0);
        const SequenceId id = engine->Submit(Greedy(20, 30, t * 100 + i), events).value();
        if (cancels) engine->Cancel(id);
        events->WaitForEnd();
        EXPECT_EQ(events->ends(), 1);
        const EngineStats stats = engine->Stats();
        EXPECT_EQ(stats.submitted, stats.finished_stop + stats.finished_length + stats.cancelled + stats.expired +
                                       stats.failed + stats.running + stats.waiting);
        EXPECT_GE(stats.waiting, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine->Stop();  // Every end was pushed before the numbers of its step were published.
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.submitted, kThreads * kRequests);
  EXPECT_EQ(stats.cancelled, kThreads * kRequests / kCancelEvery);
  EXPECT_EQ(stats.finished_length, kThreads * kRequests - stats.cancelled);
  EXPECT_EQ(stats.pages_used, 0);
}

// Real time, and how often it was asked for: a loop that spins asks without end.
class CountingClock final : public Clock {
 public:
  TimeNs Now() const override {
    ++asked_;
    return clock_.Now();
  }
  int64_t asked() const { return asked_; }

 private:
  RealClock clock_;
  mutable std::atomic<int64_t> asked_ = 0;
};

TEST(EngineThread, SleepsUntilADeadlineWakesIt) {
  const CountingClock clock;
  EngineOptions options;
  auto engine = Engine::Create(options, models::MakeFingerprintModel({}), nullptr, clock).value();
  engine->StartThread();
  auto events = std::make_shared<Collector>(/*bound=*/2);  // Paused after a token: nothing runs, only time passes.
  Request request = Greedy(4, 100);
  request.deadline = clock.Now() + 200'000'000;
  EXPECT_TRUE(engine->Submit(request, events).ok());
  events->WaitForEnd();
  EXPECT_LT(clock.asked(), 1000) << "it did not sleep";
  EXPECT_EQ(events->failed()->code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(clock.Now(), request.deadline + kSecond);
}

TEST(EngineThread, StopsWhileRequestsRun) {
  const RealClock clock;
  std::vector<std::shared_ptr<Collector>> all;
  for (int round = 0; round < 20; ++round) {
    auto engine = Engine::Create({}, models::MakeFingerprintModel({}), nullptr, clock).value();
    engine->StartThread();
    for (int i = 0; i < 4; ++i) {
      all.push_back(std::make_shared<Collector>());
      EXPECT_TRUE(engine->Submit(Greedy(20, 4000, i), all.back()).ok());
    }
    all.back()->WaitForTokens(3);
  }
  for (const auto& events : all) EXPECT_EQ(events->ends(), 1);
}

TEST(EngineThread, AfterStopNothingIsPushedAndNothingIsTaken) {
  const RealClock clock;
  const auto events = std::make_shared<Collector>();
  auto engine = Engine::Create({}, models::MakeFingerprintModel({}), nullptr, clock).value();
  engine->StartThread();
  ASSERT_TRUE(engine->Submit(Greedy(20, 4000), events).ok());
  events->WaitForTokens(3);
  engine->Stop();
  EXPECT_EQ(events->ends(), 1);
  EXPECT_EQ(events.use_count(), 1) << "the engine has let go of the sink";
  EXPECT_EQ(engine->Submit(Greedy(1, 1), events).status().code(), StatusCode::kUnavailable);
  engine->Stop();
  EXPECT_EQ(events->ends(), 1);
}

}  // namespace
}  // namespace invar::engine
