// See taps.h.
#include "tools/calibrate/taps.h"

#include "kernels/bf16.h"

namespace invar::calibrate {
namespace {

void Append(const kernels::ConstF32View& from, engine::FloatRows& to) {
  for (int64_t r = 0; r < from.rows; ++r) to.values.insert(to.values.end(), from.row(r), from.row(r) + from.cols);
  to.rows += from.rows;
  to.cols = from.cols;
}

void Append(const kernels::Activations& from, engine::FloatRows& to) {
  if (from.dtype == kernels::DType::kF32)
    return Append(kernels::ConstF32View{static_cast<const float*>(from.data), from.rows, from.cols, from.stride}, to);
  for (int64_t r = 0; r < from.rows; ++r) {
    const auto* row = reinterpret_cast<const uint16_t*>(from.row_bytes(r));
    for (int64_t c = 0; c < from.cols; ++c) to.values.push_back(kernels::FloatFromBf16(row[c]));
  }
  to.rows += from.rows;
  to.cols = from.cols;
}

}  // namespace

LayerTap::LayerTap(const models::ModelSpec& spec)
    : inputs(spec.layer_flops.size()), residuals(spec.layer_flops.size()), scanned(spec.layer_flops.size()) {}

void LayerTap::Inputs(const int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) {
  Append(residual, residuals[static_cast<size_t>(layer)]);
  Append(normed, inputs[static_cast<size_t>(layer)]);
}
void LayerTap::Scanned(const int32_t layer, const kernels::ConstF32View& qkv) {
  Append(qkv, scanned[static_cast<size_t>(layer)]);
}

QueryTap::QueryTap(const models::ModelSpec& spec) : queries(spec.attention.layers.size()) {}

void QueryTap::Queries(const int32_t layer, const kernels::Activations& rows) {
  Append(rows, queries[static_cast<size_t>(layer)]);
}

}  // namespace invar::calibrate
