// The law through the whole engine, on real models: tokens and the raw bits of every logit and log-probability of a
// request are those of its lone run, whatever the token budget, the order and time of arrival of seven others, the
// number of threads, and after preemptions into poisoned memory. Prompt lengths stand around pages; sampling, penalties
// and scored prompts are among the requests.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::TinyModel;

constexpr int32_t kPromptTokens[] = {1, 2, 63, 64, 65, 100, 127, 150};
constexpr size_t kRequests = std::size(kPromptTokens);
constexpr int32_t kOutputTokens = 20;

struct Subject {
  const char* name;
  std::string folder;
  kernels::DType activations;
};

struct Setting {
  int threads = 1;
  int32_t max_batch_tokens = 512;
  int32_t pages = 64;
  int32_t order = 0;          // 0: as they are, 1: last first, 2: interleaved.
  int32_t steps_between = 0;  // From arrival to arrival.
  std::string Name() const {
    return "threads " + std::to_string(threads) + " budget " + std::to_string(max_batch_tokens) + " pages " +
           std::to_string(pages) + " order " + std::to_string(order) + " stagger " + std::to_string(steps_between);
  }
};

std::vector<Request> MakeRequests(const int32_t vocabulary) {
  std::vector<Request> requests(kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    Request& request = requests[i];
    request.prompt = testing::RandomTokens(kPromptTokens[i], vocabulary, 17 + i);
    request.stopping.max_tokens = kOutputTokens;
    request.output.logprobs = static_cast<int32_t>(i % 3);
    request.output.logprob_bits = true;
    if (i % 3 == 2) request.output.prompt_logprobs = 0;
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.sampling.seed = 1000 + i;
    if (i % 4 == 1) request.sampling.top_p = 0.9F;
    if (i % 4 == 3) request.sampling.repetition_penalty = 1.2F;
    if (i % 4 == 2) request.sampling.frequency_penalty = 0.4F;
  }
  return requests;
}

std::vector<size_t> Order(const int32_t order) {
  std::vector<size_t> indexes(kRequests);
  std::iota(indexes.begin(), indexes.end(), 0);
  if (order == 1) std::reverse(indexes.begin(), indexes.end());
  if (order == 2) std::stable_partition(indexes.begin(), indexes.end(), [](const size_t i) { return i % 2 == 1; });
  return indexes;
}

// One model with an engine around it; the engine goes first.
struct Rig {
  TinyModel tiny;
  SimulatedClock clock;
  std::unique_ptr<Engine> engine;

  Rig(const Subject& subject, const Setting& setting) {
    tiny = LoadTinyModel(subject.folder, {.backend = "cpu",
                                          .isa = {},
                                          .activations = subject.activations,
                                          .threads = setting.threads,
                                          .max_batch_tokens = 512,
                                          .max_logits_rows = 64})
               .value();
    EngineOptions options;
    options.max_batch_tokens = setting.max_batch_tokens;
    options.max_running = kRequests;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    options.max_pages = setting.pages;
    engine = Engine::Create(options, std::move(tiny.model), nullptr, clock).value();
  }
};

struct Answers {
  std::vector<std::vector<uint32_t>> bits = std::vector<std::vector<uint32_t>>(kRequests);
  EngineStats stats;
};

Answers RunTogether(const Subject& subject, const Setting& setting) {
  Rig rig(subject, setting);
  const std::vector<Request> requests = MakeRequests(rig.engine->spec().vocabulary_size);
  std::vector<std::shared_ptr<Collector>> events(kRequests);
  for (const size_t i : Order(setting.order)) {
    events[i] = std::make_shared<Collector>();
    EXPECT_TRUE(rig.engine->Submit(requests[i], events[i]).ok());
    for (int32_t step = 0; step < setting.steps_between; ++step) rig.engine->RunOneStep();
  }
  while (rig.engine->RunOneStep()) rig.clock.Advance(1);
  Answers answers;
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_TRUE(events[i]->finished().has_value());
    answers.bits[i] = BitsOf(*events[i]);
  }
  answers.stats = rig.engine->Stats();
  return answers;
}

Answers RunEachAlone(const Subject& subject) {
  Answers answers;
  Rig rig(subject, {});
  const std::vector<Request> requests = MakeRequests(rig.engine->spec().vocabulary_size);
  for (size_t i = 0; i < kRequests; ++i) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(rig.engine->Submit(requests[i], events).ok());
    while (rig.engine->RunOneStep()) rig.clock.Advance(1);
    answers.bits[i] = BitsOf(*events);
    EXPECT_EQ(events->tokens().size(), static_cast<size_t>(kOutputTokens));
  }
  return answers;
}

class EngineLaw : public ::testing::TestWithParam<Subject> {};

TEST_P(EngineLaw, BitsOfARequestAreThoseOfItsLoneRun) {
  const Answers alone = RunEachAlone(GetParam());
  int64_t preemptions = 0;
  int64_t in_prefill = 0;
  for (const int threads : {1, 2}) {
    for (const int32_t budget : {1, 3, 17, 64, 512}) {
      for (const int32_t pages : {64, 6}) {  // 64: all fit. 6: two or three of eight do.
        for (const int32_t order : {0, 1, 2}) {
          const Setting setting{.threads = threads,
                                .max_batch_tokens = budget,
                                .pages = pages,
                                .order = order,
                                .steps_between = order == 0 ? 0 : 3 * order};
          const Answers together = RunTogether(GetParam(), setting);
          for (size_t i = 0; i < kRequests; ++i) {
            ASSERT_EQ(together.bits[i], alone.bits[i]) << "request " << i << ", " << setting.Name();
          }
          preemptions += together.stats.preemptions;
          in_prefill += together.stats.preemptions_in_prefill;
          EXPECT_EQ(together.stats.pages_used, 0);
        }
      }
    }
  }
  EXPECT_GT(in_prefill, 0);
  EXPECT_GT(preemptions, in_prefill);  // While decoding too.
  RecordProperty("preemptions", static_cast<int>(preemptions));
}

INSTANTIATE_TEST_SUITE_P(Models, EngineLaw,
                         ::testing::Values(Subject{"tiny_hybrid", AssetFolder("tiny-hybrid"), kernels::DType::kBf16},
                                           Subject{"moe", GoldenFolder("qwen3_5_moe"), kernels::DType::kBf16},
                                           Subject{"dense", GoldenFolder("qwen3"), kernels::DType::kBf16},
                                           Subject{"dense_f32", GoldenFolder("llama"), kernels::DType::kF32}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
