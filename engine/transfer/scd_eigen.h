// Eigen's views of our rows. For the .cc files of SCD alone: everything here is inline and slow to compile.
// Eigen runs on the calling thread, so sums have one order whatever the number of threads.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "engine/transfer/scd_rows.h"

namespace invar::engine {

using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using DoubleMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using DoubleVector = Eigen::VectorXd;
using FloatMap = Eigen::Map<FloatMatrix>;
using ConstFloatMap = Eigen::Map<const FloatMatrix>;

inline FloatMap AsMatrix(FloatRows& rows) { return {rows.values.data(), rows.rows, rows.cols}; }
inline ConstFloatMap AsMatrix(const FloatRows& rows) { return {rows.values.data(), rows.rows, rows.cols}; }
inline Eigen::Map<const Eigen::RowVectorXf> AsRow(const std::vector<float>& values) {
  return {values.data(), static_cast<Eigen::Index>(values.size())};
}
inline FloatRows ToRows(const DoubleMatrix& matrix) {
  FloatRows rows(matrix.rows(), matrix.cols());
  AsMatrix(rows) = matrix.cast<float>();
  return rows;
}

}  // namespace invar::engine
