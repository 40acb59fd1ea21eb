// What the laws of speculation need: an engine on a small real model whose every forward is noted, and what plain
// decoding of the same requests gives and passes through.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/split_mix64.h"
#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"
#include "tools/sim/dialled_drafter.h"

namespace invar::engine {

struct Subject {
  const char* name;
  std::string folder;
  kernels::DType activations;
};

struct Sampling {
  const char* name;
  float temperature;
  float top_p;
};
inline constexpr Sampling kSamplings[] = {
    {"greedy", 0.0F, 1.0F}, {"0.7", 0.7F, 1.0F}, {"1", 1.0F, 1.0F}, {"top-p", 1.0F, 0.8F}};

inline uint64_t HashOf(const std::byte* const data, const int64_t bytes, uint64_t hash) {
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, sizeof word);
    hash = MixBits(hash ^ word) + 1;
  }
  return hash;
}

// Notes, before each forward, the bytes every span goes on from: position, state, and all pages that are full. Forwards
// on views, which drafters run, may touch no memory of sequences.
class NotingModel : public models::Model {
 public:
  NotingModel(std::unique_ptr<models::Model> model, std::set<uint64_t>& seen) : model_(std::move(model)), seen_(seen) {}
  const models::ModelSpec& spec() const override { return model_->spec(); }
  const kernels::Backend* backend() const override { return model_->backend(); }
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    if (!spans.empty() && spans[0].view.empty()) {
      sequences_ = memory;
      for (const models::ForwardSpan& span : spans) Note(memory, span);
    } else {
      EXPECT_NE(memory.pages, sequences_.pages);
      EXPECT_TRUE(spec().state_bytes == 0 || memory.states != sequences_.states);
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

 protected:
  const std::unique_ptr<models::Model> model_;
  models::SequenceMemory sequences_;

 private:
  void Note(const models::SequenceMemory& memory, const models::ForwardSpan& span) {
    EXPECT_TRUE(span.view.empty());
    if (span.first.value() == 0) return;
    uint64_t hash = MixBits(static_cast<uint64_t>(span.first.value()));
    hash = HashOf(memory.states + span.state.value() * spec().state_bytes, spec().state_bytes, hash);
    for (int32_t p = 0; (p + 1) * kernels::kPageTokens <= span.first.value(); ++p) {
      hash = HashOf(memory.pages + span.pages[static_cast<size_t>(p)].value() * spec().page_bytes, spec().page_bytes,
                    hash);
    }
    seen_.insert(hash);
  }

  std::set<uint64_t>& seen_;
};

struct Rig {
  testing::TinyModel tiny;
  SimulatedClock clock;
  sim::DraftTruths truths;
  std::set<uint64_t> seen;
  std::unique_ptr<Engine> engine;

  // `draft_sequences`: so many sequences of two pages and a state fill the memory of drafters; 0: as the options say.
  template <typename Noting = NotingModel>
  static std::unique_ptr<Rig> Make(const Subject& subject, EngineOptions options, const int32_t draft_sequences = 0) {
    auto rig = std::make_unique<Rig>();
    rig->tiny = testing::LoadTinyModel(subject.folder, {.backend = "cpu",
                                                        .isa = {},
                                                        .activations = subject.activations,
                                                        .threads = 2,
                                                        .max_batch_tokens = 512,
                                                        .max_logits_rows = 96})
                    .value();
    const models::ModelSpec& spec = rig->tiny.model->spec();
    options.max_logits_rows = 96;
    options.check_integrity_every_step = true;
    options.poison_freed_memory = true;
    if (draft_sequences > 0) {
      options.draft_memory_bytes = int64_t{draft_sequences} * (2 * spec.page_bytes + spec.state_bytes);
    }
    options.drafters.push_back(
        {sim::kDialledDrafter, [&truths = rig->truths, ids = spec.vocabulary_size](const DrafterSetting&) {
           return sim::MakeDialledDrafter(truths, ids, 5);
         }});
    auto model = std::make_unique<Noting>(std::move(rig->tiny.model), rig->seen);
    rig->engine = Engine::Create(options, std::move(model), nullptr, rig->clock).value();
    return rig;
  }
  int32_t vocabulary() const { return engine->spec().vocabulary_size; }
  void RunUntilIdle() {
    while (engine->RunOneStep()) clock.Advance(1);
  }
  std::shared_ptr<Collector> Run(const Request& request) {
    auto events = std::make_shared<Collector>();
    EXPECT_TRUE(engine->Submit(request, events).ok());
    RunUntilIdle();
    return events;
  }
};

inline Request NextTurn(const Request& request, const std::vector<TokenId>& answer) {
  Request turn = request;
  turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  turn.prompt.push_back(request.prompt[0]);
  turn.stopping.max_tokens = 3;
  turn.stopping.min_tokens = std::min(turn.stopping.min_tokens, 3);
  return turn;
}

struct Plain {
  std::vector<std::vector<uint32_t>> bits;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<uint32_t>> next_bits;
  std::set<uint64_t> seen;
};

// One at a time, one token at a time, nothing reused: every position's bytes are noted.
inline Plain RunPlain(const Subject& subject, const std::vector<Request>& requests) {
  EngineOptions options;
  options.prefill_chunk_tokens = 1;
  options.prefix_cache = false;
  const auto rig = Rig::Make(subject, options);
  Plain plain;
  for (Request request : requests) {
    request.speculation = {};
    const auto events = rig->Run(request);
    plain.bits.push_back(BitsOf(*events));
    plain.tokens.push_back(events->tokens());
    plain.next_bits.push_back(BitsOf(*rig->Run(NextTurn(request, events->tokens()))));
  }
  plain.seen = rig->seen;
  return plain;
}

}  // namespace invar::engine
