// Random-weight model folders in real shapes, for measurements of speed and memory: their text is noise. Values have
// the scales of trained models, so that activations stay finite and no arithmetic takes an unusual path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace invar::models {

// Names MakeRandomModel knows: "qwen3.5-0.8b", "smollm2-135m", ...
std::vector<std::string> RandomModelShapes();

struct RandomModelOptions {
  std::string shape;   // A name, or the path of a config.json.
  std::string folder;  // Made where it is missing.
  uint64_t seed = 1;
  std::function<void(int64_t done, int64_t total)> progress;  // Bytes; may be empty.
};

// Effects: writes config.json, generation_config.json, model.safetensors (bf16) and a byte-level tokenizer.json without
// merges. The same shape and seed give the same bytes. Errors: INVALID_ARGUMENT (shape, config), UNAVAILABLE (I/O).
Status MakeRandomModel(const RandomModelOptions& options);

// The config.json text of a named shape. Errors: INVALID_ARGUMENT listing the names.
StatusOr<std::string> RandomModelConfig(const std::string& shape);

}  // namespace invar::models
