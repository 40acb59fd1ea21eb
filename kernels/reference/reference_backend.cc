// Binds the scalar definitions to the Backend face. Weights stay row-major: bf16 as bf16, all else as f32.
#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/reference/ops.h"

namespace invar::kernels::reference {
namespace {

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(WorkerPool& pool) : pool_(pool) {
    numerics_ = {.activations = DType::kF32, .kv = DType::kF32, .backend = "reference"};
  }

  std::string_view name() const override { return "reference"; }
  const Numerics& numerics() const override { return numerics_; }
  std::string_view isa() const override { return {}; }
  int64_t scratch_bytes() const override { return 0; }  // Each operation brings its own.
  WorkerPool& pool() const override { return pool_; }

  std::optional<ShapeLimit> LimitOf(const AttentionShape&) const override { return std::nullopt; }
  std::optional<ShapeLimit> ConvLimit(int32_t) const override { return std::nullopt; }

  DType PackedDType(const DType source) const override { return source == DType::kBf16 ? DType::kBf16 : DType::kF32; }
  int64_t PackedBytes(const int64_t rows, const int64_t cols, const DType packed) const override {
    return rows * cols * BytesOf(packed);
  }
  PackedMatrix PackMatrix(const void* source, const DType source_dtype, const int64_t rows, const int64_t cols,
                          void* dest) const override {
    const DType packed = PackedDType(source_dtype);
    if (source_dtype == DType::kF16) {
      const auto* from = static_cast<const uint16_t*>(source);
      auto* to = static_cast<float*>(dest);
      for (int64_t i = 0; i < rows * cols; ++i) to[i] = FloatFromF16(from[i]);
    } else {
      std::memcpy(dest, source, PackedBytes(rows, cols, packed));
    }
    return {dest, packed, rows, cols};
  }
  PageShape KvPageShape(const int32_t kv_heads, const int32_t head_dim) const override {
    return {kv_heads, head_dim, DType::kF32, DenseOrder::kSlots};
  }

  void Embed(const PackedMatrix& table, std::span<const int32_t> ids, const F32View out) override {
    reference::Embed(table, ids, out);
  }
  void RmsNorm(const ConstF32View x, std::span<const float> weight, const float eps, const Activations out) override {
    reference::RmsNorm(x, weight, eps, out);
  }
  void Linear(const Activations& x, const PackedMatrix& weight, std::span<const float> bias, const LinearMode mode,
              const F32View out) override {
    // Rows of `out` are independent, so splitting them over threads changes nothing.
    pool_.ParallelFor(x.rows, [&](const int64_t t) {
      Activations row = x;
      row.data = x.row_bytes(t);
      row.rows = 1;
      reference::Linear(row, weight, bias, mode, out.Rows(t, 1));
    });
  }
  void RopeAngles(std::span<const int32_t> positions, std::span<const double> inverse_frequencies, const double factor,
                  const F32View cos, const F32View sin) override {
    reference::RopeAngles(positions, inverse_frequencies, factor, cos, sin);
  }
  void QkvPrepare(const QkvArgs& args) override { reference::QkvPrepare(args); }
  void Attention(const AttentionArgs& args) override { reference::Attention(args); }
  void CausalConv(const ConvArgs& args) override { reference::CausalConv(args); }
  void DeltaScan(const DeltaArgs& args) override { reference::DeltaScan(args); }
  void GatedRmsNorm(const ConstF32View x, const ConstF32View z, std::span<const float> weight, const float eps,
                    const Activations out) override {
    reference::GatedRmsNorm(x, z, weight, eps, out);
  }
  void SwiGlu(const ConstF32View gate_up, const Activations out) override { reference::SwiGlu(gate_up, out); }
  void Experts(const ExpertsArgs& args) override { reference::Experts(args); }
  void AddSigmoidScaled(const ConstF32View x, const ConstF32View gate, const F32View out) override {
    reference::AddSigmoidScaled(x, gate, out);
  }

 private:
  WorkerPool& pool_;
  Numerics numerics_;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(WorkerPool& pool) { return std::make_unique<ReferenceBackend>(pool); }

}  // namespace invar::kernels::reference
