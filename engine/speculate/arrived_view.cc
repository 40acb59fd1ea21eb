// See arrived_view.h.
#include "engine/speculate/arrived_view.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/state_shape.h"

namespace invar::engine {

ArrivedView::ArrivedView(models::Model& model, cache::CacheMemory& own, const int32_t rows_max, const WantedView& wish)
    : model_(model),
      own_(own),
      rows_max_(rows_max),
      compressor_(cache::MakeCompressor(wish.compressor).value()),
      kv_(model, *compressor_, cache::Budget::ShareOrAll(wish.kv_budget)) {}

std::unique_ptr<ArrivedView> ArrivedView::Make(models::Model& model, cache::CacheMemory& own, const int32_t rows_max,
                                               const WantedView& wish, ImportedView view) {
  std::unique_ptr<ArrivedView> made(new ArrivedView(model, own, rows_max, wish));
  if (!made->TakeMemory(std::move(view))) return nullptr;
  return made;
}

bool ArrivedView::TakeMemory(ImportedView view) {
  run_ = settled_ = view.end;
  kv_.Adopt(std::move(view.layers), view.end);
  bodies_ = own_.Reserve(kv_.body_bytes());
  if (!bodies_.has_value()) return false;
  if (model_.spec().state_bytes > 0) {
    state_ = own_.TakeSlot(cache::Fill::kNone);
    draft_state_ = own_.TakeSlot(cache::Fill::kNone);
    if (!state_.has_value() || !draft_state_.has_value()) return false;
    state_->CopyFrom(view.state);
  }
  if (!TakeRoom(1)) return false;
  kv_.WriteTail(0, Tail());
  return true;
}

bool ArrivedView::TakeRoom(const int64_t rows) {
  const auto wanted = static_cast<size_t>(cache::StateShape::PagesFor(kv_.tail_slots() + rows));
  while (tail_.size() < wanted) {
    std::optional<cache::PageRef> page = own_.TakePage(cache::Fill::kZero);
    if (!page.has_value()) return false;
    tail_ids_.push_back(page->id());
    tail_.push_back(*std::move(page));
  }
  return true;
}

kernels::ConstF32View ArrivedView::Forward(const std::span<const TokenId> tokens, const int32_t first,
                                           const std::optional<cache::SlotRef>& state, const int32_t logits_rows) {
  const std::array<models::ForwardSpan, 1> spans = {{{.tokens = tokens,
                                                      .first = Position(first),
                                                      .pages = tail_ids_,
                                                      .state = state.has_value() ? state->id() : SlotId(),
                                                      .logits_rows = logits_rows,
                                                      .view = kv_.At(Position(first))}}};
  return model_.Forward({.pages = own_.pages().arena(), .states = own_.slots().arena()}, spans);
}

bool ArrivedView::GoOn(const std::span<const TokenId> known, DraftSampler& sampler, std::vector<TokenId>& draft) {
  const auto count = static_cast<int32_t>(known.size());
  Check(run_ <= count, "known tokens only grow", run_, count);
  kernels::ConstF32View logits;
  if (run_ < count) {
    const int32_t rows = std::min(rows_max_, count - run_);
    if (!TakeRoom(rows)) return End();
    const bool is_last = run_ + rows == count;
    logits =
        Forward(known.subspan(static_cast<size_t>(run_), static_cast<size_t>(rows)), run_, state_, is_last ? 1 : 0);
    kv_.TakeTail(Tail(), rows);
    run_ += rows;
    if (!is_last) return true;
    if (state_.has_value()) draft_state_->CopyFrom(state_->bytes());
  } else {
    Check(!draft.empty(), "a draft begins behind a known token that has not run", count);
    const int32_t place = count + static_cast<int32_t>(draft.size()) - 1;
    if (!TakeRoom(place + 1 - kv_.tokens())) return End();
    logits = Forward(std::span(draft).last(1), place, draft_state_, 1);
  }
  const std::optional<TokenId> token = sampler.Next({logits.row(0), static_cast<size_t>(logits.cols)});
  if (token.has_value()) draft.push_back(*token);
  if (run_ - settled_ >= CompressedKv::kUpkeepTokens && draft.size() <= 1) Settle();
  return token.has_value();
}

// Logits are read by now. What a draft has behind the tail is written over: it is one guess, which has not run.
void ArrivedView::Settle() {
  kv_.Settle();
  settled_ = run_;
  bodies_.reset();
  bodies_ = own_.Reserve(kv_.body_bytes());
  is_over_ = !bodies_.has_value();
  kv_.WriteTail(0, Tail());
}

int64_t ArrivedView::bytes() const {
  int64_t sum = bodies_.has_value() ? bodies_->bytes() : 0;
  for (const cache::PageRef& page : tail_) sum += std::ssize(page.bytes());
  for (const auto* const state : {&state_, &draft_state_}) {
    if (state->has_value()) sum += std::ssize((*state)->bytes());
  }
  return sum;
}

}  // namespace invar::engine
