// Speculation at the engine on the model of hashes: rounds and reports, ends inside accepted runs, readers, refusals,
// memory, and falling back where it does not pay. Drafts come from a drafter that knows the answers and errs as told.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "engine/engine.h"
#include "engine/loop/bind_model.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tools/sim/dialled_drafter.h"
#include "tools/sim/oracle.h"
#include "tools/sim/sim_tokenizer.h"

namespace invar::engine {
namespace {

constexpr int32_t kUsableIds = 60;

struct Rig {
  explicit Rig(EngineOptions options = {}) {
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    if (options.max_pages == INT32_MAX) options.max_pages = 40;
    options.drafters.push_back({sim::kDialledDrafter, [this](const DrafterSetting&) {
                                  return sim::MakeDialledDrafter(truths, kUsableIds, 1);
                                }});
    engine = Engine::Create(options, models::MakeFingerprintModel(fingerprint), &tokenizer, clock).value();
  }

  struct Stream {
    SequenceId id;
    std::shared_ptr<Collector> events;
    const SpeculationReport& report() const { return *events->finished()->speculation; }
  };
  // With a drafter whose tokens are right so often.
  Stream Submit(Request request, const int32_t agreement_percent, const int bound = 0) {
    request.speculation.drafter = sim::kDialledDrafter;
    auto events = std::make_shared<Collector>(bound);
    const SequenceId id = engine->Submit(request, events).value();
    sim::DraftTruth& truth = truths[id];
    truth.agreement_percent = agreement_percent;
    truth.tokens = request.prompt;
    const sim::Expected answer = Answer(request);
    truth.tokens.insert(truth.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    return {id, events};
  }
  sim::Expected Answer(const Request& request) const { return sim::ExpectedAnswer(request, fingerprint, tokenizer); }
  void RunUntilIdle() {
    while (engine->RunOneStep()) clock.Advance(1'000'000);
  }

  models::FingerprintOptions fingerprint;
  sim::SimTokenizer tokenizer{kUsableIds};
  SimulatedClock clock;
  sim::DraftTruths truths;  // Before the engine, whose drafter reads it.
  std::unique_ptr<Engine> engine;
};

Request Greedy(const int32_t max_tokens, const std::optional<int32_t> draft_tokens = std::nullopt) {
  Request request;
  for (int32_t i = 0; i < 10; ++i) request.prompt.emplace_back(i * 7 % kUsableIds);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = max_tokens;
  request.speculation.draft_tokens = draft_tokens;
  return request;
}

// The drafter has no idea in one turn of twenty, so counts of steps are bounds.
TEST(Speculation, RightDraftsSaveStepsAndAreCounted) {
  Rig rig;
  const Request request = Greedy(200, 9);
  const Rig::Stream stream = rig.Submit(request, 100);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->tokens(), rig.Answer(request).tokens);
  const EngineStats stats = rig.engine->Stats();
  EXPECT_EQ(stats.generated_tokens, 200);
  EXPECT_LT(stats.steps, 35);  // 20 of ten tokens each, were it not for turns without an idea.
  EXPECT_EQ(stream.report().accepted_tokens, stream.report().drafted_tokens);
  EXPECT_EQ(stats.steps - 1 + stream.report().accepted_tokens, 199);  // The prompt's step gives the first token.
  EXPECT_EQ(stats.speculation.rounds, stream.report().rounds);
  EXPECT_EQ(stats.speculation.drafted_tokens, stream.report().drafted_tokens);
  EXPECT_EQ(stats.speculation.accepted_tokens, stream.report().accepted_tokens);
  EXPECT_EQ(stream.report().fallback_reason, "");
}

TEST(Speculation, WrongDraftsChangeNothingButTheNumberOfRows) {
  Rig rig;
  const Request request = Greedy(100, 4);
  const Rig::Stream stream = rig.Submit(request, 0);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->tokens(), rig.Answer(request).tokens);
  EXPECT_LT(stream.report().accepted_tokens, 15);  // One wrong token in sixty is right by chance.
  EXPECT_GT(stream.report().rounds, 70);
}

TEST(Speculation, TheLengthOfADraftIsWhatTheRequestSays) {
  for (const int32_t length : {1, 3, 64}) {
    Rig rig;
    const Rig::Stream stream = rig.Submit(Greedy(300, length), 100);
    rig.RunUntilIdle();
    // Rows of logits bound a draft too: 64 with that of the known token.
    const int32_t most = std::min(length, 63);
    EXPECT_LE(stream.report().drafted_tokens, stream.report().rounds * most);
    EXPECT_GT(stream.report().drafted_tokens, (stream.report().rounds - 1) * most - 1);
  }
}

// --- Ends inside accepted runs: nothing behind them is seen ---

TEST(Speculation, AStopTokenEndsARun) {
  Rig rig;
  Request request = Greedy(60, 16);
  const std::vector<TokenId> answer = rig.Answer(request).tokens;
  request.stopping.stop_token_ids = {answer[20]};
  const Rig::Stream stream = rig.Submit(request, 100);
  rig.truths[stream.id].tokens.insert(rig.truths[stream.id].tokens.end(), 40, TokenId(1));
  rig.RunUntilIdle();
  const sim::Expected expected = rig.Answer(request);
  EXPECT_EQ(stream.events->tokens(), expected.tokens);
  EXPECT_EQ(stream.events->text(), expected.text);
  EXPECT_EQ(stream.events->finished()->reason, FinishReason::kStop);
  EXPECT_EQ(std::get<TokenId>(stream.events->finished()->matched), answer[20]);
}

TEST(Speculation, AStopStringOverTwoDraftedTokensEndsARun) {
  Rig rig;
  Request request = Greedy(60, 16);
  const std::vector<TokenId> answer = rig.Answer(request).tokens;
  request.stopping.stop = {rig.tokenizer.Decode(std::span(answer).subspan(10, 2), true)};
  const Rig::Stream stream = rig.Submit(request, 100);
  rig.RunUntilIdle();
  const sim::Expected expected = rig.Answer(request);
  EXPECT_LT(expected.tokens.size(), 60U);
  EXPECT_EQ(stream.events->tokens(), expected.tokens);
  EXPECT_EQ(stream.events->text(), expected.text);
}

TEST(Speculation, NeverMoreTokensThanAllowed) {
  for (const int32_t tokens : {1, 2, 3, 17}) {
    Rig rig;
    const Rig::Stream stream = rig.Submit(Greedy(tokens, 64), 100);
    rig.RunUntilIdle();
    EXPECT_EQ(stream.events->tokens().size(), static_cast<size_t>(tokens));
    EXPECT_LE(stream.report().drafted_tokens, std::max(0, tokens - 2));  // The last token needs no row behind it.
  }
}

TEST(Speculation, GoesToTheEndOfAllPages) {
  Rig rig;
  Request request = Greedy(INT32_MAX, 8);
  request.prompt.resize(static_cast<size_t>(40 * 64 - 5), TokenId(3));
  request.stopping.max_tokens = 5;
  const Rig::Stream stream = rig.Submit(request, 100);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->tokens(), rig.Answer(request).tokens);
}

TEST(Speculation, ScoresPenaltiesAndSeedsAreThoseOfAPlainRun) {
  Request request = Greedy(80, 7);
  request.sampling = {.temperature = 1.0F,
                      .top_p = 0.95F,
                      .repetition_penalty = 1.3F,
                      .frequency_penalty = 0.5F,
                      .seed = 77,
                      .logit_bias = {},
                      .allowed_token_ids = {}};
  request.stopping.min_tokens = 30;
  request.stopping.stop_token_ids = {TokenId(0), TokenId(1), TokenId(2), TokenId(3)};
  request.output = {.logprobs = 3, .prompt_logprobs = 2, .logprob_bits = true};
  Rig plain;
  const auto events = std::make_shared<Collector>();
  ASSERT_TRUE(plain.engine->Submit(request, events).ok());
  plain.RunUntilIdle();
  for (const int32_t agreement : {0, 70, 100}) {
    Rig rig;
    const Rig::Stream stream = rig.Submit(request, agreement);
    rig.RunUntilIdle();
    EXPECT_EQ(BitsOf(*stream.events), BitsOf(*events)) << agreement;
    EXPECT_EQ(stream.events->text(), events->text());
    EXPECT_EQ(stream.events->finished()->kv_bytes, events->finished()->kv_bytes);
  }
  EXPECT_FALSE(events->finished()->speculation.has_value());
}

// --- Outside events between rounds ---

TEST(Speculation, AReaderThatFallsBehindStopsARunWhereItStands) {
  Rig rig;
  const Request request = Greedy(60, 16);
  const Rig::Stream stream = rig.Submit(request, 100, /*bound=*/5);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->events(), 5);  // Started and four tokens: the rest of the draft is not taken.
  while (stream.events->ends() == 0) {
    rig.engine->Unpause(stream.id);
    rig.engine->RunOneStep();
  }
  EXPECT_EQ(stream.events->tokens(), rig.Answer(request).tokens);
}

TEST(Speculation, CancelledAndPreemptedSequencesLeaveRightMemory) {
  EngineOptions options;
  options.max_pages = 6;
  Rig rig(options);
  std::vector<Request> requests;
  std::vector<Rig::Stream> streams;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(Greedy(110, 6));
    requests.back().prompt[0] = TokenId(i);
    streams.push_back(rig.Submit(requests.back(), 80));
  }
  for (int i = 0; i < 12; ++i) rig.engine->RunOneStep();
  rig.engine->Cancel(streams[0].id);
  rig.RunUntilIdle();
  EXPECT_GT(rig.engine->Stats().preemptions, 0);
  EXPECT_EQ(streams[0].events->failed()->code(), StatusCode::kCancelled);
  for (size_t i = 1; i < streams.size(); ++i) {
    EXPECT_EQ(streams[i].events->tokens(), rig.Answer(requests[i]).tokens);
  }
  // What the cancelled one left is right: the next turn resumes from it.
  Request turn = requests[0];
  const std::vector<TokenId>& left = streams[0].events->tokens();
  turn.prompt.insert(turn.prompt.end(), left.begin(), left.end());
  const Rig::Stream again = rig.Submit(turn, 80);
  rig.RunUntilIdle();
  EXPECT_EQ(again.events->tokens(), rig.Answer(turn).tokens);
}

TEST(Speculation, AnEndInsideARunIsResumedFromByTheNextTurn) {
  Rig rig;
  Request request = Greedy(60, 16);
  const std::vector<TokenId> answer = rig.Answer(request).tokens;
  request.stopping.stop_token_ids = {answer[40]};
  const Rig::Stream stream = rig.Submit(request, 100);
  rig.RunUntilIdle();
  const auto output = static_cast<int32_t>(stream.events->tokens().size());
  Request turn = request;
  turn.prompt.insert(turn.prompt.end(), stream.events->tokens().begin(), stream.events->tokens().end());
  turn.prompt.emplace_back(5);
  const Rig::Stream next = rig.Submit(turn, 100);
  rig.RunUntilIdle();
  EXPECT_EQ(next.events->tokens(), rig.Answer(turn).tokens);
  // All but the last token, which was sampled and never run.
  EXPECT_EQ(next.events->finished()->reuse.state_match_tokens, 10 + output - 1);
}

// --- What became of drafted tokens ---

int64_t DroppedFor(const EngineStats& stats, const DropReason reason) {
  return stats.speculation.dropped_tokens[static_cast<size_t>(reason)];
}

// Whatever was drafted and verified was right, or is counted once under what kept it from saving a step.
int64_t VerifiedInVain(const EngineStats& stats) {
  return DroppedFor(stats, DropReason::kWrong) + DroppedFor(stats, DropReason::kEnded) +
         DroppedFor(stats, DropReason::kReaderBehind);
}

TEST(Speculation, DraftedTokensThatSaveNothingAreCountedByTheirReason) {
  Rig wrong;
  wrong.Submit(Greedy(100, 4), 50);
  wrong.RunUntilIdle();
  EngineStats stats = wrong.engine->Stats();
  EXPECT_GT(DroppedFor(stats, DropReason::kWrong), 50);
  EXPECT_EQ(VerifiedInVain(stats), stats.speculation.drafted_tokens - stats.speculation.accepted_tokens);
  EXPECT_EQ(DroppedFor(stats, DropReason::kLeft), 0);

  Rig stopped;
  Request request = Greedy(60, 16);
  request.stopping.stop_token_ids = {stopped.Answer(request).tokens[20]};
  const Rig::Stream stream = stopped.Submit(request, 100);
  stopped.truths[stream.id].tokens.insert(stopped.truths[stream.id].tokens.end(), 40, TokenId(1));
  stopped.RunUntilIdle();
  stats = stopped.engine->Stats();
  EXPECT_GT(DroppedFor(stats, DropReason::kEnded), 0);
  EXPECT_EQ(VerifiedInVain(stats), stats.speculation.drafted_tokens - stats.speculation.accepted_tokens);

  Rig paused;
  paused.Submit(Greedy(60, 16), 100, /*bound=*/5);
  paused.RunUntilIdle();
  EXPECT_GT(DroppedFor(paused.engine->Stats(), DropReason::kReaderBehind), 8);

  EngineOptions narrow;
  narrow.max_logits_rows = 8;
  Rig cut(narrow);
  cut.Submit(Greedy(100, 16), 100);
  cut.RunUntilIdle();
  EXPECT_GT(DroppedFor(cut.engine->Stats(), DropReason::kNoRoom), 50);

  EngineOptions tight;
  tight.max_pages = 6;
  Rig preempted(tight);
  for (int32_t i = 0; i < 6; ++i) preempted.Submit(Greedy(110, 6), 100);
  preempted.RunUntilIdle();
  EXPECT_GT(preempted.engine->Stats().preemptions, 0);
  EXPECT_GT(DroppedFor(preempted.engine->Stats(), DropReason::kLeft), 0);
}

// --- Falling back ---

TEST(Speculation, DraftsThatAreNeverRightAreGivenUpAndTriedNowAndThen) {
  Rig rig;
  const Request request = Greedy(1000);
  const Rig::Stream stream = rig.Submit(request, 0);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.report().fallback_reason, "unprofitable");
  EXPECT_LT(stream.report().drafted_tokens, 100);  // Each costs 0.15 tokens by the guess: 1 % of 1000 is 67 of them.
  EXPECT_GT(stream.report().rounds, 20);
  EXPECT_GT(rig.engine->Stats().speculation.fallbacks[0], 800);
}

// Tokens that run again after a preemption were paid for when they were sampled.
TEST(Speculation, APreemptionIsNoCreditForTries) {
  EngineOptions options;
  options.prefix_cache = false;
  options.max_pages = 12;
  Rig rig(options);
  Request request = Greedy(60);
  request.prompt.resize(500, TokenId(3));
  const Rig::Stream stream = rig.Submit(request, 0);
  Request urgent = request;
  urgent.priority = 1;
  urgent.stopping.max_tokens = 2;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 12; ++i) rig.engine->RunOneStep();
    rig.Submit(urgent, 0);
  }
  rig.RunUntilIdle();
  EXPECT_EQ(stream.events->finished()->preemptions, 4);
  EXPECT_LE(stream.report().drafted_tokens,
            10);  // Each costs 0.15 tokens by the guess: 0.5 and 1 % of 60 is 7 of them.
}

TEST(Speculation, DraftsThatAreRightGrowLong) {
  Rig rig;
  const Rig::Stream stream = rig.Submit(Greedy(1000), 100);
  rig.RunUntilIdle();
  EXPECT_EQ(stream.report().fallback_reason, "");
  EXPECT_GT(stream.report().drafted_tokens, 8 * stream.report().rounds);
  EXPECT_LT(rig.engine->Stats().steps, 150);
}

TEST(Speculation, ADrafterWithoutGuessesIsNamed) {
  Rig rig;
  Request request = Greedy(12);
  request.speculation.drafter = "ngram";
  for (int32_t i = 0; i < 10; ++i) request.prompt[static_cast<size_t>(i)] = TokenId(i);
  const auto events = std::make_shared<Collector>();
  ASSERT_TRUE(rig.engine->Submit(request, events).ok());
  rig.RunUntilIdle();
  EXPECT_EQ(events->finished()->speculation->rounds, 0);
  EXPECT_EQ(events->finished()->speculation->fallback_reason, "nothing_drafted");
}

TEST(Speculation, PromptLookupFindsWhatRepeats) {
  Rig rig;
  Request request = Greedy(300, 4);
  request.speculation.drafter = "ngram";
  request.sampling.temperature = 0.7F;
  request.sampling.allowed_token_ids = {TokenId(5), TokenId(9)};  // Runs of three recur at once.
  const auto events = std::make_shared<Collector>();
  ASSERT_TRUE(rig.engine->Submit(request, events).ok());
  rig.RunUntilIdle();
  EXPECT_EQ(events->tokens(), rig.Answer(request).tokens);
  EXPECT_GT(events->finished()->speculation->accepted_tokens, 50);
}

// --- Refusals ---

TEST(Speculation, UnknownDraftersAndLengthsOutsideTheLimitAreRefused) {
  EngineOptions options;
  options.draft_tokens_max = 8;
  Rig rig(options);
  const auto refused = [&](const char* const drafter, const std::optional<int32_t> length) {
    Request request = Greedy(4, length);
    request.speculation.drafter = drafter;
    return rig.engine->Submit(request, std::make_shared<Collector>()).status();
  };
  EXPECT_EQ(refused("crystal_ball", {}).field(), "kv_policy.drafter");
  EXPECT_NE(refused("crystal_ball", {}).message().find("ngram"), std::string::npos);
  EXPECT_EQ(refused("ngram", 0).field(), "kv_policy.draft_tokens");
  EXPECT_EQ(refused("ngram", 9).field(), "kv_policy.draft_tokens");
  EXPECT_TRUE(refused("ngram", 8).ok());
  options.draft_tokens_max = 0;
  Rig without(options);
  Request request = Greedy(4);
  request.speculation.drafter = "ngram";
  EXPECT_EQ(without.engine->Submit(request, std::make_shared<Collector>()).status().field(), "kv_policy.exactness");
}

TEST(Speculation, ADrafterThatTheModelCannotHaveIsRefusedWithThoseThereAre) {
  Rig rig;
  Request request = Greedy(4);
  request.speculation.drafter = "mtp";
  const Status refused = rig.engine->Submit(request, std::make_shared<Collector>()).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.field(), "kv_policy.drafter");
  EXPECT_EQ(refused.message(),
            "kv_policy.drafter: wants one of ngram, dialled, found mtp (the model has no multi-token head)");
  EXPECT_EQ(rig.engine->drafters(), (std::vector<std::string>{"ngram", "dialled"}));
}

// --- Memory of logs ---

TEST(Speculation, LogsTakeABoundedShareOfTheBudget) {
  models::ModelSpec spec;
  spec.page_bytes = 64 << 10;
  spec.state_bytes = 1 << 20;
  spec.state_log_head_bytes = 100 << 10;
  spec.state_log_row_bytes = 40 << 10;
  EngineOptions options;
  options.max_logits_rows = 8;
  options.max_running = 3;
  options.kv_budget_bytes = int64_t{1} << 30;
  // Eight rows, and three heads of three rows each.
  EXPECT_EQ(LogHeadRows(spec), 3);
  const MemoryPlan wide = PlanMemory(spec, options).value();
  EXPECT_EQ(wide.log_bytes, 17 * spec.state_log_row_bytes);
  EXPECT_EQ(LogRows(spec, wide), 17);
  EXPECT_EQ(wide.budget_bytes + wide.log_bytes, options.kv_budget_bytes);
  options.kv_budget_bytes = int64_t{8} << 20;
  const MemoryPlan narrow = PlanMemory(spec, options).value();
  EXPECT_EQ(narrow.log_bytes, (8 << 20) / kLogShare);
  EXPECT_EQ(narrow.budget_bytes + narrow.log_bytes, options.kv_budget_bytes);
  options.draft_tokens_max = 0;
  EXPECT_EQ(PlanMemory(spec, options)->log_bytes, 0);
  spec.state_bytes = spec.state_log_head_bytes = spec.state_log_row_bytes = 0;
  options.draft_tokens_max = 8;
  const MemoryPlan dense = PlanMemory(spec, options).value();
  EXPECT_EQ(dense.log_bytes, 0);
  EXPECT_EQ(LogRows(spec, dense), INT32_MAX);
}

TEST(Speculation, WithoutMemoryForALogEverybodyDecodesPlainly) {
  EngineOptions options;
  options.kv_budget_bytes = 1200;  // 75 bytes for logs: one row.
  options.max_running = 1;
  Rig rig(options);
  const Request request = Greedy(20, 4);
  const Rig::Stream stream = rig.Submit(request, 100);
  rig.RunUntilIdle();
  ASSERT_TRUE(stream.events->finished().has_value());
  EXPECT_EQ(stream.events->tokens(), rig.Answer(request).tokens);
  EXPECT_EQ(stream.report().rounds, 0);
  EXPECT_EQ(stream.report().fallback_reason, "no_room");
}

}  // namespace
}  // namespace invar::engine
