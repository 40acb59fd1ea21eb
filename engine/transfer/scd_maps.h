// What is fitted of SCD and how it is applied: encoders on the producer, decoders on the consumer, maps of recurrent
// states. Sizes are those of both models' layers; nothing here knows a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/transfer/scd_rows.h"

namespace invar::engine {

// z = (x - mean) E. Columns of E come in order of worth (reduced-rank regression), so the first r of them are the best
// code of r numbers: one encoder serves all ranks up to its columns.
struct ScdEncoder {
  std::vector<float> mean = {};   // [inputs]
  FloatRows matrix = {};          // [inputs, ranks]
  std::vector<float> sigma = {};  // [ranks], root mean square of each code.

  int64_t ranks() const { return matrix.cols; }
  FloatRows Encode(const kernels::ConstF32View& inputs, int64_t rank) const;
};

// y = mean + phi(z) D, z a code of `rank` numbers. Linear (features 0): phi(z) = z, and D serves every smaller rank by
// its first rows. Otherwise phi(z) = [z, relu(z / sigma R + b)] with fixed pseudo-random columns, and D is of this rank
// alone: closed-form like the linear one, and far better where the code is narrow.
struct ScdDecoder {
  int32_t rank = 0;
  int32_t features = 0;
  std::vector<float> mean = {};  // [outputs]
  FloatRows matrix = {};         // [rank + features, outputs]

  FloatRows Decode(const FloatRows& codes, std::span<const float> sigma) const;
  // Operations a row.
  int64_t Flops(int64_t used_rank) const;
};

// [z, relu(z / sigma R + b)] of each row; R [cols, features] and b [features] follow from the sizes alone.
FloatRows ExpandFeatures(const FloatRows& codes, std::span<const float> sigma, int32_t features);

// S_consumer = gain * M S_producer N^T for each value head, of states [heads_v, dim_k, dim_v]. Exact where keys relate
// by the rotation M, values by N, and gates agree.
struct ScdStateMap {
  int32_t heads_k = 0;
  int32_t heads_v = 0;
  int32_t dim_k = 0;
  int32_t dim_v = 0;
  FloatRows keys = {};           // [heads_k * dim_k, dim_k]: M of each key head.
  FloatRows values = {};         // [heads_v * dim_v, dim_v]: N of each value head.
  std::vector<float> gain = {};  // [heads_v]

  int64_t state_floats() const { return int64_t{heads_v} * dim_k * dim_v; }
  void Apply(std::span<const float> from, std::span<float> to) const;
  int64_t Flops() const;
};

}  // namespace invar::engine
