// SwiGlu: out = silu(gate) * up. AddSigmoidScaled: out += sigmoid(gate) * x, one gate a row. Add: out += x. A thread an
// element.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void SwiGluElements(const ConstF32View gate_up, const Activations out) {
  const int64_t index = BlockX() * kThreads + Thread();
  if (index >= out.rows * out.cols) return;
  const int64_t t = index / out.cols;
  const int64_t i = index % out.cols;
  const float* row = Row(gate_up, t);
  StoreAs(out.data, t * out.stride + i, out.dtype, Silu(row[i]) * row[out.cols + i]);
}

__global__ void AddElements(const ConstF32View x, const F32View out) {
  const int64_t index = BlockX() * kThreads + Thread();
  if (index >= x.rows * x.cols) return;
  Row(out, index / x.cols)[index % x.cols] += Row(x, index / x.cols)[index % x.cols];
}

__global__ void AddScaledElements(const ConstF32View x, const ConstF32View gate, const F32View out) {
  const int64_t index = BlockX() * kThreads + Thread();
  if (index >= x.rows * x.cols) return;
  const int64_t t = index / x.cols;
  float& target = Row(out, t)[index % x.cols];
  target = Fma(Sigmoid(Row(gate, t)[0]), Row(x, t)[index % x.cols], target);
}

}  // namespace

void SwiGlu(const ConstF32View& gate_up, const Activations& out, const Stream stream) {
  Launch("swiglu", SwiGluElements, {{CeilDiv(out.rows * out.cols, kThreads)}, kThreads, 0}, stream, gate_up, out);
}

void AddSigmoidScaled(const ConstF32View& x, const ConstF32View& gate, const F32View& out, const Stream stream) {
  Launch("add_sigmoid_scaled", AddScaledElements, {{CeilDiv(x.rows * x.cols, kThreads)}, kThreads, 0}, stream, x, gate,
         out);
}

void Add(const ConstF32View& x, const F32View& out, const Stream stream) {
  Launch("add", AddElements, {{CeilDiv(x.rows * x.cols, kThreads)}, kThreads, 0}, stream, x, out);
}

}  // namespace invar::kernels::cuda
