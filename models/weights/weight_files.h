// WeightFiles: all weight files of a model folder, single or sharded, as one set of named tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/weights/safetensors.h"

namespace invar::models {

class WeightFiles {
 public:
  // Reads FOLDER/model.safetensors.index.json and the shards it names, else FOLDER/model.safetensors. Headers only.
  // Errors: NOT_FOUND (no weights, missing shard), INVALID_ARGUMENT (index), DATA_LOSS (a file lies).
  static StatusOr<WeightFiles> Open(const std::string& folder);

  // Null where there is none.
  const TensorInfo* Find(const std::string& name) const;
  // File the tensor lies in; the first weight file where there is no such tensor.
  const std::string& FileOf(const std::string& name) const;
  // Every tensor by name, with the file it lies in (index into files()).
  const std::map<std::string, size_t>& names() const { return names_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  Status AddFile(const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> names_;
};

}  // namespace invar::models
