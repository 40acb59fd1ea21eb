// See scd_fit.h.
#include "engine/transfer/scd_fit.h"

#include <algorithm>

#include "engine/transfer/scd_eigen.h"

namespace invar::engine {
namespace {

// Shares of the mean variance. Linear maps have hundreds of inputs and thousands of rows: next to nothing, so that a
// pair of equal models is reproduced to float precision. Features are many and alike: enough to keep them in bounds.
constexpr double kLinearRidge = 1e-8;
constexpr double kFeatureRidge = 1e-3;
constexpr double kHeadRidge = 1e-4;

// [keys | values | inputs] side by side.
FloatRows Beside(const std::span<const FloatRows* const> parts) {
  int64_t cols = 0;
  for (const FloatRows* part : parts) cols += part->cols;
  FloatRows out(parts[0]->rows, cols);
  int64_t at = 0;
  for (const FloatRows* part : parts) {
    for (int64_t r = 0; r < out.rows; ++r) std::copy_n(part->row(r), part->cols, out.row(r) + at);
    at += part->cols;
  }
  return out;
}

ScdCodec CodecOf(ScdLinearFit fit) {
  ScdCodec codec{.encoder = std::move(fit.encoder), .decoders = {}};
  codec.decoders.push_back(std::move(fit.decoder));
  return codec;
}

ScdCodec FitCodec(const PairSums& sums, const int64_t begin, const int64_t count) {
  const std::vector<float> scale(static_cast<size_t>(count), OutputSize(sums, begin, count));
  return CodecOf(FitReducedRank(sums, begin, count, scale, kLinearRidge));
}

// An error of K counts as much as an equal share of V's size.
ScdCodec FitJoint(const PairSums& sums, const int64_t kv_columns) {
  std::vector<float> scale(static_cast<size_t>(kv_columns), OutputSize(sums, 0, kv_columns));
  scale.resize(static_cast<size_t>(2 * kv_columns), OutputSize(sums, kv_columns, kv_columns));
  return CodecOf(FitReducedRank(sums, 0, 2 * kv_columns, scale, kLinearRidge));
}

}  // namespace

ScdLayerFitter::ScdLayerFitter(const ScdLayerShape& shape, const int32_t hidden, const ScdFitOptions& options)
    : shape_(shape), options_(options), hidden_(hidden) {
  if (shape.recurrent) {
    inputs_ = PairSums(hidden, hidden);
    key_heads_.assign(static_cast<size_t>(shape.heads_k), HeadSums(shape.dim_k));
    value_heads_.assign(static_cast<size_t>(shape.heads_v), HeadSums(shape.dim_v));
    state_products_.assign(static_cast<size_t>(4 * shape.heads_v), 0.0);
  } else {
    const int64_t cols = shape.kv_columns();
    keys_ = PairSums(cols, cols);
    values_ = PairSums(cols, cols);
    inputs_ = PairSums(hidden, 2 * cols + hidden);
    for (const int32_t rank : options.features > 0 ? options.joint_ranks : std::vector<int32_t>())
      nonlinear_.push_back({.joint = true, .rank = rank, .sums = PairSums(rank + options.features, 2 * cols)});
  }
  for (const int32_t rank : options.features > 0 ? options.input_ranks : std::vector<int32_t>()) {
    if (shape.recurrent && rank != hidden) continue;  // Codes of a recurrence's inputs are full-width.
    nonlinear_.push_back({.joint = false, .rank = rank, .sums = PairSums(rank + options.features, hidden)});
  }
}

void ScdLayerFitter::AddLinear(const ScdPairedLayer& layer) {
  if (!shape_.recurrent) {
    keys_.Add(layer.producer_kv.keys.view(), layer.consumer_kv.keys.view(), layer.weights);
    values_.Add(layer.producer_kv.values.view(), layer.consumer_kv.values.view(), layer.weights);
    const FloatRows* const parts[] = {&layer.consumer_kv.keys, &layer.consumer_kv.values, &layer.consumer_inputs};
    inputs_.Add(layer.producer_inputs.view(), Beside(parts).view(), layer.weights);
    return;
  }
  inputs_.Add(layer.producer_inputs.view(), layer.consumer_inputs.view(), layer.weights);
  const int64_t keys = int64_t{shape_.heads_k} * shape_.dim_k;
  for (int32_t h = 0; h < shape_.heads_k; ++h) {
    key_heads_[static_cast<size_t>(h)].Add(layer.producer_scanned->view(), layer.consumer_scanned->view(),
                                           keys + int64_t{h} * shape_.dim_k, /*unit=*/true);
  }
  for (int32_t h = 0; h < shape_.heads_v; ++h) {
    value_heads_[static_cast<size_t>(h)].Add(layer.producer_scanned->view(), layer.consumer_scanned->view(),
                                             2 * keys + int64_t{h} * shape_.dim_v, /*unit=*/false);
  }
}

void ScdLayerFitter::SolveLinear() {
  if (shape_.recurrent) {
    fit_.inputs = FitCodec(inputs_, 0, hidden_);
    ScdStateMap map{.heads_k = shape_.heads_k,
                    .heads_v = shape_.heads_v,
                    .dim_k = shape_.dim_k,
                    .dim_v = shape_.dim_v,
                    .keys = FloatRows(int64_t{shape_.heads_k} * shape_.dim_k, shape_.dim_k),
                    .values = FloatRows(int64_t{shape_.heads_v} * shape_.dim_v, shape_.dim_v),
                    .gain = std::vector<float>(static_cast<size_t>(shape_.heads_v), 1.0F)};
    const auto place = [](const FloatRows& part, const int64_t head, FloatRows& whole) {
      std::copy(part.values.begin(), part.values.end(), whole.row(head * part.rows));
    };
    for (int32_t h = 0; h < shape_.heads_v; ++h)
      place(FitHeadRidge(value_heads_[static_cast<size_t>(h)], kHeadRidge), h, map.values);
    ridge_states_ = map;
    for (int32_t h = 0; h < shape_.heads_k; ++h) {
      place(FitRotation(key_heads_[static_cast<size_t>(h)]), h, map.keys);
      place(FitHeadRidge(key_heads_[static_cast<size_t>(h)], kHeadRidge), h, ridge_states_.keys);
    }
    fit_.states = map;
    return;
  }
  const int64_t cols = shape_.kv_columns();
  fit_.keys = FitCodec(keys_, 0, cols);
  fit_.values = FitCodec(values_, 0, cols);
  fit_.joint = FitJoint(inputs_, cols);
  fit_.inputs = FitCodec(inputs_, 2 * cols, hidden_);
}

void ScdLayerFitter::AddNonlinear(const ScdPairedLayer& layer) {
  if (!nonlinear_.empty()) {
    FloatRows both;
    if (!shape_.recurrent) {
      const FloatRows* const parts[] = {&layer.consumer_kv.keys, &layer.consumer_kv.values};
      both = Beside(parts);
    }
    for (Nonlinear& one : nonlinear_) {
      const ScdEncoder& encoder = one.joint ? fit_.joint.encoder : fit_.inputs.encoder;
      const FloatRows codes = encoder.Encode(layer.producer_inputs.view(), one.rank);
      one.sums.Add(ExpandFeatures(codes, encoder.sigma, options_.features).view(),
                   one.joint ? both.view() : layer.consumer_inputs.view(), layer.weights);
    }
  }
  if (!shape_.recurrent) return;
  std::vector<float> mapped(static_cast<size_t>(shape_.state_floats()));
  const auto head_floats = static_cast<size_t>(shape_.dim_k) * shape_.dim_v;
  const auto add = [&](const ScdStateMap& map, const size_t at) {
    map.Apply(layer.producer_state, mapped);
    for (size_t h = 0; h < static_cast<size_t>(shape_.heads_v); ++h) {
      for (size_t i = h * head_floats; i < (h + 1) * head_floats; ++i) {
        state_products_[4 * h + at] += static_cast<double>(layer.consumer_state[i]) * mapped[i];
        state_products_[4 * h + at + 1] += static_cast<double>(mapped[i]) * mapped[i];
      }
    }
  };
  add(fit_.states, 0);
  add(ridge_states_, 2);
}

// Of both maps of keys, each key head takes the one that explains more of its value heads' states; then each value head
// is scaled to its least squares.
void ScdLayerFitter::SolveStates() {
  const auto explained = [&](const size_t head, const size_t at) {
    const double* products = state_products_.data() + 4 * head + at;
    return products[1] > 0.0 ? products[0] * products[0] / products[1] : 0.0;
  };
  const auto group = static_cast<size_t>(shape_.heads_v / shape_.heads_k);
  for (size_t key_head = 0; key_head < static_cast<size_t>(shape_.heads_k); ++key_head) {
    double rotation = 0.0;
    double regression = 0.0;
    for (size_t h = key_head * group; h < (key_head + 1) * group; ++h) {
      rotation += explained(h, 0);
      regression += explained(h, 2);
    }
    const bool by_regression = regression > rotation;
    if (by_regression) {
      const int64_t begin = static_cast<int64_t>(key_head) * shape_.dim_k;
      std::copy_n(ridge_states_.keys.row(begin), int64_t{shape_.dim_k} * shape_.dim_k, fit_.states.keys.row(begin));
    }
    for (size_t h = key_head * group; h < (key_head + 1) * group; ++h) {
      const double* products = state_products_.data() + 4 * h + (by_regression ? 2 : 0);
      fit_.states.gain[h] = products[1] > 0.0 ? static_cast<float>(products[0] / products[1]) : 1.0F;
    }
  }
}

void ScdLayerFitter::SolveNonlinear() {
  for (const Nonlinear& one : nonlinear_) {
    RidgeFit fit = FitRidge(one.sums, kFeatureRidge);
    ScdCodec& codec = one.joint ? fit_.joint : fit_.inputs;
    codec.decoders.push_back({.rank = one.rank,
                              .features = options_.features,
                              .mean = std::move(fit.mean),
                              .matrix = std::move(fit.matrix)});
  }
  if (shape_.recurrent) SolveStates();
}

std::vector<std::span<double>> ScdLayerFitter::Sums() {
  std::vector<std::span<double>> all = {keys_.values(), values_.values(), inputs_.values(), state_products_};
  for (HeadSums& head : key_heads_) all.push_back(head.values());
  for (HeadSums& head : value_heads_) all.push_back(head.values());
  for (Nonlinear& one : nonlinear_) all.push_back(one.sums.values());
  return all;
}

}  // namespace invar::engine
