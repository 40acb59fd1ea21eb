// See scd_gram.h.
#include "engine/transfer/scd_gram.h"

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/transfer/scd_eigen.h"

namespace invar::engine {
namespace {

using DoubleMap = Eigen::Map<DoubleMatrix>;
using ConstDoubleMap = Eigen::Map<const DoubleMatrix>;

// Eigen cuts products into blocks by the sizes of caches it finds; sums would then differ between machines.
void FixBlocks() {
  static const bool fixed = [] {
    constexpr std::ptrdiff_t kL1 = 32 << 10;
    constexpr std::ptrdiff_t kL2 = 256 << 10;
    constexpr std::ptrdiff_t kL3 = 2 << 20;
    Eigen::setCpuCacheSizes(kL1, kL2, kL3);
    return true;
  }();
  static_cast<void>(fixed);
}

DoubleMatrix ToDouble(const kernels::ConstF32View& view) {
  return Eigen::Map<const FloatMatrix, 0, Eigen::OuterStride<>>(view.data, view.rows, view.cols,
                                                                Eigen::OuterStride<>(view.stride))
      .cast<double>();
}

// Means and centred sums.
struct Centred {
  double rows = 0.0;
  Eigen::RowVectorXd mean_x;
  Eigen::RowVectorXd mean_y;
  DoubleMatrix g;  // [inputs, inputs]
  DoubleMatrix c;  // [inputs, outputs]
  Eigen::RowVectorXd yy;
};

Centred Centre(const PairSums& sums) {
  const int64_t n = sums.inputs();
  const ConstDoubleMap g(sums.squares(), n + 1, n + 1);
  const ConstDoubleMap c(sums.products(), n + 1, sums.outputs());
  const Eigen::Map<const Eigen::RowVectorXd> yy(sums.output_squares(), sums.outputs());
  Centred out;
  out.rows = std::max(g(n, n), 1e-300);
  out.mean_x = g.row(n).head(n) / out.rows;
  out.mean_y = c.row(n) / out.rows;
  out.g = g.topLeftCorner(n, n) - out.rows * out.mean_x.transpose() * out.mean_x;
  out.c = c.topRows(n) - out.rows * out.mean_x.transpose() * out.mean_y;
  out.yy = yy - out.rows * out.mean_y.cwiseAbs2();
  return out;
}

// (G + lambda I)^-1 C, lambda = ridge * mean of G's diagonal.
DoubleMatrix Solve(const DoubleMatrix& g, const DoubleMatrix& c, const double ridge) {
  const double lambda = ridge * g.trace() / static_cast<double>(g.rows());
  DoubleMatrix shifted = g;
  // A column that never moves must not stop the factorisation.
  shifted.diagonal().array() += std::max(lambda, 1e-30);
  return shifted.ldlt().solve(c);
}

std::vector<float> ToFloats(const Eigen::RowVectorXd& row) {
  std::vector<float> out(static_cast<size_t>(row.size()));
  for (Eigen::Index i = 0; i < row.size(); ++i) out[static_cast<size_t>(i)] = static_cast<float>(row[i]);
  return out;
}

// Eigenvectors come with either sign; one of them is chosen, so that a file has one content.
void FixSigns(DoubleMatrix& columns) {
  for (Eigen::Index j = 0; j < columns.cols(); ++j) {
    Eigen::Index largest = 0;
    columns.col(j).cwiseAbs().maxCoeff(&largest);
    if (columns(largest, j) < 0.0) columns.col(j) = -columns.col(j);
  }
}

}  // namespace

PairSums::PairSums(const int64_t inputs, const int64_t outputs)
    : inputs_(inputs),
      outputs_(outputs),
      values_(static_cast<size_t>((inputs + 1) * (inputs + 1) + (inputs + 1) * outputs + outputs)) {}

void PairSums::Add(const kernels::ConstF32View& x, const kernels::ConstF32View& y,
                   const std::span<const float> weights) {
  Check(x.rows == y.rows && x.cols == inputs_ && y.cols == outputs_ && std::ssize(weights) == x.rows,
        "rows of both sides are paired", x.rows, y.rows, x.cols, y.cols);
  FixBlocks();
  const int64_t n = inputs_;
  DoubleMatrix one(x.rows, n + 1);
  one.leftCols(n) = ToDouble(x);
  one.col(n).setOnes();
  const DoubleMatrix out = ToDouble(y);
  DoubleMatrix weighted = one;
  for (int64_t r = 0; r < x.rows; ++r) weighted.row(r) *= static_cast<double>(weights[static_cast<size_t>(r)]);
  DoubleMap(values_.data(), n + 1, n + 1).noalias() += weighted.transpose() * one;
  double* const products = values_.data() + (n + 1) * (n + 1);
  DoubleMap(products, n + 1, outputs_).noalias() += weighted.transpose() * out;
  Eigen::Map<Eigen::RowVectorXd> yy(products + (n + 1) * outputs_, outputs_);
  for (int64_t r = 0; r < y.rows; ++r) yy += weighted(r, n) * out.row(r).cwiseAbs2();
}

float OutputSize(const PairSums& sums, const int64_t begin, const int64_t count) {
  const Centred centred = Centre(sums);
  const double mean = centred.yy.segment(begin, count).sum() / (centred.rows * static_cast<double>(count));
  return static_cast<float>(std::sqrt(std::max(mean, 1e-24)));
}

ScdLinearFit FitReducedRank(const PairSums& sums, const int64_t begin, const int64_t count,
                            const std::span<const float> scale, const double ridge) {
  FixBlocks();
  const Centred centred = Centre(sums);
  Eigen::RowVectorXd size(count);
  for (int64_t j = 0; j < count; ++j) size[j] = static_cast<double>(scale[static_cast<size_t>(j)]);
  const DoubleMatrix c = centred.c.middleCols(begin, count) * size.cwiseInverse().asDiagonal();
  const DoubleMatrix w = Solve(centred.g, c, ridge);
  DoubleMatrix explained = w.transpose() * centred.g * w;
  explained = (0.5 * (explained + explained.transpose())).eval();
  const Eigen::SelfAdjointEigenSolver<DoubleMatrix> eigen(explained);
  const int64_t ranks = std::min(sums.inputs(), count);
  DoubleMatrix v(count, ranks);
  for (int64_t r = 0; r < ranks; ++r) v.col(r) = eigen.eigenvectors().col(count - 1 - r);
  FixSigns(v);
  ScdLinearFit fit;
  const DoubleMatrix encoder = w * v;
  fit.encoder = {.mean = ToFloats(centred.mean_x), .matrix = ToRows(encoder)};
  fit.decoder = {.rank = static_cast<int32_t>(ranks),
                 .mean = ToFloats(centred.mean_y.segment(begin, count)),
                 .matrix = ToRows(v.transpose() * size.asDiagonal())};
  const double variance = std::max(centred.yy.segment(begin, count).cwiseQuotient(size.cwiseAbs2()).sum(), 1e-300);
  double error = variance;
  fit.errors.push_back(1.0);
  const DoubleMatrix cv = c * v;
  for (int64_t r = 0; r < ranks; ++r) {
    // ||Y - X e v^T||^2 falls by 2 e^T X^T Y v - e^T G e for each code, whatever the ridge.
    const double power = encoder.col(r).dot(centred.g * encoder.col(r));
    error -= 2.0 * encoder.col(r).dot(cv.col(r)) - power;
    fit.errors.push_back(std::max(error, 0.0) / variance);
    fit.encoder.sigma.push_back(static_cast<float>(std::sqrt(std::max(power / centred.rows, 1e-24))));
  }
  return fit;
}

RidgeFit FitRidge(const PairSums& sums, const double ridge) {
  FixBlocks();
  const Centred centred = Centre(sums);
  const DoubleMatrix w = Solve(centred.g, centred.c, ridge);
  return {.mean = ToFloats(centred.mean_y - centred.mean_x * w), .matrix = ToRows(w)};
}

void HeadSums::Add(const kernels::ConstF32View& x, const kernels::ConstF32View& y, const int64_t begin,
                   const bool unit) {
  FixBlocks();
  DoubleMatrix from = ToDouble(x.Columns(begin, dim_));
  DoubleMatrix to = ToDouble(y.Columns(begin, dim_));
  if (unit) {
    constexpr double kEpsilon = 1e-6;  // As the recurrence adds it (kernels::DeltaArgs).
    for (int64_t r = 0; r < from.rows(); ++r) {
      from.row(r) /= std::sqrt(from.row(r).squaredNorm() + kEpsilon);
      to.row(r) /= std::sqrt(to.row(r).squaredNorm() + kEpsilon);
    }
  }
  DoubleMap(values_.data(), dim_, dim_).noalias() += to.transpose() * from;
  DoubleMap(values_.data() + dim_ * dim_, dim_, dim_).noalias() += from.transpose() * from;
}

FloatRows FitRotation(const HeadSums& sums) {
  const ConstDoubleMap cross(sums.values().data(), sums.dim(), sums.dim());
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(cross, Eigen::ComputeFullU | Eigen::ComputeFullV);
  return ToRows(svd.matrixU() * svd.matrixV().transpose());
}

FloatRows FitHeadRidge(const HeadSums& sums, const double ridge) {
  const int64_t d = sums.dim();
  const ConstDoubleMap cross(sums.values().data(), d, d);
  const ConstDoubleMap squares(sums.values().data() + d * d, d, d);
  return ToRows(Solve(squares, cross.transpose(), ridge).transpose());
}

}  // namespace invar::engine
