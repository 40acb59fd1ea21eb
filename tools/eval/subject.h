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
#include "models/model.h"
#include "tools/eval/query_log.h"

namespace invar::eval {

class BoundView;

// How far a sequence has been read, and the recurrent state there.
struct Place {
  int32_t position = 0;
  std::vector<std::byte> state;
};

// Keys and values of some tokens of one attention layer: [tokens][kv_heads][dim].
struct ExactRows {
  std::vector<float> keys;
  std::vector<float> values;
  kernels::ConstKvRows rows;
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
  // tail holds them until it is bound again. `on_row` is told of the logits of tokens [from, tokens.size()), `log` of
  // their queries, from the first on. Requires: view: place.position >= view->tokens(), everything between was read
  // on it.
  void Read(const BoundView* view, Place& place, std::span<const TokenId> tokens, int64_t from, const OnRow& on_row,
            QueryLog* log = nullptr);

  // Of tokens [begin, end), as the exact KV holds them.
  ExactRows Rows(int32_t layer, int32_t begin, int32_t end) const;

  const models::ModelSpec& spec() const { return model_.spec(); }
  kernels::PageShape page_shape() const;
  // Where rows behind a view's body go: page `index` of them, layer by layer.
  std::byte* tail_page(int32_t layer, int64_t index);
  std::span<const PageId> tail_pages() const { return tail_pages_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  static StatusOr<Memory> Zeroed(int64_t bytes);

  Subject(models::Model& model, const kernels::Backend& backend, const SubjectLimits& limits);

  models::Model& model_;
  const kernels::Backend& backend_;
  const SubjectLimits limits_;
  std::vector<PageId> exact_pages_;
  std::vector<PageId> tail_pages_;
  Memory pages_;
  Memory state_;  // Of the place that is read from.
};

}  // namespace invar::eval
