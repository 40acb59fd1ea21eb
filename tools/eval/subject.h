// The model under evaluation and the memory of what it reads: one sequence whose KV is exact, and the rows behind a
// compressed view of it (bound_view.h). Reading goes on from a place, which is a value: a copy is a branch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/zeroed_memory.h"
#include "engine/compressed/compressed_kv.h"
#include "models/model.h"

namespace invar::eval {

class BoundView;

// How far a sequence has been read, and the recurrent state there.
struct Place {
  int32_t position = 0;
  std::vector<std::byte> state;
};

struct SubjectLimits {
  int32_t tokens_max = 0;  // Of the sequence.
  int32_t rows_max = 0;    // Of one forward, logits alike; as the model was loaded for.
};

class Subject {
 public:
  using OnRow = std::function<void(int64_t row, std::span<const float> logits)>;

  // Errors: UNIMPLEMENTED for a model whose KV no view can stand for; INVALID_ARGUMENT beyond its positions;
  // RESOURCE_EXHAUSTED. Requires: both outlive this.
  static StatusOr<std::unique_ptr<Subject>> Make(models::Model& model, const kernels::Backend& backend,
                                                 const SubjectLimits& limits);
  // The place before the first token.
  Place Begin() const;

  // Reads `tokens` from `place` on and moves it: on the exact KV, which the tokens become part of, or on `view`, whose
  // tail holds them until it is bound again. `on_row` is told of the logits of tokens [from, tokens.size()), `observer`
  // of the queries of all. Requires: view: place.position >= view->tokens(), everything between was read
  // on it.
  void Read(BoundView* view, Place& place, std::span<const TokenId> tokens, int64_t from, const OnRow& on_row,
            models::QueryObserver* observer = nullptr);

  const models::ModelSpec& spec() const { return model_.spec(); }
  kernels::PageShape page_shape() const;
  const models::Model& model() const { return model_; }
  // The exact KV, and where rows behind a view's body go.
  engine::PageRows exact() const { return {pages_.get(), exact_pages_}; }
  engine::PageRows tail() const { return {pages_.get(), tail_pages_}; }

 private:
  Subject(models::Model& model, const kernels::Backend& backend, const SubjectLimits& limits);

  models::Model& model_;
  const kernels::Backend& backend_;
  const SubjectLimits limits_;
  std::vector<PageId> exact_pages_;
  std::vector<PageId> tail_pages_;
  ZeroedMemory pages_;
  ZeroedMemory state_;  // Of the place that is read from.
};

}  // namespace invar::eval
