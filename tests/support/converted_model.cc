// Elements go through f32, which holds every bf16 and f16.
#include "tests/support/converted_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <vector>

#include "kernels/bf16.h"
#include "models/weights/element.h"
#include "models/weights/safetensors.h"

namespace invar::testing {
namespace {

using kernels::DType;

const char* NameOf(const DType dtype) { return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16"; }

// Below 65520, which is where rounding would leave the finite halves.
uint16_t ToF16(const float value) {
  const float magnitude = std::abs(value);
  const int exponent = magnitude == 0.0F ? -14 : std::max(std::ilogb(magnitude), -14);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(static_cast<double>(magnitude), 10 - exponent)));
  return static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | (((exponent + 14) << 10) + steps));
}

void Write(const std::vector<float>& values, const DType dtype, std::byte* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(out + 4 * i, &values[i], 4);
    } else {
      const uint16_t bits = dtype == DType::kF16 ? ToF16(values[i]) : kernels::Bf16FromFloat(values[i]);
      std::memcpy(out + 2 * i, &bits, 2);
    }
  }
}

}  // namespace

Status CopyConverted(const std::string& source, const std::string& target, const DType from, const DType to) {
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator(source)) {
    if (entry.is_regular_file() && entry.path().filename() != "model.safetensors") {
      fs::copy_file(entry.path(), fs::path(target) / entry.path().filename());
    }
  }
  StatusOr<models::SafetensorsFile> file = models::SafetensorsFile::Open(source + "/model.safetensors");
  if (!file.ok()) return file.status();
  std::vector<models::SafetensorsWriter::Tensor> tensors;
  for (const auto& [name, info] : file->tensors()) {
    tensors.push_back({.name = name, .dtype = info.dtype == from ? NameOf(to) : info.dtype_name, .shape = info.shape});
  }
  StatusOr<models::SafetensorsWriter> writer =
      models::SafetensorsWriter::Create(target + "/model.safetensors", tensors);
  if (!writer.ok()) return writer.status();
  size_t i = 0;
  for (const auto& [name, info] : file->tensors()) {
    std::byte* out = writer->tensor(i++).data();
    if (info.dtype != from) {
      std::memcpy(out, info.data, static_cast<size_t>(info.bytes));
      continue;
    }
    std::vector<float> values(static_cast<size_t>(info.bytes / kernels::BytesOf(from)));
    models::ReadElements(info.data, from, static_cast<int64_t>(values.size()), values.data());
    Write(values, to, out);
  }
  return writer->Commit();
}

}  // namespace invar::testing
