// Codes are narrow, so their products run on the calling thread; the consumer's own projections run on its backend.
#include "engine/transfer/scd_maps.h"

#include <cmath>

#include "base/check.h"
#include "base/split_mix64.h"
#include "engine/transfer/scd_eigen.h"

namespace invar::engine {
namespace {

// In [-sqrt(3), sqrt(3)): variance 1, by arithmetic alone, so that every machine draws the same bits.
float NextUnit(SplitMix64& random) {
  constexpr float kSqrt12 = 3.4641016F;
  return (static_cast<float>(random.Next() >> 40) * 0x1p-24F - 0.5F) * kSqrt12;
}

}  // namespace

FloatRows ScdEncoder::Encode(const kernels::ConstF32View& inputs, const int64_t rank) const {
  Check(inputs.cols == matrix.rows && rank <= ranks(), "an encoder fits its inputs", inputs.cols, rank);
  FloatRows codes(inputs.rows, rank);
  const Eigen::Map<const FloatMatrix, 0, Eigen::OuterStride<>> x(inputs.data, inputs.rows, inputs.cols,
                                                                 Eigen::OuterStride<>(inputs.stride));
  const FloatMatrix centred = x.rowwise() - AsRow(mean);
  AsMatrix(codes).noalias() = centred * AsMatrix(matrix).leftCols(rank);
  return codes;
}

FloatRows ScdDecoder::Decode(const FloatRows& codes, const std::span<const float> sigma) const {
  FloatRows out(codes.rows, matrix.cols);
  if (features == 0) {
    Check(codes.cols <= matrix.rows, "a linear decoder has a row for every code", codes.cols, matrix.rows);
    AsMatrix(out).noalias() = AsMatrix(codes) * AsMatrix(matrix).topRows(codes.cols);
  } else {
    Check(codes.cols == rank, "a decoder of features is of one rank", codes.cols, rank);
    const FloatRows expanded = ExpandFeatures(codes, sigma, features);
    AsMatrix(out).noalias() = AsMatrix(expanded) * AsMatrix(matrix);
  }
  AsMatrix(out).rowwise() += AsRow(mean);
  return out;
}

int64_t ScdDecoder::Flops(const int64_t used_rank) const {
  return 2 * (used_rank * features + (used_rank + features) * matrix.cols);
}

FloatRows ExpandFeatures(const FloatRows& codes, const std::span<const float> sigma, const int32_t features) {
  SplitMix64 random(static_cast<uint64_t>(codes.cols) << 32 | static_cast<uint64_t>(features));
  FloatMatrix columns(codes.cols, features);
  // A feature looks at unit codes, so that its input is of size one too.
  const float scale = 1.0F / std::sqrt(static_cast<float>(codes.cols));
  for (Eigen::Index j = 0; j < codes.cols; ++j) {
    for (Eigen::Index f = 0; f < features; ++f)
      columns(j, f) = NextUnit(random) * scale / sigma[static_cast<size_t>(j)];
  }
  Eigen::RowVectorXf shift(features);
  for (Eigen::Index f = 0; f < features; ++f) shift[f] = NextUnit(random);
  FloatRows out(codes.rows, codes.cols + features);
  AsMatrix(out).leftCols(codes.cols) = AsMatrix(codes);
  AsMatrix(out).rightCols(features).noalias() = AsMatrix(codes) * columns;
  AsMatrix(out).rightCols(features).rowwise() += shift;
  AsMatrix(out).rightCols(features) = AsMatrix(out).rightCols(features).cwiseMax(0.0F);
  return out;
}

void ScdStateMap::Apply(const std::span<const float> from, const std::span<float> to) const {
  Check(std::ssize(from) == state_floats() && std::ssize(to) == state_floats(), "states have the map's shape");
  for (int32_t h = 0; h < heads_v; ++h) {
    const int64_t at = int64_t{h} * dim_k * dim_v;
    const ConstFloatMap state(from.data() + at, dim_k, dim_v);
    const int64_t key_head = h / (heads_v / heads_k);
    const auto m = AsMatrix(keys).middleRows(key_head * dim_k, dim_k);
    const auto n = AsMatrix(values).middleRows(int64_t{h} * dim_v, dim_v);
    FloatMap(to.data() + at, dim_k, dim_v).noalias() = gain[static_cast<size_t>(h)] * (m * state) * n.transpose();
  }
}

int64_t ScdStateMap::Flops() const { return 2 * state_floats() * (int64_t{dim_k} + dim_v); }

}  // namespace invar::engine
