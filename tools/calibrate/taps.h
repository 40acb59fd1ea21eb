// What is recorded of a forward for fitting and judging.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/transfer/scd_rows.h"
#include "models/model.h"

namespace invar::calibrate {

// Inputs of all layers of one sequence, row after row. Rows come in order of tokens.
class LayerTap final : public models::LayerObserver {
 public:
  explicit LayerTap(const models::ModelSpec& spec);
  void Inputs(int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) override;
  void Scanned(int32_t layer, const kernels::ConstF32View& qkv) override;

  std::vector<engine::FloatRows> inputs;
  std::vector<engine::FloatRows> residuals;
  std::vector<engine::FloatRows> scanned;  // Without rows for attention layers.
};

// Rotated queries of all attention layers.
class QueryTap final : public models::QueryObserver {
 public:
  explicit QueryTap(const models::ModelSpec& spec);
  void Queries(int32_t layer, const kernels::Activations& queries) override;

  std::vector<engine::FloatRows> queries;
};

}  // namespace invar::calibrate
