// See scd_prefix.h.
#include "engine/transfer/scd_prefix.h"

#include <algorithm>

#include "base/check.h"
#include "engine/transfer/scd_rotation.h"
#include "kernels/dense_page.h"

namespace invar::engine {
namespace {

constexpr int64_t kPage = kernels::kPageTokens;

kernels::PageShape PageShapeOf(const models::Model& model) {
  Check(model.backend() != nullptr, "SCD is of models that compute");
  const kernels::AttentionShape& shape = model.spec().attention.shape;
  return model.backend()->KvPageShape(shape.kv_heads, shape.head_dim);
}

KeyRotation RotationOf(const models::ModelSpec& spec) {
  return {.inverse_frequencies = spec.attention.inverse_frequencies,
          .factor = spec.attention.rope_factor,
          .head_dim = spec.attention.shape.head_dim};
}

// Calls visit(page, place, row, count) for each piece of tokens [first, first + count) that lies in one page.
template <typename Visit>
void ForPieces(const ScdSequence& sequence, const int32_t layer, const int64_t first, const int64_t count,
               const Visit& visit) {
  const models::ModelSpec& spec = sequence.model.spec();
  const int64_t offset = spec.attention.page_offsets_bytes[static_cast<size_t>(layer)];
  for (int64_t row = 0; row < count;) {
    const int64_t place = (first + row) % kPage;
    const int64_t rows = std::min(kPage - place, count - row);
    const PageId page = sequence.pages[static_cast<size_t>((first + row) / kPage)];
    visit(sequence.memory.pages + int64_t{page.value()} * spec.page_bytes + offset, static_cast<int32_t>(place), row,
          rows);
    row += rows;
  }
}

const models::RecurrentLayerState& StateOf(const ScdSequence& sequence, const size_t layer) {
  return sequence.model.spec().recurrent_states[layer];
}

float* SlotFloats(const ScdSequence& sequence, const SlotId slot, const int64_t offset_bytes) {
  return reinterpret_cast<float*>(sequence.memory.states + int64_t{slot.value()} * sequence.model.spec().state_bytes +
                                  offset_bytes);
}

}  // namespace

ScdKv ReadTurnedKv(const ScdSequence& sequence, const int32_t layer, const int64_t first, const int64_t count) {
  const kernels::PageShape shape = PageShapeOf(sequence.model);
  const int64_t cols = int64_t{shape.kv_heads} * shape.head_dim;
  ScdKv kv{.keys = FloatRows(count, cols), .values = FloatRows(count, cols)};
  ForPieces(sequence, layer, first, count,
            [&](const std::byte* page, const int32_t place, const int64_t row, const int64_t rows) {
              kernels::ReadRows(shape, page, place,
                                {.keys = kv.keys.row(row),
                                 .values = kv.values.row(row),
                                 .slots = rows,
                                 .head_stride = shape.head_dim,
                                 .slot_stride = cols});
            });
  return kv;
}

void WriteTurnedKv(const ScdSequence& sequence, const int32_t layer, const int64_t first, const ScdKv& kv) {
  const kernels::PageShape shape = PageShapeOf(sequence.model);
  ForPieces(sequence, layer, first, kv.keys.rows,
            [&](std::byte* page, const int32_t place, const int64_t row, const int64_t rows) {
              kernels::WriteRows(shape, place,
                                 {.keys = kv.keys.row(row),
                                  .values = kv.values.row(row),
                                  .slots = rows,
                                  .head_stride = shape.head_dim,
                                  .slot_stride = kv.keys.cols},
                                 page);
            });
}

ScdKv ReadKv(const ScdSequence& sequence, const int32_t layer, const int64_t first, const int64_t count) {
  ScdKv kv = ReadTurnedKv(sequence, layer, first, count);
  Unrotate(RotationOf(sequence.model.spec()), first, kv.keys);
  return kv;
}

void WriteKv(const ScdSequence& sequence, const int32_t layer, const int64_t first, ScdKv kv) {
  Rotate(RotationOf(sequence.model.spec()), first, kv.keys);
  WriteTurnedKv(sequence, layer, first, kv);
}

std::span<float> RecurrentState(const ScdSequence& sequence, const size_t layer, const SlotId slot) {
  const models::RecurrentLayerState& state = StateOf(sequence, layer);
  return {SlotFloats(sequence, slot, state.recurrent_offset_bytes),
          static_cast<size_t>(state.heads_v) * state.dim_k * state.dim_v};
}

std::span<float> ConvState(const ScdSequence& sequence, const size_t layer, const SlotId slot) {
  const models::RecurrentLayerState& state = StateOf(sequence, layer);
  return {SlotFloats(sequence, slot, state.conv_offset_bytes), static_cast<size_t>(state.conv_rows) * state.conv_dim};
}

}  // namespace invar::engine
