// See party.h.
#include "tools/calibrate/party.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/transfer/scd_profile_file.h"

namespace invar::calibrate {

StatusOr<std::unique_ptr<Party>> Party::Make(models::Model& model, const PartyLimits& limits) {
  const models::ModelSpec& spec = model.spec();
  if (const std::string why = engine::WhyNoScd(spec); !why.empty()) return Unimplemented(why);
  if (limits.tokens_max > spec.max_sequence_tokens) {
    return InvalidArgument(fmt::format("--prefix-tokens: with the suffix {} tokens, wanted at most the model's {}",
                                       limits.tokens_max, spec.max_sequence_tokens));
  }
  auto party = std::unique_ptr<Party>(new Party(model, limits));
  const int32_t pages_each = (limits.tokens_max + kernels::kPageTokens - 1) / kernels::kPageTokens;
  party->pages_.resize(static_cast<size_t>(limits.sequences));
  for (int32_t s = 0; s < limits.sequences; ++s) {
    for (int32_t p = 0; p < pages_each; ++p) party->pages_[static_cast<size_t>(s)].emplace_back(s * pages_each + p);
  }
  StatusOr<ZeroedMemory> pages = MakeZeroedMemory(int64_t{limits.sequences} * pages_each * spec.page_bytes);
  if (!pages.ok()) return pages.status();
  party->page_memory_ = *std::move(pages);
  StatusOr<ZeroedMemory> states = MakeZeroedMemory(int64_t{limits.sequences + limits.checkpoints} * spec.state_bytes);
  if (!states.ok()) return states.status();
  party->state_memory_ = *std::move(states);
  return party;
}

engine::ScdSequence Party::sequence(const int32_t index) const {
  return {.model = model_,
          .memory = {.pages = page_memory_.get(), .states = state_memory_.get()},
          .pages = pages_[static_cast<size_t>(index)],
          .state = SlotId(index)};
}

std::span<std::byte> Party::slot(const SlotId slot) const {
  const int64_t bytes = spec().state_bytes;
  return {state_memory_.get() + int64_t{slot.value()} * bytes, static_cast<size_t>(bytes)};
}

void Party::Restart(const int32_t sequence) {
  const std::span<std::byte> state = slot(SlotId(sequence));
  std::fill(state.begin(), state.end(), std::byte{0});
}

void Party::Copy(const int32_t from, const int32_t to) {
  const auto bytes = static_cast<size_t>(std::ssize(pages_[static_cast<size_t>(from)]) * spec().page_bytes);
  const auto place = [&](const int32_t sequence) {
    return page_memory_.get() + int64_t{pages_[static_cast<size_t>(sequence)].front().value()} * spec().page_bytes;
  };
  std::memcpy(place(to), place(from), bytes);
  std::ranges::copy(slot(SlotId(from)), slot(SlotId(to)).begin());
}

void Party::Read(const int32_t sequence, const std::span<const TokenId> tokens, const int64_t first,
                 const Watch& watch) {
  const auto count = std::ssize(tokens);
  for (int64_t begin = 0; begin < count;) {
    const int64_t rows = std::min<int64_t>(limits_.rows_max, count - begin);
    std::vector<models::StateCopy> copies;
    for (const models::StateCopy& copy : watch.checkpoints) {
      const int64_t after = copy.after.value() - first - begin;
      if (after > 0 && after <= rows) copies.push_back(copy);
    }
    const models::ForwardSpan span{
        .tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
        .first = Position(static_cast<int32_t>(first + begin)),
        .pages = pages_[static_cast<size_t>(sequence)],
        .state = SlotId(sequence),
        .logits_rows = static_cast<int32_t>(watch.on_row ? rows : 0),
        .checkpoints = copies,
        .observer = watch.queries,
        .layer_observer = watch.layers,
    };
    const kernels::ConstF32View logits =
        model_.Forward({.pages = page_memory_.get(), .states = state_memory_.get()}, {&span, 1});
    for (int64_t r = 0; watch.on_row && r < rows; ++r)
      watch.on_row(begin + r, {logits.row(r), static_cast<size_t>(logits.cols)});
    begin += rows;
  }
}

}  // namespace invar::calibrate
