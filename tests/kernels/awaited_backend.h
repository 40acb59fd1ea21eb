// AwaitedBackend: another backend whose operations have run when they return, for suites that give an operation memory
// of the moment and read what it wrote at once.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/backend.h"

namespace invar::kernels {

class AwaitedBackend final : public Backend {
 public:
  explicit AwaitedBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::string_view name() const override { return backend_->name(); }
  const Numerics& numerics() const override { return backend_->numerics(); }
  std::string_view isa() const override { return backend_->isa(); }
  WorkerPool& pool() const override { return backend_->pool(); }
  int64_t scratch_bytes() const override { return backend_->scratch_bytes(); }
  std::optional<ShapeLimit> LimitOf(const AttentionShape& shape) const override { return backend_->LimitOf(shape); }
  std::optional<ShapeLimit> ConvLimit(const int32_t kernel) const override { return backend_->ConvLimit(kernel); }
  DType PackedDType(const DType source) const override { return backend_->PackedDType(source); }
  int64_t PackedBytes(const int64_t rows, const int64_t cols, const DType packed) const override {
    return backend_->PackedBytes(rows, cols, packed);
  }
  PackedMatrix PackMatrix(const void* source, const DType source_dtype, const int64_t rows, const int64_t cols,
                          void* dest) const override {
    return backend_->PackMatrix(source, source_dtype, rows, cols, dest);
  }
  StatusOr<std::span<const std::byte>> PlaceWeights(const std::span<const std::byte> packed) override {
    return backend_->PlaceWeights(packed);
  }
  StatusOr<RowMemory> AllocateRows(const int64_t bytes, const RowUse use) override {
    return backend_->AllocateRows(bytes, use);
  }
  bool rows_are_apart() const override { return backend_->rows_are_apart(); }
  PageShape KvPageShape(const int32_t kv_heads, const int32_t head_dim) const override {
    return backend_->KvPageShape(kv_heads, head_dim);
  }
  void Embed(const PackedMatrix& table, const std::span<const int32_t> ids, const F32View out) override {
    backend_->Embed(table, ids, out);
    Wait();
  }
  void RmsNorm(const ConstF32View x, const std::span<const float> weight, const float eps,
               const Activations out) override {
    backend_->RmsNorm(x, weight, eps, out);
    Wait();
  }
  void Linear(const Activations& x, const PackedMatrix& weight, const std::span<const float> bias,
              const LinearMode mode, const F32View out) override {
    backend_->Linear(x, weight, bias, mode, out);
    Wait();
  }
  void RopeAngles(const std::span<const int32_t> positions, const std::span<const double> inverse_frequencies,
                  const double factor, const F32View cos, const F32View sin) override {
    backend_->RopeAngles(positions, inverse_frequencies, factor, cos, sin);
    Wait();
  }
  void QkvPrepare(const QkvArgs& args) override {
    backend_->QkvPrepare(args);
    Wait();
  }
  void Attention(const AttentionArgs& args) override {
    backend_->Attention(args);
    Wait();
  }
  void CausalConv(const ConvArgs& args) override {
    backend_->CausalConv(args);
    Wait();
  }
  void DeltaScan(const DeltaArgs& args) override {
    backend_->DeltaScan(args);
    Wait();
  }
  void GatedRmsNorm(const ConstF32View x, const ConstF32View z, const std::span<const float> weight, const float eps,
                    const Activations out) override {
    backend_->GatedRmsNorm(x, z, weight, eps, out);
    Wait();
  }
  void SwiGlu(const ConstF32View gate_up, const Activations out) override {
    backend_->SwiGlu(gate_up, out);
    Wait();
  }
  void Experts(const ExpertsArgs& args) override {
    backend_->Experts(args);
    Wait();
  }
  void AddSigmoidScaled(const ConstF32View x, const ConstF32View gate, const F32View out) override {
    backend_->AddSigmoidScaled(x, gate, out);
    Wait();
  }
  void Add(const ConstF32View x, const F32View out) override {
    backend_->Add(x, out);
    Wait();
  }
  void Copy(const std::span<const CopyPiece> pieces) override {
    backend_->Copy(pieces);
    Wait();
  }
  void Wait() override { backend_->Wait(); }
  RowChooser* chooser() const override { return backend_->chooser(); }
  std::optional<StatusOr<MachineLimits>> MeasureLimits() override { return backend_->MeasureLimits(); }

 private:
  const std::unique_ptr<Backend> backend_;
};

inline StatusOr<std::unique_ptr<Backend>> Awaited(StatusOr<std::unique_ptr<Backend>> backend) {
  if (!backend.ok()) return backend.status();
  return std::unique_ptr<Backend>(std::make_unique<AwaitedBackend>(*std::move(backend)));
}

}  // namespace invar::kernels
