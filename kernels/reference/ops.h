// The scalar definition of every operation: float storage, sums in double, nothing rounded in between.
// One file an operation; each says its formula. What the other backends are judged by.
//
// Layouts: weights row-major as given (bf16 or f32); KV pages hold f32 in DenseOrder::kSlots.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace invar::kernels::reference {

void Embed(const PackedMatrix& table, std::span<const int32_t> ids, F32View out);
void RmsNorm(ConstF32View x, std::span<const float> weight, float eps, const Activations& out);
void GatedRmsNorm(ConstF32View x, ConstF32View z, std::span<const float> weight, float eps, const Activations& out);
void Linear(const Activations& x, const PackedMatrix& weight, std::span<const float> bias, LinearMode mode,
            F32View out);
void RopeAngles(std::span<const int32_t> positions, std::span<const double> inverse_frequencies, double factor,
                F32View cos, F32View sin);
void QkvPrepare(const QkvArgs& args);
void Attention(const AttentionArgs& args);
void CausalConv(const ConvArgs& args);
void DeltaScan(const DeltaArgs& args);
void SwiGlu(ConstF32View gate_up, const Activations& out);
void Experts(const ExpertsArgs& args);
void AddSigmoidScaled(ConstF32View x, ConstF32View gate, F32View out);

// Element [row, col] of a matrix in this backend's layout.
double WeightAt(const PackedMatrix& weight, int64_t row, int64_t col);
double Sigmoid(double x);
double Silu(double x);

inline float* RowOf(const Activations& x, const int64_t row) { return static_cast<float*>(x.data) + row * x.stride; }

}  // namespace invar::kernels::reference
