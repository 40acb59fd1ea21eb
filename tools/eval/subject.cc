// See subject.h.
#include "tools/eval/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/eval/bound_view.h"

namespace invar::eval {

StatusOr<std::unique_ptr<Subject>> Subject::Make(models::Model& model, const kernels::Backend& backend,
                                                 const SubjectLimits& limits) {
  const models::ModelSpec& spec = model.spec();
  if (spec.attention_layers == 0 || spec.attention.shape.window != 0) {
    return Unimplemented(spec.architecture + ": compressed views are of attention layers that see all positions");
  }
  if (limits.tokens_max > spec.max_sequence_tokens) {
    return InvalidArgument(
        fmt::format("--context-tokens: with question and answer, or a second pass, {} tokens, wanted at most the "
                    "model's {}; give fewer",
                    limits.tokens_max, spec.max_sequence_tokens));
  }
  auto subject = std::unique_ptr<Subject>(new Subject(model, backend, limits));
  StatusOr<ZeroedMemory> pages = MakeZeroedMemory(2 * std::ssize(subject->exact_pages_) * spec.page_bytes);
  if (!pages.ok()) return pages.status();
  subject->pages_ = *std::move(pages);
  StatusOr<ZeroedMemory> state = MakeZeroedMemory(spec.state_bytes);
  if (!state.ok()) return state.status();
  subject->state_ = *std::move(state);
  return subject;
}

Subject::Subject(models::Model& model, const kernels::Backend& backend, const SubjectLimits& limits)
    : model_(model), backend_(backend), limits_(limits) {
  const int32_t pages = (limits.tokens_max + kernels::kPageTokens - 1) / kernels::kPageTokens;
  for (int32_t p = 0; p < pages; ++p) {
    exact_pages_.emplace_back(p);
    tail_pages_.emplace_back(pages + p);
  }
}

Place Subject::Begin() const { return {.position = 0, .state = std::vector<std::byte>(spec().state_bytes)}; }

kernels::PageShape Subject::page_shape() const {
  const kernels::AttentionShape& shape = spec().attention.shape;
  return backend_.KvPageShape(shape.kv_heads, shape.head_dim);
}

void Subject::Read(BoundView* const view, Place& place, const std::span<const TokenId> tokens, const int64_t from,
                   const OnRow& on_row, models::QueryObserver* const observer) {
  std::memcpy(state_.get(), place.state.data(), place.state.size());
  const auto count = std::ssize(tokens);
  for (int64_t begin = 0; begin < count;) {
    const int64_t rows = std::min<int64_t>(limits_.rows_max, count - begin);
    const int64_t skipped = std::clamp<int64_t>(from - begin, 0, rows);
    models::ForwardSpan span{.tokens = tokens.subspan(begin, rows),
                             .first = Position(place.position),
                             .pages = exact_pages_,
                             .state = SlotId(0),
                             .logits_rows = static_cast<int32_t>(rows - skipped),
                             .observer = observer};
    if (view != nullptr) {
      span.view = view->LayersAt(place.position);
      span.pages = tail_pages_;
    }
    const kernels::ConstF32View logits = model_.Forward({.pages = pages_.get(), .states = state_.get()}, {&span, 1});
    for (int64_t r = 0; r < rows - skipped; ++r) on_row(begin + skipped + r, {logits.row(r), size_t(logits.cols)});
    place.position += static_cast<int32_t>(rows);
    begin += rows;
  }
  std::memcpy(place.state.data(), state_.get(), place.state.size());
}

}  // namespace invar::eval
