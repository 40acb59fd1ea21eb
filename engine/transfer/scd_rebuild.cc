// See scd_rebuild.h.
#include "engine/transfer/scd_rebuild.h"

#include <utility>

#include "cache/state_shape.h"
#include "engine/transfer/scd_payload.h"

namespace invar::engine {

StatusOr<std::unique_ptr<ScdRebuild>> ScdRebuild::Make(models::Model& model, const int64_t rows_max, CodedPrefix coded,
                                                       const std::span<const TokenId> tokens) {
  std::unique_ptr<ScdRebuild> rebuild(new ScdRebuild(model, rows_max, std::move(coded), tokens));
  const int32_t pages = cache::StateShape::PagesFor(rebuild->coded_.end);
  for (int32_t page = 0; page < pages; ++page) rebuild->pages_.emplace_back(page);
  StatusOr<ZeroedMemory> page_memory = MakeZeroedMemory(pages * model.spec().page_bytes);
  if (!page_memory.ok()) return page_memory.status();
  rebuild->page_memory_ = *std::move(page_memory);
  StatusOr<ZeroedMemory> state_memory = MakeZeroedMemory(model.spec().state_bytes);
  if (!state_memory.ok()) return state_memory.status();
  rebuild->state_memory_ = *std::move(state_memory);
  return rebuild;
}

StatusOr<bool> ScdRebuild::GoOn() {
  const ScdProfile& profile = coded_.held->profile;
  const ScdConsumerPrefix prefix{.sequence = {.model = model_,
                                              .memory = {.pages = page_memory_.get(), .states = state_memory_.get()},
                                              .pages = pages_,
                                              .state = SlotId(0)},
                                 .tokens = tokens_,
                                 .rows_max = rows_max_};
  const StatusOr<int64_t> next =
      DecodeScdPart(profile, profile.points[coded_.point], layer_, coded_.layers[layer_], prefix, row_);
  if (!next.ok()) return next.status();
  row_ = *next;
  if (row_ == coded_.end) {
    coded_.layers[layer_++] = {};
    row_ = 0;
  }
  return layer_ == coded_.layers.size();
}

cache::PrefixImage ScdRebuild::Take() {
  cache::PrefixImage image{.first_page = 0, .end = coded_.end};
  const int64_t page_bytes = model_.spec().page_bytes;
  for (size_t page = 0; page < pages_.size(); ++page) {
    const std::byte* const from = page_memory_.get() + static_cast<int64_t>(page) * page_bytes;
    image.pages.emplace_back(from, from + page_bytes);
  }
  image.state.assign(state_memory_.get(), state_memory_.get() + model_.spec().state_bytes);
  return image;
}

}  // namespace invar::engine
