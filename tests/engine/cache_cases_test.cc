// What users of other servers met with prefix caches of hybrid models, as tests of this one: through the whole engine,
// on the model of hashes, whose every answer is compared with what its prefix gives. Names start with the fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/engine/collector.h"
#include "tools/sim/oracle.h"
#include "tools/sim/sim_tokenizer.h"

namespace invar::engine {
namespace {

using kernels::kPageTokens;
using Tokens = std::vector<TokenId>;

constexpr int32_t kIds = 60;
// A state of twelve pages and a page of 512 bytes: about the proportion of Qwen3.5-0.8B, 25 pages a state.
constexpr models::FingerprintOptions kHybrid{
    .attention_layers = 1, .recurrent_layers = 2, .state_padding_bytes = 6128, .max_sequence_tokens = 4096};
constexpr models::FingerprintOptions kDense{.attention_layers = 1, .recurrent_layers = 0, .max_sequence_tokens = 4096};
constexpr int64_t kPageBytes = 512;
constexpr int64_t kStateBytes = 6144;

Tokens Ids(const uint64_t salt, const int32_t count) {
  Tokens tokens;
  uint64_t x = salt * 0x9E3779B97F4A7C15ULL + 1;
  for (int32_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.emplace_back(static_cast<int32_t>((x >> 33) % kIds));
  }
  return tokens;
}
Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// `shared` tokens of one text, then others; the first of these differs with `salt`.
Tokens Branch(const int32_t shared, const int32_t salt, const int32_t own = 100) {
  return Join(Join(Ids(1, shared), {TokenId(salt % kIds)}), Ids(1000 + salt, own));
}

Request Greedy(Tokens prompt, const int32_t max_tokens = 2) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = max_tokens;
  return request;
}

class Rig {
 public:
  struct Stream {
    Request request;
    SequenceId id;
    std::shared_ptr<Collector> events;
  };

  explicit Rig(const models::FingerprintOptions& model, EngineOptions options = {}) : model_(model) {
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    engine_ = Engine::Create(options, models::MakeFingerprintModel(model), &tokenizer_, clock_).value();
  }

  Stream Submit(Request request) {
    auto events = std::make_shared<Collector>();
    const SequenceId id = engine_->Submit(request, events).value();
    return {std::move(request), id, std::move(events)};
  }
  bool Step() {
    clock_.Advance(1'000'000);
    return engine_->RunOneStep();
  }
  void RunUntilIdle() {
    while (Step()) {
    }
  }
  // Its answer must be what its tokens alone give.
  void Judge(const Stream& stream) {
    ASSERT_TRUE(stream.events->finished().has_value());
    EXPECT_EQ(stream.events->tokens(), sim::ExpectedAnswer(stream.request, model_, tokenizer_).tokens);
  }
  PrefixReuse Run(Request request, Tokens* const answer = nullptr) {
    const Stream stream = Submit(std::move(request));
    RunUntilIdle();
    Judge(stream);
    if (answer != nullptr) *answer = stream.events->tokens();
    return stream.events->finished()->reuse;
  }
  Engine& engine() { return *engine_; }
  EngineStats stats() const { return engine_->Stats(); }

 private:
  const models::FingerprintOptions model_;
  const sim::SimTokenizer tokenizer_{kIds};
  SimulatedClock clock_;
  std::unique_ptr<Engine> engine_;
};

class CacheCases : public testing::TestWithParam<models::FingerprintOptions> {
 protected:
  bool has_state() const { return GetParam().recurrent_layers > 0; }
};
INSTANTIATE_TEST_SUITE_P(Models, CacheCases, testing::Values(kHybrid, kDense),
                         [](const auto& p) { return p.param.recurrent_layers > 0 ? "hybrid" : "dense"; });

// vllm-project/vllm#56524 (case 2): a recycled slot still held its last owner's state.
TEST_P(CacheCases, RecycledSlotsHoldNothingOfTheirLastOwners) {
  for (const bool caches : {true, false}) {
    Rig rig(GetParam(), {.max_running = 4, .prefix_cache = caches});
    std::vector<Rig::Stream> all;
    for (int32_t i = 0; i < 4; ++i) all.push_back(rig.Submit(Greedy(Ids(i, 300), 50)));
    for (int32_t i = 0; i < 8; ++i) rig.Step();
    EXPECT_EQ(rig.stats().slots_used, 4);
    for (const Rig::Stream& stream : all) rig.engine().Cancel(stream.id);
    rig.RunUntilIdle();
    EXPECT_EQ(rig.stats().cancelled, 4);
    std::vector<Rig::Stream> after;
    for (int32_t i = 0; i < 4; ++i) after.push_back(rig.Submit(Greedy(Ids(i, 1 + i % 2), 5)));
    rig.RunUntilIdle();
    for (const Rig::Stream& stream : after) rig.Judge(stream);
  }
}

// Answers of a thread come when they come: what is placed then differs from run to run, what is answered does not.
TEST(CacheLearning, OnAThreadOfItsOwnChangesNoAnswer) {
  Rig rig(kHybrid, {.plans_on_a_thread = true});
  const auto planned = [&] {
    return rig.stats().cache.checkpoints_made[static_cast<size_t>(cache::CheckpointKind::kPlanned)];
  };
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int32_t document = 0;
  while ((document < 40 || planned() == 0) && std::chrono::steady_clock::now() < give_up) {
    ++document;
    const Tokens text = Ids(10 * document, 700);
    rig.Run(Greedy(text, 3));
    for (int32_t follow = 1; follow <= 2; ++follow) {
      const int32_t shared = 440 + (document * 37 + follow * 11) % 80;
      rig.Run(Greedy(Join(Tokens(text.begin(), text.begin() + shared), Ids(10 * document + follow, 60)), 3));
    }
  }
  EXPECT_GT(planned(), 0);
}

// vllm-project/vllm#48401, #45238, #40696, #51198 (case 4): accepted in the configuration, never a hit; and short
// shared prefixes that an inflated block size leaves out.
TEST_P(CacheCases, SharedPrefixesOfAnyLengthHitFromTheThirdSightingOn) {
  for (const int32_t shared : {8, 50, 100, 300, 600, 2000}) {
    Rig rig(GetParam());
    EXPECT_EQ(rig.Run(Greedy(Branch(shared, 1))).state_match_tokens, 0);
    const PrefixReuse second = rig.Run(Greedy(Branch(shared, 2)));
    EXPECT_EQ(second.kv_match_tokens, shared);
    EXPECT_EQ(second.state_match_tokens, has_state() ? 0 : shared);
    EXPECT_EQ(second.recomputed_tokens, has_state() ? shared : 0);
    for (int32_t i = 3; i < 6; ++i) EXPECT_EQ(rig.Run(Greedy(Branch(shared, i))).state_match_tokens, shared) << i;
  }
}

// vllm-project/vllm#55697: the application knows where requests part.
TEST_P(CacheCases, AHintHitsFromTheSecondSightingOn) {
  for (const int32_t shared : {9, 63, 64, 65, 777}) {
    Rig rig(GetParam());
    Request first = Greedy(Branch(shared, 1));
    first.cache.hints = {shared};
    rig.Run(first);
    EXPECT_EQ(rig.Run(Greedy(Branch(shared, 2))).state_match_tokens, shared);
  }
}

// vllm-project/vllm#45238: 100 tokens moved between shared and own part turned 52 hits of 64 into 0, and no number said
// why.
TEST_P(CacheCases, MovingTokensBetweenSharedAndOwnPartKeepsTheHits) {
  for (const int32_t shared : {900, 1000, 1100}) {
    Rig rig(GetParam());
    int32_t hits = 0;
    for (int32_t i = 0; i < 16; ++i) {
      const PrefixReuse reuse = rig.Run(Greedy(Branch(shared, i, 1200 - shared)));
      hits += reuse.state_match_tokens == shared ? 1 : 0;
      EXPECT_EQ(reuse.kv_match_tokens, i == 0 ? 0 : shared) << "what was found is said even where it is not used";
    }
    EXPECT_GE(hits, 14);
  }
}

// ggml-org/llama.cpp#20225 and others (case 5): an append-only chat computed everything again each turn.
TEST_P(CacheCases, ChatOfEightTurnsComputesItsNewTokens) {
  constexpr int32_t kNew = 40;
  Rig rig(GetParam());
  Tokens chat = Ids(7, 500);
  for (int32_t turn = 1; turn <= 8; ++turn) {
    Tokens answer;
    const PrefixReuse reuse = rig.Run(Greedy(chat, 30), &answer);
    // The last token of an answer has not run: it is among the new ones.
    if (turn > 1) {
      EXPECT_LE(reuse.computed_tokens, kNew + 1) << "turn " << turn;
    }
    chat = Join(Join(chat, answer), Ids(100 + turn, kNew));
  }
}

// ikawrakow/ik_llama.cpp#1932 (case 6): clean at two sequences, broken at three.
TEST_P(CacheCases, IdenticalPromptsAtOnceGiveOneAnswer) {
  for (const int32_t count : {2, 3, 4, 8, 16}) {
    for (const int32_t steps_between : {0, 1, 3}) {
      Rig rig(GetParam(), {.max_batch_tokens = 100});
      std::vector<Rig::Stream> streams;
      for (int32_t i = 0; i < count; ++i) {
        streams.push_back(rig.Submit(Greedy(Ids(3, 150), 70)));
        for (int32_t s = 0; s < steps_between; ++s) rig.Step();
      }
      // Some slots are given back in the middle: what runs on is not in one row.
      if (count >= 4) rig.engine().Cancel(streams[1].id);
      rig.RunUntilIdle();
      for (int32_t i = 0; i < count; ++i) {
        if (count < 4 || i != 1) rig.Judge(streams[i]);
      }
    }
  }
}

TEST_P(CacheCases, PromptsWithMarkersOfTheirOwnGiveTheirOwnAnswers) {
  for (const int32_t count : {2, 3, 4, 8, 16}) {
    Rig rig(GetParam(), {.max_batch_tokens = 64});
    std::vector<Rig::Stream> streams;
    for (int32_t round = 0; round < 2; ++round) {
      for (int32_t i = 0; i < count; ++i) streams.push_back(rig.Submit(Greedy(Branch(70, i, 20), 70)));
      rig.Step();
    }
    rig.RunUntilIdle();
    for (const Rig::Stream& stream : streams) rig.Judge(stream);
  }
}

// vllm-project/vllm, tests/v1/determinism/test_mamba2_preemption.py (case 7): state lost or applied twice.
TEST_P(CacheCases, PreemptedInPrefillAndDecodeTheyGoOnFromWhatTheCacheKept) {
  // Pages for two and a half of eight long ones; memory beside them keeps what is put aside.
  EngineOptions options{.max_batch_tokens = 64, .max_running = 8, .max_pages = 13};
  options.prefill_chunk_tokens = 32;
  Rig rig(GetParam(), options);
  std::vector<Rig::Stream> streams;
  for (int32_t i = 0; i < 8; ++i) {
    Request request = Greedy(Ids(i, 200), 120);
    request.priority = i / 3;  // Later ones push earlier ones out, in prefill too.
    streams.push_back(rig.Submit(std::move(request)));
    for (int32_t s = 0; s < 3; ++s) rig.Step();
  }
  rig.RunUntilIdle();
  for (const Rig::Stream& stream : streams) rig.Judge(stream);
  const EngineStats stats = rig.stats();
  EXPECT_GT(stats.preemptions_in_prefill, 0);
  EXPECT_GT(stats.preemptions, stats.preemptions_in_prefill);
  EXPECT_GT(stats.cache.state_match_tokens, 0) << "none was resumed: all prompts differ, so only from put aside";
}

// LMCache/LMCache#2845 (case 8): a prefix counted as there for all layers though its state was not.
TEST(CacheCase, KvWithoutItsStateIsReadAndItsStateRunAgain) {
  Rig rig(kHybrid);
  rig.Run(Greedy(Ids(1, 400)));
  EXPECT_TRUE(rig.engine().FlushCache({.part = cache::CachedPart::kStates}).ok());
  const PrefixReuse reuse = rig.Run(Greedy(Ids(1, 450)));
  EXPECT_EQ(reuse.kv_match_tokens, 400);
  EXPECT_EQ(reuse.state_match_tokens, 0);
  EXPECT_EQ(reuse.recomputed_tokens, 400);
  EXPECT_EQ(reuse.computed_tokens, 450);
  EXPECT_EQ(rig.Run(Greedy(Branch(400, 9))).state_match_tokens, 400) << "its state is there again";
}

TEST(CacheCase, StatesWithoutTheirKvAreNotUsed) {
  Rig rig(kHybrid);
  rig.Run(Greedy(Ids(1, 400)));
  EXPECT_TRUE(rig.engine().FlushCache({.part = cache::CachedPart::kKv}).ok());
  const PrefixReuse reuse = rig.Run(Greedy(Ids(1, 450)));
  EXPECT_EQ(reuse.kv_match_tokens, 0);
  EXPECT_EQ(reuse.state_match_tokens, 0);
  EXPECT_EQ(rig.Run(Greedy(Ids(1, 460))).state_match_tokens, 449) << "its KV is there again";
}

// sgl-project/sglang#21158: the same prompt twice had no hit, since matching all but one token ends between states.
// sgl-project/sglang#29633: nothing was left to run, and nothing ran.
TEST_P(CacheCases, TheSamePromptAgainRunsItsLastTokenAlone) {
  for (const int32_t length : {9, 63, 64, 65, 127, 128, 129, 500}) {
    Rig rig(GetParam());
    rig.Run(Greedy(Ids(5, length)));
    for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(rig.Run(Greedy(Ids(5, length))).computed_tokens, 1) << length;
  }
}

// A checkpoint exactly at the end of a prompt left an empty batch: the deepest one before it is taken instead.
TEST_P(CacheCases, ACheckpointAtThePromptsEndLeavesATokenToRun) {
  Rig rig(GetParam());
  Tokens answer;
  rig.Run(Greedy(Ids(5, 200), 1), &answer);  // Ends with a checkpoint after 200 tokens.
  Request scored = Greedy(Ids(5, 200), 0);
  EXPECT_EQ(rig.Run(scored).computed_tokens, 1);
  EXPECT_EQ(rig.Run(Greedy(Join(Ids(5, 200), answer))).computed_tokens, 1);
}

// vllm-project/vllm#52789: a prefill cut at every checkpoint cost a forward each.
TEST_P(CacheCases, CheckpointsCutNoPrefill) {
  Rig rig(GetParam());
  Request request = Greedy(Ids(6, 400), 1);
  request.cache.hints = {70, 150, 231, 300};
  rig.Run(request);
  EXPECT_EQ(rig.stats().steps, 1);
  if (has_state()) {
    EXPECT_EQ(rig.stats().cache.checkpoints_made[static_cast<size_t>(cache::CheckpointKind::kHint)], 4);
  }
}

// openvinotoolkit/openvino.genai#3968: a checkpoint every 128 tokens took 21 GiB of one prompt, and the request failed.
TEST(CacheCase, ALongPromptLeavesFewCheckpoints) {
  Rig rig(kHybrid, {.kv_budget_bytes = 3 * kStateBytes + 64 * kPageBytes});
  const PrefixReuse reuse = rig.Run(Greedy(Ids(6, 2500)));
  EXPECT_EQ(reuse.computed_tokens, 2500);
  EXPECT_LE(rig.stats().cache.checkpoints, 2);
}

// Requests that share most of a large prompt fit together where each alone takes most of the memory.
TEST_P(CacheCases, RequestsThatShareAPromptRunTogetherInTheMemoryOfOne) {
  Rig rig(GetParam(), {.max_running = 4, .max_pages = 20});
  rig.Run(Greedy(Branch(1000, 1, 10), 1));
  rig.Run(Greedy(Branch(1000, 2, 10), 1));
  std::vector<Rig::Stream> streams;
  for (int32_t i = 3; i < 6; ++i) streams.push_back(rig.Submit(Greedy(Branch(1000, i, 10), 30)));
  for (int32_t step = 0; step < 6; ++step) rig.Step();
  EXPECT_EQ(rig.stats().running, 3);
  rig.RunUntilIdle();
  for (const Rig::Stream& stream : streams) rig.Judge(stream);
  EXPECT_EQ(rig.stats().preemptions, 0);
}

// What a preempted request really ran of its prompt, not what was expected at the start.
TEST_P(CacheCases, FinishedSaysHowManyPromptTokensRan) {
  Rig rig(GetParam(), {.max_batch_tokens = 64, .max_running = 2, .max_pages = 6, .prefix_cache = false});
  const Rig::Stream low = rig.Submit(Greedy(Ids(1, 300), 3));
  for (int32_t step = 0; step < 3; ++step) rig.Step();
  Request urgent = Greedy(Ids(2, 200), 3);
  urgent.priority = 1;
  const Rig::Stream high = rig.Submit(std::move(urgent));
  rig.RunUntilIdle();
  rig.Judge(low);
  rig.Judge(high);
  EXPECT_EQ(low.events->finished()->preemptions, 1);
  EXPECT_EQ(low.events->finished()->reuse.computed_tokens, 300 + 3 * 64);
  EXPECT_EQ(high.events->finished()->reuse.computed_tokens, 200);
}

// A preempted prompt that comes back is no second request: the planner learns of it as of one that was not preempted.
TEST(CacheCase, PreemptedPromptsTeachAsOthersDo) {
  Rig rig(kHybrid, {.max_batch_tokens = 64, .max_running = 1, .kv_budget_bytes = 4 << 20});
  // No two begin alike.
  const auto text = [](const int32_t i, const int32_t tokens) { return Join({TokenId(i)}, Ids(100 + i, tokens - 1)); };
  for (int32_t i = 0; i < 25; ++i) {
    const Rig::Stream low = rig.Submit(Greedy(text(i, 700), 3));
    for (int32_t step = 0; step < 6; ++step) rig.Step();
    Request urgent = Greedy(text(25 + i, 300), 1);
    urgent.priority = 1;
    const Rig::Stream high = rig.Submit(std::move(urgent));
    rig.RunUntilIdle();
    rig.Judge(low);
    rig.Judge(high);
    EXPECT_EQ(low.events->finished()->preemptions, 1);
    rig.Run(Greedy(Join(text(i, 500), Ids(400 + i, 30)), 1));
  }
  rig.Run(Greedy(text(59, 700), 1));
  EXPECT_GT(rig.stats().cache.checkpoints_made[static_cast<size_t>(cache::CheckpointKind::kPlanned)], 0);
}

// A probation budget below one state would make a state, evict for it and drop it again, for every prompt.
TEST(CacheCase, ASmallProbationBudgetStillHoldsOneState) {
  EngineOptions options{.max_running = 1, .kv_budget_bytes = 6 * kStateBytes + 200 * kPageBytes};
  options.cache.probation_share = 1e-6;
  Rig rig(kHybrid, options);
  for (int32_t i = 0; i < 40; ++i) rig.Run(Greedy(Branch(700 + i % 3, i, 300), 1));
  const auto& made = rig.stats().cache.checkpoints_made;
  const int64_t planned = made[static_cast<size_t>(cache::CheckpointKind::kPlanned)];
  EXPECT_LE(planned, 40) << "at most one a prompt at a time";
}

// sgl-project/sglang#36935: a long prefix hit nothing once its states were evicted, silently.
TEST(CacheCase, EvictedStatesAreCountedAndComeBackWhereTheyAreAskedFor) {
  // Beside a running sequence, room for the KV of all and the states of two.
  Rig rig(kHybrid, {.max_running = 1, .kv_budget_bytes = 3 * kStateBytes + 120 * kPageBytes});
  for (int32_t i = 0; i < 20; ++i) rig.Run(Greedy(Branch(600, i, 30)));
  const EngineStats stats = rig.stats();
  EXPECT_GT(stats.cache.checkpoints_evicted, 0);
  EXPECT_GT(stats.cache.recomputed_tokens, 0);
  EXPECT_EQ(rig.Run(Greedy(Branch(600, 30, 30))).state_match_tokens, 600) << "the shared state outlives the others";
}

// vllm-project/vllm#45845: states of requests nobody comes back to evicted prefixes that everybody shares.
TEST(CacheCase, WhatIsSharedOutlivesWhatIsNot) {
  Rig rig(kHybrid, {.max_running = 1, .kv_budget_bytes = 4 * kStateBytes + 60 * kPageBytes});
  for (int32_t i = 0; i < 3; ++i) rig.Run(Greedy(Branch(300, i, 20)));
  for (int32_t i = 3; i < 60; ++i) {
    if (i % 3 == 0) {
      EXPECT_EQ(rig.Run(Greedy(Branch(300, i, 20))).state_match_tokens, 300) << i;
    } else {
      rig.Run(Greedy(Ids(5000 + i, 100)));
    }
  }
  EXPECT_GT(rig.stats().cache.checkpoints_evicted, 10);
}

// sgl-project/sglang#39436: KV without a last checkpoint filled the pool, and of eight documents none hit though all
// had room.
TEST_P(CacheCases, EightDocumentsThatFitAllHit) {
  const int64_t a_document = 11 * kPageBytes + 2 * kStateBytes;
  Rig rig(GetParam(), {.max_running = 1, .kv_budget_bytes = 8 * a_document + kStateBytes + 12 * kPageBytes});
  for (int32_t i = 0; i < 8; ++i) rig.Run(Greedy(Ids(i, 640)));
  for (int32_t round = 0; round < 3; ++round) {
    for (int32_t i = 0; i < 8; ++i) EXPECT_EQ(rig.Run(Greedy(Ids(i, 640))).computed_tokens, 1) << i;
  }
}

// Case 4 again: a configuration in which nothing can ever hit says so, and only such a one.
TEST_P(CacheCases, AConfigurationThatCanNeverHitSaysSo) {
  const int64_t state = has_state() ? kStateBytes : 0;
  struct Case {
    EngineOptions options;
    bool possible;
  };
  // Budgets to the byte: none of it for state logs.
  const Case cases[] = {
      {{.prefix_cache = false}, false},
      {{.max_running = 1, .kv_budget_bytes = state + 2 * kPageBytes - 1, .draft_tokens_max = 0}, false},
      {{.max_running = 1, .kv_budget_bytes = state + 2 * kPageBytes, .draft_tokens_max = 0}, true},
      {{}, true},
  };
  for (const Case& c : cases) {
    Rig rig(GetParam(), c.options);
    EXPECT_EQ(rig.engine().why_nothing_is_reused().empty(), c.possible) << rig.engine().why_nothing_is_reused();
    rig.Run(Greedy(Ids(1, 30), 2));
    EXPECT_EQ(rig.stats().prefix_reuse_possible, c.possible);
    EXPECT_EQ(rig.Run(Greedy(Ids(1, 40), 2)).state_match_tokens > 0, c.possible);
  }
}

// --- Scope ---

TEST_P(CacheCases, TenantsAndSaltsShareNothing) {
  Rig rig(GetParam());
  const auto run = [&](const std::string& tenant, const std::string& salt) {
    Request request = Greedy(Ids(2, 200));
    request.tenant = tenant;
    request.cache.salt = salt;
    return rig.Run(std::move(request)).kv_match_tokens;
  };
  EXPECT_EQ(run("red", ""), 0);
  EXPECT_EQ(run("blue", ""), 0);
  EXPECT_EQ(run("red", "a"), 0);
  EXPECT_EQ(run("red", "b"), 0);
  EXPECT_EQ(run("reda", ""), 0);  // No ambiguity between a tenant and its salt.
  for (const auto& [tenant, salt] : {std::pair{"red", ""}, {"blue", ""}, {"red", "a"}, {"red", "b"}}) {
    EXPECT_EQ(run(tenant, salt), 200);
  }
}

TEST_P(CacheCases, BypassReadsNothingAndLeavesNothing) {
  Rig rig(GetParam());
  Request no_write = Greedy(Ids(2, 200));
  no_write.cache.bypass_write = true;
  rig.Run(no_write);
  EXPECT_EQ(rig.stats().cache.nodes, 0);
  EXPECT_EQ(rig.stats().cache.cached_bytes, 0);
  Request no_read = Greedy(Ids(2, 200));
  no_read.cache.bypass_read = true;
  rig.Run(no_read);
  EXPECT_EQ(rig.stats().cache.queries, 1) << "the first only";
  EXPECT_EQ(rig.Run(no_read).kv_match_tokens, 0);
  EXPECT_EQ(rig.Run(Greedy(Ids(2, 200))).kv_match_tokens, 200) << "but it has left what it computed";
}

TEST_P(CacheCases, FlushingOneScopeLeavesTheOthers) {
  Rig rig(GetParam());
  const auto run = [&](const std::string& tenant) {
    Request request = Greedy(Ids(2, 200));
    request.tenant = tenant;
    return rig.Run(std::move(request)).kv_match_tokens;
  };
  run("red");
  run("blue");
  EXPECT_TRUE(rig.engine().FlushCache({.tenant = "red", .salt = ""}).ok());
  EXPECT_EQ(run("red"), 0);
  EXPECT_EQ(run("blue"), 200);
  EXPECT_TRUE(rig.engine().FlushCache({}).ok());
  rig.Step();
  EXPECT_EQ(rig.stats().cache.cached_bytes, 0);
  EXPECT_EQ(run("blue"), 0);
}

TEST_P(CacheCases, ARunningRequestGoesOnWhenTheCacheIsFlushed) {
  for (const cache::CachedPart part : {cache::CachedPart::kAll, cache::CachedPart::kKv, cache::CachedPart::kStates}) {
    Rig rig(GetParam(), {.max_batch_tokens = 50});
    rig.Run(Greedy(Ids(2, 200)));
    const Rig::Stream stream = rig.Submit(Greedy(Ids(2, 350), 80));
    rig.Step();
    EXPECT_GT(rig.stats().cache.kv_match_tokens, 0) << "it runs on what is flushed";
    for (int32_t i = 0; i < 90; ++i) {
      EXPECT_TRUE(rig.engine().FlushCache({.part = part}).ok());
      rig.Step();
    }
    rig.RunUntilIdle();
    rig.Judge(stream);
  }
}

// Answers come from the step after the question; where no step can follow, the question is refused.
TEST_P(CacheCases, QuestionsAboutTheCacheAreAnsweredBetweenSteps) {
  Rig rig(GetParam());
  Request request = Greedy(Ids(2, 200));
  request.tenant = "red";
  request.cache.hints = {100};
  std::vector<cache::PlanReport> plans;
  std::vector<CacheSnapshot> snapshots;
  std::vector<cache::FlushReport> flushes;
  const auto ask = [&] {
    const Status explained =
        rig.engine().ExplainPlan(request, [&](const cache::PlanReport& plan) { plans.push_back(plan); });
    const Status reported = rig.engine().ReportCache(
        {.nodes_max = 100}, [&](CacheSnapshot snapshot) { snapshots.push_back(std::move(snapshot)); });
    EXPECT_EQ(explained.code(), reported.code());
    return explained;
  };
  EXPECT_TRUE(ask().ok());
  EXPECT_TRUE(plans.empty());
  rig.Step();
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].match.kv_tokens, 0);
  EXPECT_EQ(snapshots[0].tree.all.nodes, 0);
  rig.Run(request);
  EXPECT_TRUE(ask().ok());
  rig.Step();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1].match.kv_tokens, 200);
  EXPECT_EQ(plans[1].match.state_tokens, 199);
  EXPECT_EQ(plans[1].basis, has_state() ? cache::PlanBasis::kNothingNew : cache::PlanBasis::kNoState);
  EXPECT_EQ(snapshots[1].tree.all.nodes, snapshots[1].report.nodes);
  EXPECT_EQ(snapshots[1].tree.tenants.at(0).name, "red");
  EXPECT_EQ(snapshots[1].report.queries, 1) << "a question is no lookup";
  EXPECT_TRUE(rig.engine().FlushCache({.tenant = "red"}, [&](const auto& freed) { flushes.push_back(freed); }).ok());
  rig.Step();
  ASSERT_EQ(flushes.size(), 1u);
  EXPECT_EQ(flushes[0].bytes, snapshots[1].report.cached_bytes);
  // What is judged before a step is refused at once.
  Request bad = request;
  bad.prompt.push_back(TokenId(1 << 30));
  EXPECT_EQ(rig.engine().ExplainPlan(bad, [](const auto&) {}).code(), StatusCode::kInvalidArgument);
  // A question that is under way when the engine stops is answered, a later one is refused.
  EXPECT_TRUE(ask().ok());
  rig.engine().Stop();
  EXPECT_EQ(plans.size(), 3u);
  EXPECT_EQ(ask().code(), StatusCode::kUnavailable);
  EXPECT_EQ(rig.engine().FlushCache({}).code(), StatusCode::kUnavailable);
  EXPECT_EQ(plans.size(), 3u);
}

}  // namespace
}  // namespace invar::engine
