// SwiGlu: out = silu(gate) * up. AddSigmoidScaled: out += sigmoid(gate) * x, one gate a row.
#include "kernels/reference/ops.h"

namespace invar::kernels::reference {

void SwiGlu(const ConstF32View gate_up, const Activations& out) {
  const int64_t inner = gate_up.cols / 2;
  for (int64_t t = 0; t < gate_up.rows; ++t) {
    const float* row = gate_up.row(t);
    for (int64_t i = 0; i < inner; ++i) RowOf(out, t)[i] = static_cast<float>(Silu(row[i]) * row[inner + i]);
  }
}

void AddSigmoidScaled(const ConstF32View x, const ConstF32View gate, const F32View out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    const double scale = Sigmoid(gate.row(t)[0]);
    for (int64_t i = 0; i < x.cols; ++i) out.row(t)[i] = static_cast<float>(out.row(t)[i] + scale * x.row(t)[i]);
  }
}

}  // namespace invar::kernels::reference
