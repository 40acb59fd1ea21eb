// Runner: turns a step's spans into one forward of the model, and settles what was uncertain of it. It decides nothing.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/cache_memory.h"
#include "engine/loop/sequence.h"
#include "engine/schedule/step.h"
#include "kernels/tensor.h"
#include "models/model.h"
#include "models/state_log_memory.h"

namespace invar::engine {

// Who runs a span, and the states to keep on the way.
struct SpanWork {
  Sequence* sequence = nullptr;
  std::vector<models::StateCopy> checkpoints;
  int32_t certain = 0;  // For Settle.
};

class Runner {
 public:
  // `log_bytes`: for the state logs of one step.
  Runner(std::unique_ptr<models::Model> model, int64_t log_bytes);

  const models::Model& model() const { return *model_; }
  models::Model& model() { return *model_; }

  // `work[i].sequence` runs `spans[i]`. Effects: writes KV and states, those to emit too; sequences are advanced by the
  // caller. The state of a span with a draft stays as it was until Settle. The results are valid until the next call.
  // Where the backend chooses tokens, it is the one that reads logits, but of prompts whose tokens are scored; what was
  // written is there after Await. Requires: memory of every span is held in `memory`; the spans of one call are of
  // different sequences.
  std::span<const SpanResult> Run(const cache::CacheMemory& memory, std::span<const Span> spans,
                                  std::span<const SpanWork> work);

  // Returns when what Run wrote can be read. Best behind the choice of tokens, which waits itself.
  void Await();

  // After Await: `work[i].certain` rows of the i-th span turned out right. Takes the states of spans with a draft over
  // them, those to emit too; where it is 0, the state stays. Effects: writes states.
  void Settle(const cache::CacheMemory& memory, std::span<const SpanWork> work);

 private:
  void Begin(std::span<const Span> spans);
  models::ForwardSpan Bind(const cache::CacheMemory& memory, const Span& span, const SpanWork& work);
  std::span<const TokenId> TokensOf(const Sequence& sequence, const Span& span);
  std::span<std::byte> LogFor(const Span& span);
  std::span<const SpanResult> ResultsOf(std::span<const Span> spans, const kernels::ConstF32View& logits);

  const std::unique_ptr<models::Model> model_;
  kernels::Backend* const backend_;  // Null: the model has none.
  const int64_t log_bytes_;
  const models::StateLogMemory logs_;
  int64_t logged_bytes_ = 0;  // Of them, taken by this step.
  // Kept between calls: a step allocates nothing here.
  std::vector<models::ForwardSpan> batch_;
  std::vector<models::StateAdvance> advances_;
  std::vector<TokenId> drafted_;  // Known and drafted tokens of spans with a draft, side by side.
  std::vector<SpanResult> results_;
};

}  // namespace invar::engine
