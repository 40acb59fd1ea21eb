// The law through compressed views, on real models: an approximate answer depends on its prefix and what it was asked
// with alone. Its tokens and the raw bits of its logits are those of its lone run, whatever the budget of a step, the
// company, the number of threads, what the cache held and how often it was preempted into poisoned memory. What runs
// beside it or after it on the same prefix keeps the bits of a run without it. And its meaning is written down once
// more, by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/compressed/compressed_kv.h"
#include "engine/engine.h"
#include "engine/loop/bind_model.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::TinyModel;

constexpr int32_t kOutputTokens = 150;  // Over two boundaries and more.

struct Subject {
  const char* name;
  std::string folder;
  kernels::DType activations;
};

struct Wish {
  std::string compressor;
  std::optional<float> budget;
};
const std::vector<Wish>& Wishes() {
  static const auto* const wishes = new std::vector<Wish>{{"centroid:floor_min=-1", 0.3F},
                                                          {"centroid:encoding=kivi4,floor_min=-1", 0.5F},
                                                          {"snapkv:window=40,recent=8", 0.25F},
                                                          {"tova", 0.3F},
                                                          {"h2o:queries=24,recent=8", 0.25F},
                                                          {"expected_attention:encoding=int8", 0.4F},
                                                          {"streaming", 0.25F},
                                                          {"random_drop:encoding=int8", 0.4F},
                                                          {"int8", std::nullopt},
                                                          {"kivi2", std::nullopt}};
  return *wishes;
}

struct Rig {
  TinyModel tiny;
  SimulatedClock clock;
  std::unique_ptr<Engine> engine;

  explicit Rig(const Subject& subject, const int threads = 2, EngineOptions options = {}) {
    tiny = LoadTinyModel(subject.folder, {.backend = "cpu",
                                          .isa = {},
                                          .activations = subject.activations,
                                          .threads = threads,
                                          .max_batch_tokens = 512,
                                          .max_logits_rows = 64})
               .value();
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    engine = Engine::Create(options, std::move(tiny.model), nullptr, clock).value();
  }
  std::shared_ptr<Collector> Submit(const Request& request) {
    auto events = std::make_shared<Collector>();
    const StatusOr<SequenceId> id = engine->Submit(request, events);
    EXPECT_TRUE(id.ok()) << id.status().message();
    return events;
  }
  void RunUntilIdle() {
    while (engine->RunOneStep()) clock.Advance(1);
  }
  std::vector<uint32_t> Answer(const Request& request) {
    const std::shared_ptr<Collector> events = Submit(request);
    RunUntilIdle();
    EXPECT_TRUE(events->finished().has_value());
    return BitsOf(*events);
  }
};

// Prompts that go on from a common beginning, so that they share pages; lengths around pages and boundaries.
Request MakeRequest(const Rig& rig, const size_t i) {
  constexpr int32_t kTokens[] = {320, 383, 384, 385, 450};
  const int32_t vocabulary = rig.engine->spec().vocabulary_size;
  Request request;
  request.prompt = testing::RandomTokens(250, vocabulary, 3);
  const std::vector<TokenId> own = testing::RandomTokens(kTokens[i % std::size(kTokens)] - 250, vocabulary, 40 + i);
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.stopping.max_tokens = kOutputTokens - static_cast<int32_t>(i % 3);
  request.output.logprob_bits = true;
  if (i % 4 == 3) request.output.prompt_logprobs = 0;
  request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
  request.sampling.seed = 1000 + i;
  return request;
}
Request Approximate(Request request, const Wish& wish) {
  request.approximation = {.compressor = wish.compressor, .kv_budget = wish.budget};
  return request;
}

class ApproximateLaw : public ::testing::TestWithParam<Subject> {};

TEST_P(ApproximateLaw, AnAnswerIsThatOfItsLoneRunAndItsNeighboursAreExact) {
  const size_t count = Wishes().size();
  std::vector<std::vector<uint32_t>> exact;
  std::vector<std::vector<uint32_t>> approximate;
  for (size_t i = 0; i < count; ++i) {
    Rig cold(GetParam(), 1, {.prefix_cache = false});
    exact.push_back(cold.Answer(MakeRequest(cold, i)));
    approximate.push_back(cold.Answer(Approximate(MakeRequest(cold, i), Wishes()[i])));
    EXPECT_EQ(cold.engine->Stats().views.made, 1) << Wishes()[i].compressor;
    EXPECT_GE(cold.engine->Stats().views.upkeeps, 1) << Wishes()[i].compressor;
    EXPECT_NE(approximate.back(), exact.back()) << "the view loses something: " << Wishes()[i].compressor;
  }
  int64_t preemptions = 0;
  for (const int threads : {1, 2}) {
    for (const int32_t budget : {1, 13, 200, 512}) {
      for (const int32_t pages : {120, 13}) {  // 13: the largest alone.
        if (budget == 1 && (pages == 13 || threads == 2)) continue;
        Rig rig(GetParam(), threads, {.max_batch_tokens = budget, .max_running = 16, .max_pages = pages});
        std::vector<std::shared_ptr<Collector>> lossy;
        std::vector<std::shared_ptr<Collector>> full;
        for (size_t i = 0; i < count; ++i) {
          lossy.push_back(rig.Submit(Approximate(MakeRequest(rig, i), Wishes()[i])));
          for (int step = 0; step < 5; ++step) rig.engine->RunOneStep();
          full.push_back(rig.Submit(MakeRequest(rig, i)));
        }
        rig.RunUntilIdle();
        const std::string where = " threads " + std::to_string(threads) + " budget " + std::to_string(budget) +
                                  " pages " + std::to_string(pages);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(BitsOf(*lossy[i]), approximate[i]) << Wishes()[i].compressor << where;
          ASSERT_EQ(BitsOf(*full[i]), exact[i]) << "beside " << Wishes()[i].compressor << where;
          // And once more, from what they left in the cache.
          ASSERT_EQ(rig.Answer(MakeRequest(rig, i)), exact[i]) << "after " << Wishes()[i].compressor << where;
          ASSERT_EQ(rig.Answer(Approximate(MakeRequest(rig, i), Wishes()[i])), approximate[i])
              << "again, " << Wishes()[i].compressor << where;
        }
        const EngineStats stats = rig.engine->Stats();
        preemptions += stats.preemptions - stats.preemptions_in_prefill;
        EXPECT_GT(stats.cache.state_match_tokens, 0);
        EXPECT_EQ(stats.views.serving, 0);
        EXPECT_EQ(stats.views.body_bytes, 0);
        EXPECT_EQ(stats.pages_used, 0);
      }
    }
  }
  EXPECT_GT(preemptions, 0);
}

// The definition: prompt on full KV, then a view of it that settles every 64 tokens.
TEST_P(ApproximateLaw, AnAnswerIsWhatTheDefinitionSays) {
  for (const Wish& wish : Wishes()) {
    Rig rig(GetParam());
    Request request = Approximate(MakeRequest(rig, 4), wish);
    request.stopping.max_tokens = kOutputTokens;
    const std::shared_ptr<Collector> events = rig.Submit(request);
    rig.RunUntilIdle();

    const TinyModel tiny =
        LoadTinyModel(GetParam().folder,
                      {.backend = "cpu", .isa = {}, .activations = GetParam().activations, .threads = 1})
            .value();
    const auto prompt = static_cast<int32_t>(request.prompt.size());
    testing::SequenceArena arena(tiny.model->spec(), 1, prompt + kOutputTokens);
    arena.Reset(0);
    const auto compressor = cache::MakeCompressor(wish.compressor).value();
    CompressedKv view(*tiny.model, *compressor,
                      wish.budget.has_value() ? cache::Budget::Share(*wish.budget) : cache::Budget::Share(1));
    std::vector<TokenId> tokens = request.prompt;
    const kernels::RowSampler rows = SamplerFor(*tiny.model);
    QueryLog log(tiny.model->spec().attention);
    log.Restart(0);
    models::ForwardSpan whole = arena.Span(0, tokens, 0, 1);
    whole.observer = &log;
    const std::vector<PageId> pages(whole.pages.begin(), whole.pages.end());
    const PageRows memory{arena.memory().pages, pages};
    kernels::ConstF32View logits = tiny.model->Forward(arena.memory(), {&whole, 1});
    for (int32_t n = prompt; n < prompt + kOutputTokens; ++n) {
      tokens.push_back(TokenId(static_cast<int32_t>(
          rows.ArgMax({logits.row(0), static_cast<size_t>(rig.engine->request_limits().usable_ids)}))));
      if ((n - prompt) % 64 == 0) {
        if (n == prompt) {
          view.Make(memory, n, &log);
        } else {
          view.TakeTail(memory, 64);
          view.Settle(&log);
        }
        view.WriteTail(0, memory);
      }
      models::ForwardSpan span = arena.Span(0, std::span(tokens).subspan(static_cast<size_t>(n), 1), n, 1);
      span.view = view.At(Position(n));
      span.observer = &log;
      span.pages = pages;
      logits = tiny.model->Forward(arena.memory(), {&span, 1});
    }
    EXPECT_EQ(events->tokens(), std::vector<TokenId>(tokens.begin() + prompt, tokens.end())) << wish.compressor;
  }
}

// Whether a view pays goes by tokens alone: where it just does not, a sequence that comes back after a preemption to
// more pages of exact KV than it has tokens of its prompt must not think otherwise.
TEST_P(ApproximateLaw, WhatJustDoesNotPayStaysSoAfterAPreemption) {
  int64_t preemptions = 0;
  for (const char* const compressor : {"int8", "k8v4", "noop", "streaming", "kivi4"}) {
    for (const int32_t pages : {2, 3, 4, 5, 6}) {
      Rig cold(GetParam(), 1, {.prefix_cache = false});
      Request request = MakeRequest(cold, 0);
      request.prompt.resize(static_cast<size_t>(64 * pages), TokenId(5));
      request.stopping.max_tokens = 40;
      request = Approximate(request,
                            {compressor, std::string(compressor) == "streaming" ? std::optional(0.6F) : std::nullopt});
      const std::vector<uint32_t> want = cold.Answer(request);
      Rig rig(GetParam(), 1, {.max_pages = 13});
      const std::shared_ptr<Collector> events = rig.Submit(request);
      while (events->tokens().size() < 10) rig.engine->RunOneStep();
      Request urgent = MakeRequest(rig, 4);
      urgent.prompt[0] = TokenId(9);
      urgent.priority = 1;
      rig.Submit(urgent);
      rig.RunUntilIdle();
      preemptions += rig.engine->Stats().preemptions;
      EXPECT_EQ(BitsOf(*events), want) << compressor << ", " << pages << " pages";
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST_P(ApproximateLaw, MemoryIsThatOfTheView) {
  Rig rig(GetParam());
  const std::shared_ptr<Collector> events = rig.Submit(Approximate(MakeRequest(rig, 4), {"streaming", 0.25F}));
  rig.RunUntilIdle();
  const FinishedEvent& finished = *events->finished();
  ASSERT_TRUE(finished.view.has_value());
  EXPECT_EQ(finished.view->compressor.substr(0, 9), "streaming");
  // 600 tokens are 10 pages; of 150 slots one page lies in the body, the rest and what came since in up to 4.
  EXPECT_LT(finished.view->bytes, finished.kv_bytes * 6 / 10);
  EXPECT_GT(finished.view->bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ApproximateLaw,
                         ::testing::Values(Subject{"tiny_hybrid", AssetFolder("tiny-hybrid"), kernels::DType::kBf16},
                                           Subject{"moe", GoldenFolder("qwen3_5_moe"), kernels::DType::kBf16},
                                           Subject{"dense", GoldenFolder("qwen3"), kernels::DType::kBf16},
                                           Subject{"dense_f32", GoldenFolder("qwen3"), kernels::DType::kF32}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
