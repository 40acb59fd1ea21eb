// WeightPlan: which stored tensors become which packed matrices and vectors. Layers declare what they need, every
// tensor is checked against the weight files at once, and only a complete plan is packed: a bad folder is refused
// before any weight is read. A matrix is a list of row ranges: that one form covers plain matrices, fused projections
// (q, k, v in one), experts (slices of a 3-D tensor) and the reordering of qwen3_next's grouped projections.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/weights/weight_files.h"

namespace invar::models {

using MatrixId = StrongInt<struct MatrixIdTag, int32_t>;
using VectorId = StrongInt<struct VectorIdTag, int32_t>;

// Rows [begin, begin + count) of a tensor seen as [elements / columns, columns].
struct RowRange {
  std::string tensor;
  int64_t begin = 0;
  int64_t count = 0;
};

struct PlannedMatrix {
  std::vector<RowRange> ranges{};
  int64_t rows = 0;
  int64_t cols = 0;
  kernels::DType source = kernels::DType::kF32;  // Type the ranges are brought to: their own, or f32 where they differ.
};

struct PlannedVector {
  std::vector<std::string> tensors{};  // Concatenated.
  int64_t size = 0;
  bool add_one = false;  // Zero-centred norms: 1 + w, in f32.
};

struct RequiredTensor {
  std::string name;
  std::vector<int64_t> shape;
};

class WeightPlan {
 public:
  // Only lists what is required: to make weight files up. Has every tensor it is asked for; nothing can be loaded.
  WeightPlan() = default;
  // Requires: `files` outlive the plan.
  explicit WeightPlan(const WeightFiles& files) : files_(&files) {}

  // The tensor must be there in this shape, as f32, bf16 or f16.
  void Require(const std::string& tensor, const std::vector<int64_t>& shape);
  bool Has(const std::string& tensor) const { return files_ == nullptr || files_->Find(tensor) != nullptr; }

  // Ranges of tensors named to Require before.
  MatrixId AddMatrix(std::vector<RowRange> ranges, int64_t cols);
  // One whole tensor [rows, cols], required here.
  MatrixId AddMatrix(const std::string& tensor, int64_t rows, int64_t cols);
  VectorId AddVector(std::vector<std::string> tensors, bool add_one = false);

  // The first thing that was wrong. Ids given out after an error are of no use.
  const Status& status() const { return status_; }
  // Errors: DATA_LOSS where a tensor whose name starts with `owned_prefix` is not part of the plan: the configuration
  // and the weights contradict each other. Gives the names of other unused tensors in `unused`.
  Status CheckAllUsed(const std::string& owned_prefix, const std::vector<std::string>& ignored_parts,
                      std::vector<std::string>& unused) const;

  // In order of declaration.
  const std::vector<RequiredTensor>& required() const { return required_; }
  const std::vector<PlannedMatrix>& matrices() const { return matrices_; }
  const std::vector<PlannedVector>& vectors() const { return vectors_; }
  const WeightFiles& files() const { return *files_; }

 private:
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // Null where shapes alone decide, for a tensor that failed too.
  const TensorInfo* Find(const std::string& tensor) const {
    return required_names_.contains(tensor) && files_ != nullptr ? files_->Find(tensor) : nullptr;
  }

  const WeightFiles* files_ = nullptr;
  std::vector<RequiredTensor> required_;
  std::set<std::string> required_names_;
  std::vector<PlannedMatrix> matrices_;
  std::vector<PlannedVector> vectors_;
  Status status_;
};

}  // namespace invar::models
