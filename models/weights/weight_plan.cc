// Declarations keep going after an error, so that the code of a layer reads as a plain list.
#include "models/weights/weight_plan.h"

#include <fmt/format.h>

namespace invar::models {

void WeightPlan::Require(const std::string& tensor, const std::vector<int64_t>& shape) {
  const auto accept = [&] {
    required_.push_back({tensor, shape});
    required_names_.insert(tensor);
  };
  if (files_ == nullptr) return accept();
  const TensorInfo* info = files_->Find(tensor);
  if (info == nullptr) {
    return Fail(DataLoss(fmt::format("{}: tensor \"{}\": wanted shape {}, found no such tensor", files_->FileOf(tensor),
                                     tensor, ShapeText(shape))));
  }
  if (info->shape != shape) {
    return Fail(DataLoss(fmt::format("{}: tensor \"{}\": wanted shape {}, found {}", files_->FileOf(tensor), tensor,
                                     ShapeText(shape), ShapeText(info->shape))));
  }
  if (!info->dtype.has_value()) {
    return Fail(DataLoss(fmt::format("{}: tensor \"{}\": wanted dtype BF16, F16 or F32, found {}",
                                     files_->FileOf(tensor), tensor, info->dtype_name)));
  }
  accept();
}

MatrixId WeightPlan::AddMatrix(std::vector<RowRange> ranges, const int64_t cols) {
  PlannedMatrix matrix{.cols = cols};
  bool first = true;
  for (const RowRange& range : ranges) {
    matrix.rows += range.count;
    const TensorInfo* info = Find(range.tensor);
    if (info == nullptr) continue;
    const kernels::DType dtype = *info->dtype;
    if (first) matrix.source = dtype;
    if (matrix.source != dtype) matrix.source = kernels::DType::kF32;
    first = false;
  }
  matrix.ranges = std::move(ranges);
  matrices_.push_back(std::move(matrix));
  return MatrixId(static_cast<int32_t>(matrices_.size()) - 1);
}

MatrixId WeightPlan::AddMatrix(const std::string& tensor, const int64_t rows, const int64_t cols) {
  Require(tensor, {rows, cols});
  return AddMatrix({{.tensor = tensor, .begin = 0, .count = rows}}, cols);
}

VectorId WeightPlan::AddVector(std::vector<std::string> tensors, const bool add_one) {
  PlannedVector vector{.add_one = add_one};
  for (const std::string& tensor : tensors) {
    const TensorInfo* info = Find(tensor);
    if (info == nullptr) continue;
    int64_t size = 1;
    for (const int64_t dim : info->shape) size *= dim;
    vector.size += size;
  }
  vector.tensors = std::move(tensors);
  vectors_.push_back(std::move(vector));
  return VectorId(static_cast<int32_t>(vectors_.size()) - 1);
}

Status WeightPlan::CheckAllUsed(const std::string& owned_prefix, const std::vector<std::string>& ignored_parts,
                                std::vector<std::string>& unused) const {
  for (const auto& [name, file] : files_->names()) {
    if (required_names_.contains(name)) continue;
    bool ignored = false;
    for (const std::string& part : ignored_parts) ignored = ignored || name.find(part) != std::string::npos;
    if (!ignored && name.starts_with(owned_prefix)) {
      return DataLoss(
          fmt::format("{}: tensor \"{}\": wanted only tensors that config.json's model has, found this one too",
                      files_->FileOf(name), name));
    }
    unused.push_back(name);
  }
  return OkStatus();
}

}  // namespace invar::models
