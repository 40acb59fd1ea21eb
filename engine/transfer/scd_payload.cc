// See scd_payload.h.
#include "engine/transfer/scd_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/kv_encoding.h"

namespace invar::engine {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;

// Of all layers of a model, which of its kind `layer` is.
int32_t IndexInKind(const ScdShape& shape, const size_t layer) {
  const bool recurrent = shape.layers[layer].recurrent;
  return static_cast<int32_t>(std::count_if(shape.layers.begin(), shape.layers.begin() + static_cast<int64_t>(layer),
                                            [&](const ScdLayerShape& other) { return other.recurrent == recurrent; }));
}

bool BeginsGroup(const ScdPoint& point, const size_t layer) {
  return point.layers[layer].mode == ScdMode::kRecompute &&
         (layer == 0 || point.layers[layer - 1].mode != ScdMode::kRecompute);
}

kernels::PageShape Raw4Shape(const ScdLayerShape& shape) {
  return {.kv_heads = shape.kv_heads, .head_dim = shape.head_dim, .dense = kernels::DType::kF32};
}

// A page's slots behind the last token repeat it: zeros would widen the range that the others share.
void PackPages4(const ScdLayerShape& shape, const ScdKv& kv, std::vector<std::byte>& out) {
  const kernels::PageShape page_shape = Raw4Shape(shape);
  const auto bytes = static_cast<size_t>(EncodedPageBytes(kernels::KvEncoding::kKivi4, page_shape));
  for (int64_t first = 0; first < kv.keys.rows; first += kPage) {
    ScdKv page{.keys = FloatRows(kPage, kv.keys.cols), .values = FloatRows(kPage, kv.keys.cols)};
    for (int64_t s = 0; s < kPage; ++s) {
      const int64_t row = std::min(first + s, kv.keys.rows - 1);
      std::copy_n(kv.keys.row(row), kv.keys.cols, page.keys.row(s));
      std::copy_n(kv.values.row(row), kv.keys.cols, page.values.row(s));
    }
    out.resize(out.size() + bytes);
    EncodePage(kernels::KvEncoding::kKivi4, page_shape,
               {.keys = page.keys.values.data(),
                .values = page.values.values.data(),
                .slots = kPage,
                .head_stride = shape.head_dim,
                .slot_stride = kv.keys.cols},
               std::span(out).last(bytes));
  }
}

ScdKv UnpackPages4(const ScdLayerShape& shape, const std::span<const std::byte> payload, const int64_t tokens) {
  const kernels::PageShape page_shape = Raw4Shape(shape);
  const auto bytes = static_cast<size_t>(EncodedPageBytes(kernels::KvEncoding::kKivi4, page_shape));
  const int64_t cols = shape.kv_columns();
  ScdKv kv{.keys = FloatRows(tokens, cols), .values = FloatRows(tokens, cols)};
  for (int64_t first = 0; first < tokens; first += kPage) {
    ScdKv page{.keys = FloatRows(kPage, cols), .values = FloatRows(kPage, cols)};
    DecodePage(kernels::KvEncoding::kKivi4, page_shape,
               payload.subspan(static_cast<size_t>(first / kPage) * bytes, bytes),
               {.keys = page.keys.values.data(),
                .values = page.values.values.data(),
                .slots = kPage,
                .head_stride = shape.head_dim,
                .slot_stride = cols});
    const int64_t rows = std::min(kPage, tokens - first);
    std::copy_n(page.keys.values.data(), rows * cols, kv.keys.row(first));
    std::copy_n(page.values.values.data(), rows * cols, kv.values.row(first));
  }
  return kv;
}

void PackFloats(const CodeBits bits, const std::span<const float> values, std::vector<std::byte>& out) {
  PackCodes(bits, {values.data(), 1, std::ssize(values), std::ssize(values)}, {}, out);
}

void EncodeRows(const ScdCodec& codec, const ScdLayerPlan& plan, const int32_t rank, const kernels::ConstF32View& rows,
                std::vector<std::byte>& out) {
  const FloatRows codes = codec.encoder.Encode(rows, rank);
  PackCodes(plan.bits, codes.view(), std::span(codec.encoder.sigma).first(static_cast<size_t>(rank)), out);
}

FloatRows DecodeRows(const ScdCodec& codec, const ScdLayerPlan& plan, const int32_t rank,
                     const std::span<const std::byte> payload, const int64_t rows) {
  const auto sigma = std::span(codec.encoder.sigma).first(static_cast<size_t>(rank));
  return codec.Find(rank, plan.features)->Decode(UnpackCodes(plan.bits, payload, rows, rank, sigma), sigma);
}

// Layers [begin, end) over rows [first, first + rows), from what is given or the tokens. Requires: rows <= rows_max.
void RunLayers(const ScdConsumerPrefix& prefix, const int64_t first, const int64_t rows, const int64_t begin,
               const int64_t end, const FloatRows* const residual, const FloatRows* const inputs) {
  models::StackPart part{.begin = static_cast<int32_t>(begin), .end = static_cast<int32_t>(end)};
  if (residual != nullptr) part.residual = residual->view();
  if (inputs != nullptr) part.inputs = inputs->view();
  const models::ForwardSpan span{.tokens = prefix.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
                                 .first = Position(static_cast<int32_t>(first)),
                                 .pages = prefix.sequence.pages,
                                 .state = prefix.sequence.state};
  prefix.sequence.model.ForwardPart(prefix.sequence.memory, span, part);
}

FloatRows Columns(const FloatRows& rows, const int64_t begin, const int64_t count) {
  FloatRows out(rows.rows, count);
  for (int64_t r = 0; r < rows.rows; ++r) std::copy_n(rows.row(r) + begin, count, out.row(r));
  return out;
}

void EncodeAttention(const ScdProfile& profile, const ScdLayerPlan& plan, const size_t layer,
                     const ScdProducerPrefix& prefix, std::vector<std::byte>& out) {
  const ScdLayerFit& fit = profile.layers[layer];
  const int32_t index = IndexInKind(profile.shape, layer);
  if (plan.mode == ScdMode::kRaw || plan.mode == ScdMode::kRaw4) {
    const ScdKv kv = ReadTurnedKv(prefix.sequence, index, 0, prefix.tokens);
    if (plan.mode == ScdMode::kRaw4) return PackPages4(profile.shape.layers[layer], kv, out);
    PackFloats(CodeBits::kBf16, kv.keys.values, out);
    PackFloats(CodeBits::kBf16, kv.values.values, out);
  } else if (plan.mode == ScdMode::kReuseKv) {
    const ScdKv kv = ReadKv(prefix.sequence, index, 0, prefix.tokens);
    EncodeRows(fit.keys, plan, plan.rank, kv.keys.view(), out);
    EncodeRows(fit.values, plan, plan.rank_v, kv.values.view(), out);
  }
}

// Rows [first, first + count) of an attention layer.
void DecodeAttention(const ScdProfile& profile, const ScdLayerPlan& plan, const size_t layer,
                     const std::span<const std::byte> payload, const ScdConsumerPrefix& prefix, const int64_t first,
                     const int64_t count) {
  const ScdLayerFit& fit = profile.layers[layer];
  const ScdLayerShape& shape = profile.shape.layers[layer];
  const int64_t tokens = std::ssize(prefix.tokens);
  const int64_t cols = shape.kv_columns();
  const int32_t index = IndexInKind(profile.shape, layer);
  // Of codes of so many numbers a row that begin at `offset`.
  const auto rows_at = [&](const int64_t offset, const int64_t row_bytes) {
    return payload.subspan(static_cast<size_t>(offset + first * row_bytes), static_cast<size_t>(count * row_bytes));
  };
  const int64_t row_bytes = CodeRowBytes(plan.bits, plan.rank);
  if (plan.mode == ScdMode::kPatch) {
    const FloatRows inputs = DecodeRows(fit.inputs, plan, plan.rank, rows_at(0, row_bytes), count);
    RunLayers(prefix, first, count, static_cast<int64_t>(layer), static_cast<int64_t>(layer) + 1, nullptr, &inputs);
  } else if (plan.mode == ScdMode::kReuse) {
    const FloatRows both = DecodeRows(fit.joint, plan, plan.rank, rows_at(0, row_bytes), count);
    WriteKv(prefix.sequence, index, first, {.keys = Columns(both, 0, cols), .values = Columns(both, cols, cols)});
  } else if (plan.mode == ScdMode::kReuseKv) {
    const int64_t value_bytes = CodeRowBytes(plan.bits, plan.rank_v);
    WriteKv(prefix.sequence, index, first,
            {.keys = DecodeRows(fit.keys, plan, plan.rank, rows_at(0, row_bytes), count),
             .values = DecodeRows(fit.values, plan, plan.rank_v, rows_at(tokens * row_bytes, value_bytes), count)});
  } else if (plan.mode == ScdMode::kRaw) {
    const size_t half = payload.size() / 2;
    WriteTurnedKv(prefix.sequence, index, 0,
                  {.keys = UnpackCodes(CodeBits::kBf16, payload.first(half), tokens, cols, {}),
                   .values = UnpackCodes(CodeBits::kBf16, payload.subspan(half), tokens, cols, {})});
  } else if (plan.mode == ScdMode::kRaw4) {
    WriteTurnedKv(prefix.sequence, index, 0, UnpackPages4(shape, payload, tokens));
  } else {
    WriteTurnedKv(prefix.sequence, index, 0, {.keys = FloatRows(tokens, cols), .values = FloatRows(tokens, cols)});
  }
}

// --- Recurrent layers: [mapped state after tokens - tail, bf16] [codes of the inputs of the tail and, before it, of as
// many rows as the convolution looks back]. A prefix no longer than those rows is run again as a whole.

// A recurrence that begins anew begins with zeros, whatever the slot held.
void ClearState(const ScdShape& shape, const size_t layer, const ScdSequence& sequence) {
  const auto index = static_cast<size_t>(IndexInKind(shape, layer));
  std::ranges::fill(RecurrentState(sequence, index, sequence.state), 0.0F);
  std::ranges::fill(ConvState(sequence, index, sequence.state), 0.0F);
}

void EncodeRecurrent(const ScdProfile& profile, const ScdPoint& point, const size_t layer,
                     const ScdProducerPrefix& prefix, std::vector<std::byte>& out) {
  const ScdLayerPlan& plan = point.layers[layer];
  const ScdLayerShape& shape = profile.shape.layers[layer];
  const auto index = static_cast<size_t>(IndexInKind(profile.shape, layer));
  if (plan.mode == ScdMode::kRaw) {
    const SlotId slot = prefix.state_at(prefix.tokens);
    PackFloats(CodeBits::kF32, RecurrentState(prefix.sequence, index, slot), out);
    PackFloats(CodeBits::kF32, ConvState(prefix.sequence, index, slot), out);
  } else if (plan.mode == ScdMode::kMapState) {
    const ScdTail tail = ScdTailOf(shape, plan, prefix.tokens);
    if (!tail.whole) EncodeScdState(profile, layer, prefix.sequence, prefix.state_at(tail.from), out);
    EncodeScdRows(profile, point, layer, prefix.inputs[layer].Rows(tail.begin, prefix.tokens - tail.begin), out);
  }
}

void DecodeRecurrent(const ScdProfile& profile, const ScdLayerPlan& plan, const size_t layer,
                     std::span<const std::byte> payload, const ScdConsumerPrefix& prefix) {
  const ScdLayerFit& fit = profile.layers[layer];
  const ScdLayerShape& shape = profile.shape.layers[layer];
  const auto index = static_cast<size_t>(IndexInKind(profile.shape, layer));
  ClearState(profile.shape, layer, prefix.sequence);
  const std::span<float> state = RecurrentState(prefix.sequence, index, prefix.sequence.state);
  const std::span<float> conv = ConvState(prefix.sequence, index, prefix.sequence.state);
  if (plan.mode == ScdMode::kRaw) {
    std::memcpy(state.data(), payload.data(), state.size_bytes());
    std::memcpy(conv.data(), payload.data() + state.size_bytes(), conv.size_bytes());
    return;
  }
  if (plan.mode != ScdMode::kMapState) return;
  const ScdTail tail = ScdTailOf(shape, plan, std::ssize(prefix.tokens));
  const auto state_bytes = static_cast<size_t>(tail.whole ? 0 : 2 * shape.state_floats());
  const FloatRows inputs =
      DecodeRows(fit.inputs, plan, plan.rank, payload.subspan(state_bytes), std::ssize(prefix.tokens) - tail.begin);
  const auto run = [&](int64_t begin, const int64_t end) {
    for (; begin < end; begin += prefix.rows_max) {
      FloatRows rows(std::min(prefix.rows_max, end - begin), inputs.cols);
      std::copy_n(inputs.row(begin - tail.begin), rows.rows * rows.cols, rows.values.data());
      RunLayers(prefix, begin, rows.rows, static_cast<int64_t>(layer), static_cast<int64_t>(layer) + 1, nullptr, &rows);
    }
  };
  run(tail.begin, tail.from);  // Leaves the convolution's rows; what it does to the state is written over.
  if (!tail.whole) {
    const FloatRows mapped = UnpackCodes(CodeBits::kBf16, payload.first(state_bytes), 1, shape.state_floats(), {});
    std::copy(mapped.values.begin(), mapped.values.end(), state.begin());
  }
  run(tail.from, std::ssize(prefix.tokens));
}

}  // namespace

ScdRowSource ScdRowSourceOf(const ScdPoint& point, const size_t layer) {
  const ScdMode mode = point.layers[layer].mode;
  if (mode == ScdMode::kReuse || mode == ScdMode::kPatch) return ScdRowSource::kInput;
  return layer > 0 && BeginsGroup(point, layer) ? ScdRowSource::kResidual : ScdRowSource::kNone;
}

ScdTail ScdTailOf(const ScdLayerShape& shape, const ScdLayerPlan& plan, const int64_t tokens) {
  const int64_t begin = tokens - plan.tail - shape.conv_rows;
  if (begin <= 0) return {.whole = true};
  return {.begin = begin, .from = tokens - plan.tail};
}

void EncodeScdRows(const ScdProfile& profile, const ScdPoint& point, const size_t layer,
                   const kernels::ConstF32View& rows, std::vector<std::byte>& out) {
  const ScdLayerPlan& plan = point.layers[layer];
  if (plan.mode == ScdMode::kRecompute) return PackCodes(CodeBits::kBf16, rows, {}, out);
  const ScdLayerFit& fit = profile.layers[layer];
  EncodeRows(plan.mode == ScdMode::kReuse ? fit.joint : fit.inputs, plan, plan.rank, rows, out);
}

void EncodeScdState(const ScdProfile& profile, const size_t layer, const ScdSequence& sequence, const SlotId slot,
                    std::vector<std::byte>& out) {
  const auto index = static_cast<size_t>(IndexInKind(profile.shape, layer));
  std::vector<float> mapped(static_cast<size_t>(profile.shape.layers[layer].state_floats()));
  profile.layers[layer].states.Apply(RecurrentState(sequence, index, slot), mapped);
  PackFloats(CodeBits::kBf16, mapped, out);
}

void EncodeScdLayer(const ScdProfile& profile, const ScdPoint& point, const size_t layer,
                    const ScdProducerPrefix& prefix, std::vector<std::byte>& out) {
  const ScdLayerPlan& plan = point.layers[layer];
  const ScdRowSource source = ScdRowSourceOf(point, layer);
  if (source != ScdRowSource::kNone) {
    const auto& rows = source == ScdRowSource::kInput ? prefix.inputs : prefix.residuals;
    EncodeScdRows(profile, point, layer, rows[layer].view(), out);
  } else if (plan.mode == ScdMode::kRecompute) {
    return;
  } else if (profile.shape.layers[layer].recurrent) {
    EncodeRecurrent(profile, point, layer, prefix, out);
  } else {
    EncodeAttention(profile, plan, layer, prefix, out);
  }
}

StatusOr<int64_t> DecodeScdPart(const ScdProfile& profile, const ScdPoint& point, const size_t layer,
                                const std::span<const std::byte> payload, const ScdConsumerPrefix& prefix,
                                const int64_t first) {
  const int64_t tokens = std::ssize(prefix.tokens);
  const int64_t wanted = ScdLayerBytes(profile.shape, point, layer, tokens);
  if (std::ssize(payload) != wanted) {
    return DataLoss(fmt::format("layer {} of a prefix of {} tokens: wanted {} bytes of {}, found {}", layer, tokens,
                                wanted, ScdModeName(point.layers[layer].mode), payload.size()));
  }
  const ScdLayerPlan& plan = point.layers[layer];
  const int64_t count = std::min(prefix.rows_max, tokens - first);
  if (plan.mode == ScdMode::kRecompute) {
    if (!BeginsGroup(point, layer)) return tokens;
    size_t end = layer;
    for (; end < point.layers.size() && point.layers[end].mode == ScdMode::kRecompute; ++end) {
      if (first == 0 && profile.shape.layers[end].recurrent) ClearState(profile.shape, end, prefix.sequence);
    }
    FloatRows residual;
    if (layer > 0) {
      const int64_t row_bytes = 2 * int64_t{profile.shape.hidden};
      residual =
          UnpackCodes(CodeBits::kBf16,
                      payload.subspan(static_cast<size_t>(first * row_bytes), static_cast<size_t>(count * row_bytes)),
                      count, profile.shape.hidden, {});
    }
    RunLayers(prefix, first, count, static_cast<int64_t>(layer), static_cast<int64_t>(end),
              layer > 0 ? &residual : nullptr, nullptr);
    return first + count;
  }
  if (profile.shape.layers[layer].recurrent) {
    DecodeRecurrent(profile, plan, layer, payload, prefix);
    return tokens;
  }
  DecodeAttention(profile, plan, layer, payload, prefix, first, count);
  const bool copies = plan.mode == ScdMode::kRaw || plan.mode == ScdMode::kRaw4 || plan.mode == ScdMode::kDrop;
  return copies ? tokens : first + count;
}

Status DecodeScdLayer(const ScdProfile& profile, const ScdPoint& point, const size_t layer,
                      const std::span<const std::byte> payload, const ScdConsumerPrefix& prefix) {
  for (int64_t row = 0; row < std::ssize(prefix.tokens);) {
    const StatusOr<int64_t> next = DecodeScdPart(profile, point, layer, payload, prefix, row);
    if (!next.ok()) return next.status();
    row = *next;
  }
  return OkStatus();
}

}  // namespace invar::engine
