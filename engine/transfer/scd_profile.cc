// See scd_profile.h.
#include "engine/transfer/scd_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/kv_encoding.h"

namespace invar::engine {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;

int64_t Raw4Bytes(const ScdLayerShape& layer, const int64_t tokens) {
  const kernels::PageShape page{.kv_heads = layer.kv_heads, .head_dim = layer.head_dim};
  return (tokens + kPage - 1) / kPage * kernels::EncodedPageBytes(kernels::KvEncoding::kKivi4, page);
}

int64_t AttentionBytes(const ScdLayerShape& layer, const ScdLayerPlan& plan, const int64_t tokens) {
  switch (plan.mode) {
    case ScdMode::kRaw:
      return tokens * 2 * layer.kv_columns() * 2;
    case ScdMode::kRaw4:
      return Raw4Bytes(layer, tokens);
    case ScdMode::kReuseKv:
      return tokens * (CodeRowBytes(plan.bits, plan.rank) + CodeRowBytes(plan.bits, plan.rank_v));
    case ScdMode::kReuse:
    case ScdMode::kPatch:
      return tokens * CodeRowBytes(plan.bits, plan.rank);
    default:
      return 0;
  }
}

int64_t RecurrentBytes(const ScdLayerShape& layer, const ScdLayerPlan& plan, const int64_t tokens) {
  if (plan.mode == ScdMode::kRaw) return 4 * (layer.state_floats() + layer.conv_floats());
  if (plan.mode != ScdMode::kMapState) return 0;
  const int64_t rows = std::min<int64_t>(tokens, plan.tail + layer.conv_rows);
  const bool whole = tokens <= plan.tail + layer.conv_rows;  // Nothing is left that a state would stand for.
  return (whole ? 0 : 2 * layer.state_floats()) + rows * CodeRowBytes(plan.bits, plan.rank);
}

// Layer `i` begins a group that is recomputed from the producer's residual stream.
bool TakesResidual(const ScdPoint& point, const size_t i) {
  return i > 0 && point.layers[i].mode == ScdMode::kRecompute && point.layers[i - 1].mode != ScdMode::kRecompute;
}

}  // namespace

std::string ToWords(const ScdLayerPlan& plan) {
  std::string words(ScdModeName(plan.mode));
  const bool coded = plan.rank > 0;
  if (plan.mode == ScdMode::kReuseKv) {
    words += fmt::format(" {}+{}", plan.rank, plan.rank_v);
  } else if (coded) {
    words += fmt::format(" {}", plan.rank);
  }
  if (coded) words += fmt::format(" {}", CodeBitsName(plan.bits));
  if (plan.features > 0) words += fmt::format(", {} features", plan.features);
  if (plan.mode == ScdMode::kMapState) words += fmt::format(", tail {}", plan.tail);
  return words;
}

std::string ModesOf(const ScdPoint& point) {
  std::string modes;
  for (size_t mode = 0; mode < std::size(kScdModeNames); ++mode) {
    const bool occurs = std::ranges::any_of(
        point.layers, [&](const ScdLayerPlan& plan) { return static_cast<size_t>(plan.mode) == mode; });
    if (!occurs) continue;
    if (!modes.empty()) modes += '+';
    modes += kScdModeNames[mode];
  }
  return modes;
}

std::string ToWords(const ScdPoint& point) {
  std::string words;
  for (size_t layer = 0; layer < point.layers.size(); ++layer) {
    words += fmt::format("{}{}: {}", layer == 0 ? "" : "; ", layer, ToWords(point.layers[layer]));
  }
  return words;
}

ScdShape ScdShapeOf(const models::ModelSpec& spec) {
  ScdShape shape{.hidden = spec.hidden, .layers = std::vector<ScdLayerShape>(spec.layer_flops.size())};
  for (const LayerIndex layer : spec.attention.layers) {
    ScdLayerShape& to = shape.layers[static_cast<size_t>(layer.value())];
    to.kv_heads = spec.attention.shape.kv_heads;
    to.head_dim = spec.attention.shape.head_dim;
  }
  for (const models::RecurrentLayerState& state : spec.recurrent_states) {
    shape.layers[static_cast<size_t>(state.layer.value())] = {.recurrent = true,
                                                              .heads_k = state.heads_k,
                                                              .heads_v = state.heads_v,
                                                              .dim_k = state.dim_k,
                                                              .dim_v = state.dim_v,
                                                              .conv_rows = state.conv_rows,
                                                              .conv_dim = state.conv_dim};
  }
  return shape;
}

const ScdDecoder* ScdCodec::Find(const int32_t rank, const int32_t features) const {
  for (const ScdDecoder& decoder : decoders) {
    if (decoder.features != features) continue;
    if (features == 0 ? rank > 0 && rank <= std::min<int64_t>(decoder.rank, encoder.ranks()) : rank == decoder.rank)
      return &decoder;
  }
  return nullptr;
}

int64_t ScdLayerBytes(const ScdShape& shape, const ScdPoint& point, const size_t layer, const int64_t tokens) {
  if (TakesResidual(point, layer)) return tokens * 2 * shape.hidden;
  return shape.layers[layer].recurrent ? RecurrentBytes(shape.layers[layer], point.layers[layer], tokens)
                                       : AttentionBytes(shape.layers[layer], point.layers[layer], tokens);
}

int64_t ScdPayloadBytes(const ScdShape& shape, const ScdPoint& point, const int64_t tokens) {
  int64_t bytes = 0;
  for (size_t i = 0; i < shape.layers.size(); ++i) bytes += ScdLayerBytes(shape, point, i, tokens);
  return bytes;
}

ScdWork ScdWorkOf(const ScdProfile& profile, const models::ModelSpec& consumer, const ScdPoint& point,
                  const int64_t tokens) {
  ScdWork work;
  const auto n = static_cast<double>(tokens);
  const auto flops = [](const ScdDecoder* decoder, const int32_t rank) {
    return decoder == nullptr ? 0.0 : static_cast<double>(decoder->Flops(rank));
  };
  const double attention = static_cast<double>(consumer.work.attention_flops_per_position) /
                           std::max(1, consumer.attention_layers) * n * n / 2.0;
  for (size_t i = 0; i < point.layers.size(); ++i) {
    const ScdLayerPlan& plan = point.layers[i];
    const ScdLayerFit& fit = profile.layers[i];
    const models::LayerFlops& layer = consumer.layer_flops[i];
    const bool group_goes_on = i + 1 < point.layers.size() && point.layers[i + 1].mode == ScdMode::kRecompute;
    if (plan.mode == ScdMode::kRecompute) {
      work.recompute_flops += n * static_cast<double>(group_goes_on ? layer.all : layer.input);
      if (group_goes_on && !profile.shape.layers[i].recurrent) work.recompute_flops += attention;
    } else if (plan.mode == ScdMode::kReuseKv) {
      work.reconstruct_flops += n * (flops(fit.keys.Find(plan.rank, plan.features), plan.rank) +
                                     flops(fit.values.Find(plan.rank_v, plan.features), plan.rank_v));
    } else if (plan.mode == ScdMode::kReuse) {
      work.reconstruct_flops += n * flops(fit.joint.Find(plan.rank, plan.features), plan.rank);
    } else if (plan.mode == ScdMode::kPatch) {
      work.reconstruct_flops += n * flops(fit.inputs.Find(plan.rank, plan.features), plan.rank);
      work.recompute_flops += n * static_cast<double>(layer.input);
    } else if (plan.mode == ScdMode::kMapState) {
      const auto rows = static_cast<double>(std::min<int64_t>(tokens, plan.tail + profile.shape.layers[i].conv_rows));
      work.reconstruct_flops +=
          static_cast<double>(fit.states.Flops()) + rows * flops(fit.inputs.Find(plan.rank, plan.features), plan.rank);
      work.recompute_flops += rows * static_cast<double>(layer.input);
    }
  }
  return work;
}

double ScdPrefillFlops(const models::ModelSpec& consumer, const int64_t tokens) {
  const auto n = static_cast<double>(tokens);
  double flops = static_cast<double>(consumer.work.attention_flops_per_position) * n * n / 2.0;
  for (const models::LayerFlops& layer : consumer.layer_flops) flops += n * static_cast<double>(layer.all);
  return flops;
}

Status CheckScdPoint(const ScdProfile& profile, const ScdPoint& point) {
  if (point.layers.size() != profile.shape.layers.size()) {
    return InvalidArgument(fmt::format("point \"{}\": wanted a plan for each of {} layers, found {}", point.name,
                                       profile.shape.layers.size(), point.layers.size()));
  }
  for (size_t i = 0; i < point.layers.size(); ++i) {
    const ScdLayerPlan& plan = point.layers[i];
    const ScdLayerShape& shape = profile.shape.layers[i];
    const ScdLayerFit& fit = profile.layers[i];
    const auto fail = [&](const std::string_view wanted) {
      return InvalidArgument(
          fmt::format("point \"{}\": layer {}: {} of rank {}/{} with {} features and tail {}: wanted {}", point.name, i,
                      ScdModeName(plan.mode), plan.rank, plan.rank_v, plan.features, plan.tail, wanted));
    };
    const bool attention_only = plan.mode == ScdMode::kRaw4 || plan.mode == ScdMode::kReuseKv ||
                                plan.mode == ScdMode::kReuse || plan.mode == ScdMode::kPatch;
    if (attention_only && shape.recurrent) return fail("a mode of recurrent layers");
    if (plan.mode == ScdMode::kMapState && !shape.recurrent) return fail("a mode of attention layers");
    if (plan.tail < 0 || plan.rank < 0 || plan.rank_v < 0) return fail("numbers of at least 0");
    const bool fitted = plan.mode == ScdMode::kReuseKv ? fit.keys.Find(plan.rank, plan.features) != nullptr &&
                                                             fit.values.Find(plan.rank_v, plan.features) != nullptr
                        : plan.mode == ScdMode::kReuse ? fit.joint.Find(plan.rank, plan.features) != nullptr
                        : plan.mode == ScdMode::kPatch ? fit.inputs.Find(plan.rank, plan.features) != nullptr
                        : plan.mode == ScdMode::kMapState
                            ? fit.inputs.Find(plan.rank, plan.features) != nullptr && fit.states.heads_v > 0
                            : true;
    if (!fitted) return fail("a code that was fitted");
  }
  return OkStatus();
}

}  // namespace invar::engine
