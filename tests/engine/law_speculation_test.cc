// The law through speculation, on real models: tokens and the raw bits of every logit and log-probability of a request
// that speculates are those of its plain run, and whenever a forward begins, state and full KV pages are bytes that
// plain decoding passes through too. Drafters that look up the prompt and that err as told, drafts of 1 to 64 tokens
// and of as many as pay, alone and in company, greedy and sampled, with cancellations and with preemptions into
// poisoned memory; then a next turn resumes from what each left.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/split_mix64.h"
#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"
#include "tools/sim/dialled_drafter.h"

namespace invar::engine {
namespace {

using testing::AssetFolder;
using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::TinyModel;

constexpr int32_t kOutputTokens = 40;

struct Subject {
  const char* name;
  std::string folder;
  kernels::DType activations;
};

uint64_t HashOf(const std::byte* const data, const int64_t bytes, uint64_t hash) {
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, sizeof word);
    hash = MixBits(hash ^ word) + 1;
  }
  return hash;
}

// Notes, before each forward, the bytes every span goes on from: position, state, and all pages that are full.
class NotingModel final : public models::Model {
 public:
  NotingModel(std::unique_ptr<models::Model> model, std::set<uint64_t>& seen) : model_(std::move(model)), seen_(seen) {}
  const models::ModelSpec& spec() const override { return model_->spec(); }
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    for (const models::ForwardSpan& span : spans) {
      if (span.first.value() == 0) continue;
      uint64_t hash = MixBits(static_cast<uint64_t>(span.first.value()));
      hash = HashOf(memory.states + span.state.value() * spec().state_bytes, spec().state_bytes, hash);
      for (int32_t p = 0; (p + 1) * kernels::kPageTokens <= span.first.value(); ++p) {
        hash = HashOf(memory.pages + span.pages[static_cast<size_t>(p)].value() * spec().page_bytes, spec().page_bytes,
                      hash);
      }
      seen_.insert(hash);
    }
    return model_->Forward(memory, spans);
  }
  kernels::ConstF32View Guess(const models::SequenceMemory& memory,
                              const std::span<const models::GuessRow> rows) override {
    return model_->Guess(memory, rows);
  }
  void Advance(const models::SequenceMemory& memory, const std::span<const models::StateAdvance> advances) override {
    model_->Advance(memory, advances);
  }

 private:
  const std::unique_ptr<models::Model> model_;
  std::set<uint64_t>& seen_;
};

struct Rig {
  TinyModel tiny;
  SimulatedClock clock;
  sim::DraftTruths truths;
  std::set<uint64_t> seen;
  std::unique_ptr<Engine> engine;

  Rig(const Subject& subject, EngineOptions options) {
    tiny = LoadTinyModel(subject.folder, {.backend = "cpu",
                                          .isa = {},
                                          .activations = subject.activations,
                                          .threads = 2,
                                          .max_batch_tokens = 512,
                                          .max_logits_rows = 96})
               .value();
    const int32_t vocabulary = tiny.model->spec().vocabulary_size;
    options.max_logits_rows = 96;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    options.drafters.push_back({sim::kDialledDrafter, [this, vocabulary](const DrafterSetting&) {
                                  return sim::MakeDialledDrafter(truths, vocabulary, 5);
                                }});
    engine =
        Engine::Create(options, std::make_unique<NotingModel>(std::move(tiny.model), seen), nullptr, clock).value();
  }
  void RunUntilIdle() {
    while (engine->RunOneStep()) clock.Advance(1);
  }
};

struct Sampling {
  const char* name;
  float temperature;
  float top_p;
};
constexpr Sampling kSamplings[] = {
    {"greedy", 0.0F, 1.0F}, {"0.7", 0.7F, 1.0F}, {"1", 1.0F, 1.0F}, {"top-p", 1.0F, 0.8F}};

bool HasHead(const Rig& rig) { return rig.engine->spec().mtp.served(); }

// Prompts of a few repeated phrases, which look-ups find something in; lengths around a page.
std::vector<Request> MakeRequests(const int32_t count, const Sampling& sampling, const int32_t vocabulary) {
  std::vector<Request> requests(static_cast<size_t>(count));
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    const std::vector<TokenId> phrase = testing::RandomTokens(7, vocabulary, 31 + i);
    const size_t length = std::vector<size_t>{20, 33, 61, 50, 40}[i % 5];
    while (request.prompt.size() < length) request.prompt.push_back(phrase[request.prompt.size() % phrase.size()]);
    request.stopping.max_tokens = kOutputTokens;
    request.sampling.temperature = sampling.temperature;
    request.sampling.top_p = sampling.top_p;
    request.sampling.seed = 1000 + i;
    if (i % 4 == 1) request.sampling.repetition_penalty = 1.1F;
    if (i % 3 == 2) request.output.prompt_logprobs = 0;
    request.output.logprob_bits = true;
    request.output.logprobs = static_cast<int32_t>(i % 3);
  }
  return requests;
}

Request NextTurn(const Request& request, const std::vector<TokenId>& answer) {
  Request turn = request;
  turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  turn.prompt.push_back(request.prompt[0]);
  turn.stopping.max_tokens = 3;
  return turn;
}

struct Plain {
  std::vector<std::vector<uint32_t>> bits;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<uint32_t>> next_bits;
  std::set<uint64_t> seen;
};

// One at a time, one token at a time, nothing reused: every position's bytes are noted.
Plain RunPlain(const Subject& subject, const Sampling& sampling, const int32_t count) {
  EngineOptions options;
  options.prefill_chunk_tokens = 1;
  options.prefix_cache = false;
  Rig rig(subject, options);
  Plain plain;
  const auto run = [&](const Request& request) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(rig.engine->Submit(request, events).ok());
    rig.RunUntilIdle();
    return events;
  };
  for (const Request& request : MakeRequests(count, sampling, rig.engine->spec().vocabulary_size)) {
    const auto events = run(request);
    plain.bits.push_back(BitsOf(*events));
    plain.tokens.push_back(events->tokens());
    plain.next_bits.push_back(BitsOf(*run(NextTurn(request, events->tokens()))));
  }
  plain.seen = rig.seen;
  return plain;
}

class SpeculationLaw : public ::testing::TestWithParam<Subject> {};

TEST_P(SpeculationLaw, BitsAreThoseOfPlainDecoding) {
  constexpr int32_t kMost = 17;
  int64_t answers = 0;
  int64_t notes = 0;
  int64_t preemptions = 0;
  SpeculationStats sum;
  for (const Sampling& sampling : kSamplings) {
    const Plain plain = RunPlain(GetParam(), sampling, kMost);
    for (const int32_t draft : {1, 4, 16, 64, 0}) {  // 0: as many as pay.
      for (const int32_t count : {1, 3, kMost}) {
        SCOPED_TRACE(std::string(sampling.name) + ", drafts of " + std::to_string(draft) + ", " +
                     std::to_string(count) + " together");
        EngineOptions options;
        options.max_running = count + 1;
        options.max_pages = count == 1 ? 4 : count + 4;  // Two pages each at the end: not all of them fit.
        Rig rig(GetParam(), options);
        std::vector<Request> requests = MakeRequests(count, sampling, rig.engine->spec().vocabulary_size);
        std::vector<std::shared_ptr<Collector>> events;
        const auto submit = [&](const Request& request, const std::vector<TokenId>& answer) {
          events.push_back(std::make_shared<Collector>());
          const SequenceId id = rig.engine->Submit(request, events.back()).value();
          rig.truths[id] = {.tokens = request.prompt, .agreement_percent = 85};
          rig.truths[id].tokens.insert(rig.truths[id].tokens.end(), answer.begin(), answer.end());
          return id;
        };
        for (size_t i = 0; i < requests.size(); ++i) {
          const char* const real = HasHead(rig) && i % 4 != 3 ? "mtp" : "ngram";
          requests[i].speculation.drafter = i % 2 == 0 && !(HasHead(rig) && i % 4 == 0) ? sim::kDialledDrafter : real;
          if (draft > 0) requests[i].speculation.draft_tokens = draft;
          submit(requests[i], plain.tokens[i]);
        }
        // A neighbour that is cancelled in the middle of its rounds.
        const SequenceId gone = submit(requests[0], plain.tokens[0]);
        for (int32_t step = 0; step < 9; ++step) rig.engine->RunOneStep();
        rig.engine->Cancel(gone);
        rig.RunUntilIdle();
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_EQ(BitsOf(*events[i]), plain.bits[i]) << "request " << i;
          Request turn = NextTurn(requests[i], plain.tokens[i]);
          submit(turn, {});
          rig.RunUntilIdle();
          ASSERT_EQ(BitsOf(*events.back()), plain.next_bits[i]) << "next turn of request " << i;
          answers += 2;
        }
        for (const uint64_t hash : rig.seen) {
          ASSERT_TRUE(plain.seen.contains(hash)) << "a state or a page that plain decoding does not pass through";
        }
        notes += static_cast<int64_t>(rig.seen.size());
        const EngineStats stats = rig.engine->Stats();
        preemptions += stats.preemptions;
        sum.rounds += stats.speculation.rounds;
        sum.drafted_tokens += stats.speculation.drafted_tokens;
        sum.accepted_tokens += stats.speculation.accepted_tokens;
      }
    }
  }
  std::printf("%s: %lld answers and %lld states equal; %lld preemptions, %lld rounds, %lld of %lld drafted accepted\n",
              GetParam().name, static_cast<long long>(answers), static_cast<long long>(notes),
              static_cast<long long>(preemptions), static_cast<long long>(sum.rounds),
              static_cast<long long>(sum.accepted_tokens), static_cast<long long>(sum.drafted_tokens));
  EXPECT_GT(preemptions, 20);
  EXPECT_GT(sum.accepted_tokens, 1000);
  EXPECT_LT(sum.accepted_tokens, sum.drafted_tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculationLaw,
                         ::testing::Values(Subject{"tiny_hybrid", AssetFolder("tiny-hybrid"), kernels::DType::kBf16},
                                           Subject{"moe", GoldenFolder("qwen3_5_moe"), kernels::DType::kBf16},
                                           Subject{"head", GoldenFolder("qwen3_5-vl"), kernels::DType::kBf16},
                                           Subject{"dense", GoldenFolder("qwen3"), kernels::DType::kBf16}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace invar::engine
