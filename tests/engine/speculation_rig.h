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
#include "engine/slow/layer_streams.h"
#include "kernels/numerics.h"
#include "tests/engine/answer_bits.h"
#include "tests/engine/collector.h"
#include "tests/support/tiny_model.h"
#include "tests/support/wrapped_model.h"
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

// A kind of model each.
inline std::vector<Subject> SpeculationSubjects() {
  constexpr kernels::DType kType = kernels::DType::kBf16;
  return {{"tiny_hybrid", testing::AssetFolder("tiny-hybrid"), kType},
          {"moe", testing::GoldenFolder("qwen3_5_moe"), kType},
          {"head", testing::GoldenFolder("qwen3_5-vl"), kType},
          {"dense", testing::GoldenFolder("qwen3"), kType}};
}

// Moves when told to, and by `tick` each time that it is asked: so whatever is timed takes some.
class TickingClock final : public Clock {
 public:
  TimeNs Now() const override { return now_ += tick_; }
  void Advance(const TimeNs by) { now_ += by; }
  void SetTick(const TimeNs tick) { tick_ = tick; }

 private:
  mutable TimeNs now_ = 0;  // The engine thread's.
  TimeNs tick_ = 0;
};

// Request `index` of many: a phrase over and over, with penalties and stop tokens that wait for `min_tokens` in turn.
inline Request RepetitiveRequest(const size_t index, const size_t length, const int32_t output_tokens,
                                 const int32_t min_tokens, const Sampling& sampling, const int32_t vocabulary) {
  Request request;
  const std::vector<TokenId> phrase = testing::RandomTokens(29, vocabulary, 77 + index);
  while (request.prompt.size() < length) request.prompt.push_back(phrase[request.prompt.size() % phrase.size()]);
  request.stopping.max_tokens = output_tokens;
  request.sampling.temperature = sampling.temperature;
  request.sampling.top_p = sampling.top_p;
  request.sampling.seed = 1000 + index;
  if (index % 4 == 1) request.sampling.repetition_penalty = 1.2F;
  if (index % 5 == 2) request.sampling.frequency_penalty = 0.7F;
  if (index % 7 == 3) request.stopping.min_tokens = min_tokens;
  if (index % 7 == 3) request.stopping.stop_token_ids = testing::RandomTokens(40, vocabulary, index);
  request.output.logprob_bits = true;
  return request;
}

inline uint64_t HashOf(const std::byte* const data, const int64_t bytes, uint64_t hash) {
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, sizeof word);
    hash = MixBits(hash ^ word) + 1;
  }
  return hash;
}

// Passes KV that is away on, and hashes what was given of each layer.
class NotingSource final : public models::KvSource {
 public:
  NotingSource(models::KvSource& source, const int64_t layer_bytes) : source_(source), layer_bytes_(layer_bytes) {}
  const std::byte* Layer(const int32_t layer) override {
    const std::byte* const pages = source_.Layer(layer);
    hashes_.push_back(HashOf(pages, layer_bytes_, 0));
    return pages;
  }
  const std::vector<uint64_t>& hashes() const { return hashes_; }
  bool failed() const { return !static_cast<const LayerStream&>(source_).status().ok(); }

 private:
  models::KvSource& source_;
  const int64_t layer_bytes_;
  std::vector<uint64_t> hashes_;
};

// Notes, of each forward, the bytes every span goes on from: position, state, and all attention layers of all pages
// that are full, wherever they lie. Forwards on views, which drafters run, may touch no memory of sequences.
class NotingModel : public testing::WrappedModel {
 public:
  NotingModel(std::unique_ptr<models::Model> model, std::set<uint64_t>& seen)
      : WrappedModel(std::move(model)), seen_(seen) {}
  kernels::Backend* backend() const override { return model_->backend(); }
  kernels::ConstF32View Forward(const models::SequenceMemory& memory,
                                const std::span<const models::ForwardSpan> spans) override {
    if (!spans.empty() && spans[0].view.empty()) {
      sequences_ = memory;
      return NoteAndForward(memory, spans);
    } else {
      EXPECT_NE(memory.pages, sequences_.pages);
      EXPECT_TRUE(spec().state_bytes == 0 || memory.states != sequences_.states);
    }
    return model_->Forward(memory, spans);
  }

 protected:
  models::SequenceMemory sequences_;

 private:
  kernels::ConstF32View NoteAndForward(const models::SequenceMemory& memory,
                                       const std::span<const models::ForwardSpan> spans) {
    std::vector<models::ForwardSpan> noted(spans.begin(), spans.end());
    std::vector<std::unique_ptr<NotingSource>> sources(spans.size());
    std::vector<uint64_t> states;  // The forward moves them.
    for (size_t i = 0; i < spans.size(); ++i) {
      states.push_back(HashOf(memory.states + spans[i].state.value() * spec().state_bytes, spec().state_bytes,
                              MixBits(static_cast<uint64_t>(spans[i].first.value()))));
      if (spans[i].away == nullptr) continue;
      sources[i] = std::make_unique<NotingSource>(*spans[i].away, spans[i].away_pages * LayerBytes());
      noted[i].away = sources[i].get();
    }
    const kernels::ConstF32View logits = model_->Forward(memory, noted);
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_TRUE(spans[i].view.empty());
      if (spans[i].first.value() == 0 || (sources[i] != nullptr && sources[i]->failed())) continue;
      seen_.insert(NoteOf(memory, spans[i], sources[i].get(), states[i]));
    }
    return logits;
  }

  // Full pages are never written again, so they may be looked at after the forward too.
  uint64_t NoteOf(const models::SequenceMemory& memory, const models::ForwardSpan& span, const NotingSource* const away,
                  uint64_t note) const {
    const int32_t full = span.first.value() / kernels::kPageTokens;
    for (size_t layer = 0; layer < spec().attention.page_offsets_bytes.size(); ++layer) {
      uint64_t hash = away == nullptr ? 0 : away->hashes().at(layer);
      for (int32_t p = span.away_pages; p < full; ++p) {
        const PageId page = span.pages[static_cast<size_t>(p - span.away_pages)];
        hash = HashOf(memory.pages + page.value() * spec().page_bytes + spec().attention.page_offsets_bytes[layer],
                      LayerBytes(), hash);
      }
      note = MixBits(note ^ hash) + 1;
    }
    return note;
  }

  int64_t LayerBytes() const {
    const kernels::AttentionShape& shape = spec().attention.shape;
    return backend()->KvPageBytes(shape.kv_heads, shape.head_dim);
  }

  std::set<uint64_t>& seen_;
};

struct Rig {
  testing::TinyModel tiny;
  TickingClock clock;
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
