// Safetensors files, read strictly and written whole. A weights file comes from outside and may lie: every length,
// offset and shape is checked before any tensor is handed out, so that what is handed out can be trusted.
// Format: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data. Rules kept: header at most 100 MB
// and starting with '{'; no name twice; tensors cover the data exactly, without holes or overlap; bytes = shape x
// dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "kernels/tensor.h"

namespace invar::models {

// One tensor inside a mapped file. Valid while the file is.
struct TensorInfo {
  std::string dtype_name;               // As the file writes it: "BF16".
  std::optional<kernels::DType> dtype;  // Absent for types that no weight of ours may have (I64, F8_E4M3, ...).
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // Not necessarily aligned.
  int64_t bytes = 0;
};

// "[3, 4]"
std::string ShapeText(std::span<const int64_t> shape);

class SafetensorsFile {
 public:
  // Errors: NOT_FOUND, UNAVAILABLE (I/O), DATA_LOSS naming file, tensor, wanted and found. Reads the header only.
  static StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes() const { return map_.bytes(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileMap map_;
  std::map<std::string, TensorInfo> tensors_;
};

// Writes a file of tensors whose names and shapes are known beforehand. Threads: one.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  // "F32", "BF16", "F16", "I32"
    std::vector<int64_t> shape;
  };
  // Effects: creates a hidden file beside `path`; Commit puts it in place. Errors: UNAVAILABLE.
  static StatusOr<SafetensorsWriter> Create(const std::string& path, std::vector<Tensor> tensors);

  // Memory of tensor `index`, zero until written.
  std::span<std::byte> tensor(size_t index) { return tensor_bytes_[index]; }
  Status Commit() { return file_.Commit(); }

 private:
  explicit SafetensorsWriter(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::vector<std::span<std::byte>> tensor_bytes_;
};

}  // namespace invar::models
