// What the kernel tests share: seeded inputs, owned matrices, and one run of every operation on a small case, whose
// outputs can be compared with the reference (closeness) or with another run (raw bits).
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "kernels/bf16.h"
#include "tests/kernels/subjects.h"

namespace invar::kernels {

// Uniform in [-scale, scale], the same for the same seed on every platform.
inline std::vector<float> RandomFloats(const size_t count, const uint32_t seed, const float scale = 1.0F) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) value = scale * (static_cast<float>(engine() >> 8) * 0x1p-23F - 1.0F);
  return values;
}

inline std::vector<uint16_t> Rounded(const std::vector<float>& values) {
  std::vector<uint16_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = Bf16FromFloat(values[i]);
  return out;
}

// Values a bf16 holds exactly, so that both backends start from the same inputs.
inline std::vector<float> RandomBf16Floats(const size_t count, const uint32_t seed, const float scale = 1.0F) {
  std::vector<float> values = RandomFloats(count, seed, scale);
  for (float& value : values) value = FloatFromBf16(Bf16FromFloat(value));
  return values;
}

inline std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

struct AlignedDelete {
  void operator()(void* p) const { std::free(p); }
};

// Rows owned in a backend's activation type.
class OwnedActivations {
 public:
  OwnedActivations(const DType dtype, const int64_t rows, const int64_t cols)
      : bytes_(rows * cols * BytesOf(dtype) + 64), view_{bytes_.data(), dtype, rows, cols, cols} {}
  OwnedActivations(const DType dtype, const int64_t rows, const int64_t cols, const std::vector<float>& values)
      : OwnedActivations(dtype, rows, cols) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(bytes_.data())[i] = values[i];
      } else {
        reinterpret_cast<uint16_t*>(bytes_.data())[i] = Bf16FromFloat(values[i]);
      }
    }
  }
  const Activations& view() const { return view_; }
  Activations Rows(const int64_t begin, const int64_t count) const {
    return {view_.row_bytes(begin), view_.dtype, count, view_.cols, view_.stride};
  }
  std::vector<float> values() const {
    std::vector<float> out(view_.rows * view_.cols);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = view_.dtype == DType::kF32 ? reinterpret_cast<const float*>(bytes_.data())[i]
                                          : FloatFromBf16(reinterpret_cast<const uint16_t*>(bytes_.data())[i]);
    }
    return out;
  }

 private:
  std::vector<std::byte> bytes_;
  Activations view_;
};

// A matrix packed by a backend, with its memory.
class OwnedMatrix {
 public:
  OwnedMatrix(const Backend& backend, const std::vector<float>& values, const int64_t rows, const int64_t cols,
              const DType source = DType::kBf16) {
    const DType packed = backend.PackedDType(source);
    const size_t bytes = (backend.PackedBytes(rows, cols, packed) + 63) / 64 * 64;
    memory_.reset(std::aligned_alloc(64, bytes));
    if (source == DType::kF32) {
      matrix_ = backend.PackMatrix(values.data(), source, rows, cols, memory_.get());
    } else {
      const std::vector<uint16_t> rounded = Rounded(values);
      matrix_ = backend.PackMatrix(rounded.data(), source, rows, cols, memory_.get());
    }
  }
  const PackedMatrix& view() const { return matrix_; }
  const void* memory() const { return memory_.get(); }

 private:
  std::unique_ptr<void, AlignedDelete> memory_;
  PackedMatrix matrix_;
};

inline F32View ViewOf(std::vector<float>& values, const int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}
inline ConstF32View ViewOf(const std::vector<float>& values, const int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

// A pool and a backend on it.
struct Rig {
  explicit Rig(BackendOptions options = {}, const int threads = 2) : pool(threads) {
    StatusOr<std::unique_ptr<Backend>> made = MakeSubject(options, pool);
    Check(made.ok(), "the backend is known", made.ok() ? "" : made.status().message());
    backend = *std::move(made);
  }
  Backend* operator->() const { return backend.get(); }
  DType activations() const { return backend->numerics().activations; }

  WorkerPool pool;
  std::unique_ptr<Backend> backend;
};

// The subjects and the reference.
inline std::vector<BackendOptions> AllOptions() {
  std::vector<BackendOptions> all = SubjectOptions();
  all.push_back({"reference", "", DType::kF32});
  return all;
}
inline std::string OptionsName(const testing::TestParamInfo<BackendOptions>& info) {
  const std::string isa = info.param.isa.empty() ? "" : info.param.isa + "_";
  return info.param.name + "_" + isa + std::string(DTypeName(info.param.activations));
}

inline Rig ReferenceRig() { return Rig({.name = "reference", .isa = "", .activations = DType::kF32}); }

// One layer's pages of one sequence; page numbers are scattered and neighbours poisoned, so a wrong page is noticed.
class Pages {
 public:
  Pages(const Backend& backend, const int32_t kv_heads, const int32_t head_dim, const int64_t positions,
        const bool poison = false) {
    const int64_t count = (positions + kPageTokens - 1) / kPageTokens;
    stride_ = backend.KvPageBytes(kv_heads, head_dim) + 128;
    memory_.assign((2 * count + 1) * stride_ + 64, std::byte{0});
    if (poison) std::fill(memory_.begin(), memory_.end(), std::byte{0xff});  // NaN in both types.
    for (int64_t i = 0; i < count; ++i) pages_.push_back(static_cast<int32_t>(2 * ((i * 7 + 3) % count) + 1));
    if (count % 7 == 0) {
      for (int64_t i = 0; i < count; ++i) pages_[i] = static_cast<int32_t>(2 * (count - 1 - i) + 1);
    }
  }
  std::vector<std::byte> bytes() const { return memory_; }
  KvView view() { return {memory_.data(), stride_, 64, pages_}; }

 private:
  int64_t stride_ = 0;
  std::vector<std::byte> memory_;
  std::vector<int32_t> pages_;
};

}  // namespace invar::kernels
