// Least squares from sums alone: inputs and outputs stream by, only their products are kept, in double. Memory depends
// on the columns, never on how many rows were seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/transfer/scd_maps.h"

namespace invar::engine {

// Weighted sums of x x^T, x y^T and y^2 over rows, each with a 1 appended to x. Rows are added in the caller's order,
// so equal rows give equal bits.
class PairSums {
 public:
  PairSums() = default;
  PairSums(int64_t inputs, int64_t outputs);

  // Requires: as many rows and weights on both sides. Threads: one a PairSums.
  void Add(const kernels::ConstF32View& x, const kernels::ConstF32View& y, std::span<const float> weights);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  // All numbers, for keeping and taking back.
  std::span<double> values() { return values_; }
  std::span<const double> values() const { return values_; }

  // x^T x [inputs + 1, inputs + 1], then x^T y [inputs + 1, outputs], then y^2 [outputs].
  const double* squares() const { return values_.data(); }
  const double* products() const { return values_.data() + (inputs_ + 1) * (inputs_ + 1); }
  const double* output_squares() const { return products() + (inputs_ + 1) * outputs_; }

 private:
  int64_t inputs_ = 0;
  int64_t outputs_ = 0;
  std::vector<double> values_;
};

// An encoder of some rank and its linear decoder.
struct ScdLinearFit {
  ScdEncoder encoder;
  ScdDecoder decoder;
  // Mean squared error of each rank on the rows seen, relative to the outputs' variance: [0] of rank 0 is 1, [r] of r.
  std::vector<double> errors;
};

// Reduced-rank regression of output columns [begin, begin + count) from the inputs. `scale` [count]: an error of scale
// counts as 1. `ridge`: share of the inputs' mean variance that is added to each. Ranks up to min(inputs, count).
// Source: W = (G + lambda I)^-1 C; V = eigenvectors of W^T G W by falling value; encoder W V, decoder V^T.
ScdLinearFit FitReducedRank(const PairSums& sums, int64_t begin, int64_t count, std::span<const float> scale,
                            double ridge);

// Root mean square of output columns [begin, begin + count), over all of them: one number, for `scale`.
float OutputSize(const PairSums& sums, int64_t begin, int64_t count);

// Ridge regression with everything in its place: y = mean_y + (x - mean_x) W, as mean + x W. W [inputs, outputs].
struct RidgeFit {
  std::vector<float> mean;
  FloatRows matrix;
};
RidgeFit FitRidge(const PairSums& sums, double ridge);

// Sums of y x^T and x x^T of one head's vectors, for maps without a mean.
class HeadSums {
 public:
  HeadSums() = default;
  explicit HeadSums(const int64_t dim) : dim_(dim), values_(static_cast<size_t>(2 * dim * dim)) {}

  // Columns [begin, begin + dim) of each row; `unit`: scaled to length 1 first, as the recurrence reads keys.
  void Add(const kernels::ConstF32View& x, const kernels::ConstF32View& y, int64_t begin, bool unit);
  std::span<double> values() { return values_; }
  std::span<const double> values() const { return values_; }
  int64_t dim() const { return dim_; }

 private:
  int64_t dim_ = 0;
  std::vector<double> values_;  // y x^T, then x x^T: [dim, dim] each.
};

// The rotation (or reflection) nearest to y = M x, and the ridge regression of it: [dim, dim] each.
FloatRows FitRotation(const HeadSums& sums);
FloatRows FitHeadRidge(const HeadSums& sums, double ridge);

}  // namespace invar::engine
