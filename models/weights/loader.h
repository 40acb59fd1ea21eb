// Loader: turns a complete WeightPlan into packed weights in memory, from the packed file where a good one lies beside
// the model, else by packing (into such a file, or into memory where the folder is read-only).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/weights/weight_plan.h"

namespace invar::models {

class PackedCheck;

// One packed matrix. Where an f32 or f16 matrix is packed as bf16, what rounding takes away is kept as a second bf16
// matrix: w = main + residual to 16 bits, and exactly for f16. Rounding all weights of such a model would move
// logits by more than rounding activations does; the price is twice the bytes and products of bf16 ones.
struct Weight {
  kernels::PackedMatrix main;
  kernels::PackedMatrix residual;  // Data null: none.
  int64_t bytes = 0;               // Of both, as packed.

  bool has_residual() const { return residual.data != nullptr; }
};

// out = x W^T (+ bias), or out += it: Backend::Linear for both parts, in this fixed order.
inline void Multiply(kernels::Backend& backend, const kernels::Activations& x, const Weight& weight,
                     const std::span<const float> bias, const kernels::LinearMode mode, const kernels::F32View out) {
  backend.Linear(x, weight.main, bias, mode, out);
  if (weight.has_residual()) backend.Linear(x, weight.residual, {}, kernels::LinearMode::kAdd, out);
}

// Packed weights; views stay valid while this lives. Immutable, so any thread may read.
class LoadedWeights {
 public:
  const Weight& matrix(const MatrixId id) const { return matrices_[static_cast<size_t>(id.value())]; }
  std::span<const float> vector(const VectorId id) const { return vectors_[static_cast<size_t>(id.value())]; }
  // Hex SHA-256 of the weight files and config.json.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  friend class WeightLoader;
  struct AnonymousMemory;

  std::shared_ptr<AnonymousMemory> memory_;  // Either this or map_ holds the bytes.
  FileMap map_;
  std::shared_ptr<PackedCheck> check_;  // Of map_, while it is in use. Shared as memory_ is.
  std::vector<Weight> matrices_;
  std::vector<std::span<const float>> vectors_;
  std::string fingerprint_;
};

// Effects: may write FOLDER/model.NUMERICS.packed; logs what it does where it takes long. `config_text` is config.json
// as read. Errors: UNAVAILABLE (I/O), RESOURCE_EXHAUSTED (memory).
StatusOr<LoadedWeights> LoadWeights(const WeightPlan& plan, const std::string& config_text, const ModelOptions& options,
                                    kernels::Backend& backend);

}  // namespace invar::models
