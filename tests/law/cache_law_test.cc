// The law with the prefix cache on: whatever a request finds, its tokens and the raw bits of its logits and
// log-probabilities are those of a cold run that neither reads nor writes the cache. Resumed from every position that
// can have a checkpoint, after KV or states alone are gone, beside others that share its prefix, and after preemption,
// in chunks of several sizes and on one and two threads. Freed memory is poisoned throughout.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

using kernels::kPageTokens;
using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::RandomTokens;
using testing::TinyModel;
using Tokens = std::vector<TokenId>;

struct Subject {
  const char* name;
  std::string folder;
  kernels::DType activations = kernels::DType::kBf16;
};

struct Setting {
  int threads = 1;
  int32_t chunk = 512;
  int32_t pages = 100;
  std::string Name() const {
    return "threads " + std::to_string(threads) + " chunk " + std::to_string(chunk) + " pages " + std::to_string(pages);
  }
};
constexpr int32_t kChunks[] = {1, 3, 17, 64, 512};

// Every setting has its turn where not all of them can run every case.
Setting SettingOf(const int32_t turn) {
  return {.threads = 1 + turn % 2, .chunk = kChunks[turn % std::ssize(kChunks)]};
}

struct Answer {
  std::vector<uint32_t> bits;
  PrefixReuse reuse;
};

// One model with an engine around it; the engine goes first.
class Rig {
 public:
  Rig(const Subject& subject, const Setting& setting)
      : tiny_(LoadTinyModel(subject.folder, {.backend = "cpu",
                                             .isa = {},
                                             .activations = subject.activations,
                                             .threads = setting.threads,
                                             .max_batch_tokens = 512,
                                             .max_logits_rows = 64})
                  .value()) {
    EngineOptions options;
    options.max_batch_tokens = setting.chunk;
    options.max_pages = setting.pages;
    options.max_running = 8;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    engine_ = Engine::Create(options, std::move(tiny_.model), nullptr, clock_).value();
  }

  std::shared_ptr<Collector> Submit(const Request& request) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(engine_->Submit(request, events).ok());
    return events;
  }
  bool Step() {
    clock_.Advance(1);
    return engine_->RunOneStep();
  }
  Answer Run(const Request& request) {
    const std::shared_ptr<Collector> events = Submit(request);
    while (Step()) {
    }
    return {BitsOf(*events), events->finished().value().reuse};
  }
  Answer RunCold(Request request) {
    request.cache.bypass_read = request.cache.bypass_write = true;
    return Run(request);
  }
  void Flush(const cache::CachedPart part) { ASSERT_TRUE(engine_->FlushCache({.part = part}).ok()); }
  EngineStats Stats() const { return engine_->Stats(); }
  const models::ModelSpec& spec() const { return engine_->spec(); }

 private:
  TinyModel tiny_;
  SimulatedClock clock_;
  std::unique_ptr<Engine> engine_;
};

Request Plain(Tokens prompt, const int32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = max_tokens;
  request.output.logprobs = 4;
  return request;
}

Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Tokens FirstOf(const Tokens& tokens, const int32_t count) { return {tokens.begin(), tokens.begin() + count}; }

class CacheLaw : public ::testing::TestWithParam<Subject> {
 protected:
  // An engine a setting, made when first asked for, and one for cold runs.
  Rig& RigOf(const Setting& setting) {
    std::unique_ptr<Rig>& rig = rigs_[setting.Name()];
    if (rig == nullptr) rig = std::make_unique<Rig>(GetParam(), setting);
    return *rig;
  }
  Answer Cold(const Request& request) {
    if (cold_ == nullptr) cold_ = std::make_unique<Rig>(GetParam(), Setting{});
    return cold_->RunCold(request);
  }
  int32_t vocabulary() { return RigOf({}).spec().vocabulary_size; }
  bool has_state() { return RigOf({}).spec().state_bytes > 0; }
  void TearDown() override { RecordProperty("comparisons", comparisons_); }

  int comparisons_ = 0;

 private:
  std::map<std::string, std::unique_ptr<Rig>> rigs_;
  std::unique_ptr<Rig> cold_;
};

// A hint puts a checkpoint at each position in turn; a prompt that leaves there resumes from it. (Less than eight
// tokens are not worth a checkpoint.)
TEST_P(CacheLaw, ResumedAtEveryPosition) {
  constexpr int32_t kFirst = 8;
  constexpr int32_t kPrompt = 2 * kPageTokens + 10;
  const Tokens trunk = RandomTokens(kPrompt, vocabulary(), 1);
  for (int32_t at = kFirst; at < kPrompt; ++at) {
    // Tokens of another seed: the first one must differ from the trunk's for the match to end at `at`.
    Tokens tail = RandomTokens(7, vocabulary(), 1000 + at);
    if (tail[0] == trunk[at]) tail[0] = TokenId((tail[0].value() + 1) % vocabulary());
    const Request branch = Plain(Join(FirstOf(trunk, at), tail), 2);
    const Answer cold = Cold(branch);
    for (const Setting& setting : {SettingOf(at), SettingOf(at + 3)}) {
      Rig& rig = RigOf(setting);
      rig.Flush(cache::CachedPart::kAll);
      Request first = Plain(trunk, 1);
      first.cache.hints = {at};
      rig.Run(first);
      const Answer resumed = rig.Run(branch);
      ASSERT_EQ(resumed.reuse.kv_match_tokens, at) << setting.Name();
      ASSERT_EQ(resumed.reuse.state_match_tokens, at) << setting.Name();
      ASSERT_EQ(resumed.bits, cold.bits) << "resumed at " << at << ", " << setting.Name();
      ++comparisons_;
    }
  }
}

// The whole prompt is there the second time; and once more with seven tokens behind it.
TEST_P(CacheLaw, TheSamePromptTwiceAndThenContinued) {
  const Tokens all = RandomTokens(2 * kPageTokens + 2 + 7, vocabulary(), 2);
  for (int32_t n = 1; n <= 2 * kPageTokens + 2; ++n) {
    const Request prompt = Plain(FirstOf(all, n), 2);
    const Request longer = Plain(FirstOf(all, n + 7), 2);
    const Answer cold = Cold(prompt);
    Rig& rig = RigOf(SettingOf(n));
    rig.Flush(cache::CachedPart::kAll);
    ASSERT_EQ(rig.Run(prompt).bits, cold.bits) << n;
    const Answer again = rig.Run(prompt);
    ASSERT_EQ(again.bits, cold.bits) << "the same " << n << " tokens again";
    ASSERT_LT(again.reuse.state_match_tokens, n);
    if (n > 8) {
      ASSERT_GE(again.reuse.state_match_tokens, n - 1) << "no token but the last runs again";
    }
    ASSERT_EQ(rig.Run(longer).bits, Cold(longer).bits) << n << " tokens and seven more";
    comparisons_ += 3;
  }
}

// What is left when KV or states alone are gone is used where it can be, and never more.
TEST_P(CacheLaw, AfterKvOrStatesAloneAreGone) {
  const Tokens all = RandomTokens(4 * kPageTokens, vocabulary(), 3);
  int32_t turn = 0;
  for (const int32_t n : {20, 62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 190, 191, 192, 193, 200}) {
    for (const cache::CachedPart part : {cache::CachedPart::kKv, cache::CachedPart::kStates}) {
      for (const int32_t more : {0, 7}) {
        const Request second = Plain(FirstOf(all, n + more), 3);
        const Answer cold = Cold(second);
        const Setting setting = SettingOf(turn++);
        Rig& rig = RigOf(setting);
        rig.Flush(cache::CachedPart::kAll);
        rig.Run(Plain(FirstOf(all, n), 2));
        rig.Flush(part);
        const Answer answer = rig.Run(second);
        const PrefixReuse& reuse = answer.reuse;
        ASSERT_EQ(answer.bits, cold.bits) << n << " + " << more << ", " << setting.Name();
        if (part == cache::CachedPart::kKv) {
          ASSERT_EQ(reuse.kv_match_tokens, 0) << n;
        }
        if (part == cache::CachedPart::kStates) {
          ASSERT_GE(reuse.kv_match_tokens, n) << "KV is left";
        }
        if (part == cache::CachedPart::kKv || has_state()) {
          ASSERT_EQ(reuse.state_match_tokens, 0) << n;
        }
        ASSERT_EQ(reuse.recomputed_tokens, reuse.kv_match_tokens - reuse.state_match_tokens);
        // It has put back what was missing.
        ASSERT_EQ(rig.Run(second).bits, cold.bits) << n << " + " << more << ", once more, " << setting.Name();
        comparisons_ += 2;
      }
    }
  }
}

// --- Sharers at the same time ---

constexpr int32_t kShared[] = {130, 128, 127, 100, 65, 64, 63};
constexpr size_t kSharers = std::size(kShared);
constexpr int32_t kOutputTokens = 70;  // Past a page.

std::vector<Request> Sharers(const int32_t vocabulary) {
  const Tokens trunk = RandomTokens(kShared[0], vocabulary, 4);
  std::vector<Request> requests;
  for (size_t i = 0; i < kSharers; ++i) {
    Request request = Plain(Join(FirstOf(trunk, kShared[i]), RandomTokens(5, vocabulary, 50 + i)), kOutputTokens);
    request.priority = static_cast<int32_t>(i) / 2;  // Later ones interrupt earlier ones, in prefill too.
    request.sampling.seed = 1000 + i;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    if (i % 3 == 0) request.sampling.repetition_penalty = 1.2F;
    if (i % 3 == 1) request.sampling.frequency_penalty = 0.4F;
    if (i % 4 == 2) request.output.prompt_logprobs = 1;
    if (i % 4 == 3) request.cache.hints = {61, 97};
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_P(CacheLaw, SevenSharersArriveStaggeredAndAreInterrupted) {
  const std::vector<Request> requests = Sharers(vocabulary());
  std::vector<std::vector<uint32_t>> cold;
  for (const Request& request : requests) cold.push_back(Cold(request).bits);
  int64_t hits = 0;
  int64_t preemptions = 0;
  int64_t in_prefill = 0;
  for (const int threads : {1, 2}) {
    for (const int32_t chunk : kChunks) {
      for (const int32_t pages : {100, 7}) {  // 7: memory for two of them.
        const Setting setting{.threads = threads, .chunk = chunk, .pages = pages};
        Rig& rig = RigOf(setting);
        for (const int32_t stagger : {0, 1, 9}) {
          std::vector<std::shared_ptr<Collector>> events;
          for (const Request& request : requests) {
            events.push_back(rig.Submit(request));
            for (int32_t i = 0; i < stagger; ++i) rig.Step();
          }
          while (rig.Step()) {
          }
          for (size_t i = 0; i < kSharers; ++i) {
            ASSERT_EQ(BitsOf(*events[i]), cold[i])
                << "sharer " << i << ", stagger " << stagger << ", " << setting.Name();
            hits += events[i]->finished()->cached_tokens > 0 ? 1 : 0;
            ++comparisons_;
          }
        }
        preemptions += rig.Stats().preemptions;
        in_prefill += rig.Stats().preemptions_in_prefill;
        EXPECT_EQ(rig.Stats().pages_used, 0);
      }
    }
  }
  EXPECT_GT(hits, 100);
  EXPECT_GT(in_prefill, 0);
  EXPECT_GT(preemptions, in_prefill);
}

INSTANTIATE_TEST_SUITE_P(Models, CacheLaw,
                         ::testing::Values(Subject{"tiny_hybrid", AssetFolder("tiny-hybrid")},
                                           Subject{"moe", GoldenFolder("qwen3_5_moe")},
                                           Subject{"next", GoldenFolder("qwen3_next")},
                                           Subject{"dense", GoldenFolder("qwen3")},
                                           Subject{"dense_f32", GoldenFolder("llama"), kernels::DType::kF32}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
