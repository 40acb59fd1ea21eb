// See candidates.h.
#include "tools/calibrate/candidates.h"

#include <fmt/format.h>

#include <algorithm>

namespace invar::calibrate {
namespace {

using engine::CodeBits;
using engine::ScdLayerPlan;
using engine::ScdLayerShape;
using engine::ScdMode;

// Of the narrowest attention layer; 0: there is none.
int64_t KvColumns(const engine::ScdShape& shape) {
  int64_t columns = 0;
  for (const ScdLayerShape& layer : shape.layers) {
    if (!layer.recurrent && (columns == 0 || layer.kv_columns() < columns)) columns = layer.kv_columns();
  }
  return columns;
}

ScdLayerPlan RecurrentPlan(const engine::ScdShape& shape, const int32_t tail, const int32_t features) {
  return {
      .mode = ScdMode::kMapState, .bits = CodeBits::kInt8, .rank = shape.hidden, .features = features, .tail = tail};
}

ScdLayerPlan PaperPlan(const ScdLayerShape& layer, const CalibrateOptions& options) {
  const auto columns = static_cast<int32_t>(layer.kv_columns());
  const auto rank = [&](const int32_t asked, const int32_t usual) {
    return std::clamp(asked > 0 ? asked : usual, 1, columns);
  };
  return {.mode = ScdMode::kReuseKv,
          .bits = CodeBits::kBf16,
          .rank = rank(options.rank_k, columns / 2),
          .rank_v = rank(options.rank_v, columns * 7 / 10)};
}

}  // namespace

std::vector<int32_t> JointRanks(const engine::ScdShape& shape) {
  const auto columns = static_cast<int32_t>(2 * KvColumns(shape));
  std::vector<int32_t> ranks;
  for (const int32_t share : {8, 4, 2}) {
    const int32_t rank = std::min(columns / share, shape.hidden);
    if (rank > 0 && (ranks.empty() || ranks.back() != rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int32_t> InputRanks(const engine::ScdShape& shape) {
  std::vector<int32_t> ranks;
  for (const int32_t rank : {shape.hidden / 2, shape.hidden * 3 / 4, shape.hidden}) {
    if (rank > 0 && (ranks.empty() || ranks.back() != rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<ScdLayerPlan> PlansOf(const engine::ScdShape& shape, const size_t layer, const CalibrateOptions& options) {
  const ScdLayerShape& of = shape.layers[layer];
  std::vector<int32_t> features = {0};
  if (options.features > 0) features.push_back(options.features);
  std::vector<ScdLayerPlan> plans;
  if (layer == 0) plans.push_back({.mode = ScdMode::kRecompute});  // Its inputs follow from the tokens.
  if (of.recurrent) {
    for (const int32_t tail : options.tails) {
      for (const int32_t count : features) {
        for (const CodeBits bits : {CodeBits::kInt4, CodeBits::kInt8}) {
          plans.push_back(RecurrentPlan(shape, tail, count));
          plans.back().bits = bits;
        }
      }
    }
    plans.push_back({.mode = ScdMode::kRaw});
    return plans;
  }
  const auto add = [&](const ScdMode mode, const std::vector<int32_t>& ranks) {
    for (const int32_t rank : ranks) {
      for (const int32_t count : features) {
        for (const CodeBits bits : {CodeBits::kInt4, CodeBits::kInt8})
          plans.push_back({.mode = mode, .bits = bits, .rank = rank, .features = count});
      }
    }
  };
  add(ScdMode::kReuse, JointRanks(shape));
  if (options.rank_k > 0 || options.rank_v > 0) {
    plans.push_back(PaperPlan(of, options));
    plans.back().bits = CodeBits::kInt8;
  }
  if (options.patch_layers != 0) add(ScdMode::kPatch, InputRanks(shape));
  plans.push_back({.mode = ScdMode::kRaw});
  return plans;
}

std::vector<engine::ScdPoint> Baselines(const engine::ScdShape& shape, const CalibrateOptions& options) {
  const int32_t tail = options.tails.empty() ? 0 : *std::ranges::max_element(options.tails);
  std::vector<engine::ScdPoint> points;
  const auto add = [&](std::string name, const ScdLayerPlan& recurrent, const auto& attention) {
    engine::ScdPoint point{.name = std::move(name), .layers = {}};
    for (const ScdLayerShape& layer : shape.layers)
      point.layers.push_back(layer.recurrent ? recurrent : attention(layer));
    points.push_back(std::move(point));
  };
  const auto everywhere = [](const ScdLayerPlan& plan) { return [plan](const ScdLayerShape&) { return plan; }; };
  add("drop", {.mode = ScdMode::kDrop}, everywhere({.mode = ScdMode::kDrop}));
  add("raw", {.mode = ScdMode::kRaw}, everywhere({.mode = ScdMode::kRaw}));
  if (KvColumns(shape) == 0) return points;
  add("raw4", {.mode = ScdMode::kRaw}, everywhere({.mode = ScdMode::kRaw4}));
  const ScdLayerPlan mapped = RecurrentPlan(shape, tail, 0);
  add("reuse-kv", mapped, [&](const ScdLayerShape& layer) { return PaperPlan(layer, options); });
  const std::vector<int32_t> ranks = JointRanks(shape);
  add("reuse-linear", mapped, everywhere({.mode = ScdMode::kReuse, .bits = CodeBits::kInt8, .rank = ranks.back()}));
  if (options.features > 0) {
    add("reuse-nonlinear", mapped,
        everywhere({.mode = ScdMode::kReuse,
                    .bits = CodeBits::kInt4,
                    .rank = ranks[std::min<size_t>(1, ranks.size() - 1)],
                    .features = options.features}));
  }
  return points;
}

std::vector<engine::ScdPoint> RecomputedGroups(const engine::ScdShape& shape) {
  const size_t layers = shape.layers.size();
  const size_t size = std::max<size_t>(1, layers / 4);
  std::vector<engine::ScdPoint> points;
  for (size_t begin = 0; begin + size <= layers; ++begin) {
    engine::ScdPoint point{.name = "recompute",
                           .layers = std::vector<ScdLayerPlan>(layers, ScdLayerPlan{.mode = ScdMode::kRaw})};
    for (size_t i = begin; i < begin + size; ++i) point.layers[i].mode = ScdMode::kRecompute;
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace invar::calibrate
