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

// Packed weights; views stay valid while this lives. Immutable, so any thread may read.
class LoadedWeights {
 public:
  const kernels::PackedMatrix& matrix(const MatrixId id) const { return matrices_[static_cast<size_t>(id.value())]; }
  std::span<const float> vector(const VectorId id) const { return vectors_[static_cast<size_t>(id.value())]; }
  // Bytes of one matrix as packed.
  int64_t bytes(const MatrixId id) const { return matrix_bytes_[static_cast<size_t>(id.value())]; }
  // Hex SHA-256 of the weight files and config.json.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  friend class WeightLoader;
  struct AnonymousMemory;

  std::shared_ptr<AnonymousMemory> memory_;  // Either this or map_ holds the bytes.
  FileMap map_;
  std::vector<kernels::PackedMatrix> matrices_;
  std::vector<int64_t> matrix_bytes_;
  std::vector<std::span<const float>> vectors_;
  std::string fingerprint_;
};

// Effects: may write FOLDER/model.NUMERICS.packed; logs what it does where it takes long. `config_text` is config.json
// as read. Errors: UNAVAILABLE (I/O), RESOURCE_EXHAUSTED (memory).
StatusOr<LoadedWeights> LoadWeights(const WeightPlan& plan, const std::string& config_text, const ModelOptions& options,
                                    kernels::Backend& backend);

}  // namespace invar::models
