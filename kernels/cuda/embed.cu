// out[t] = row ids[t] of the table, as floats. A block a row.
#include "kernels/cuda/launch.cuh"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void EmbedRows(const EmbedArgs args) {
  const int64_t t = BlockX();
  const int64_t row = args.ids[t] * PackedStride(args.cols);
  for (int64_t i = Thread(); i < args.cols; i += kThreads)
    Row(args.out, t)[i] = LoadAs(args.table, row + i, args.dtype);
}

}  // namespace

void Embed(const EmbedArgs& args, const Stream stream) {
  Launch("embed", EmbedRows, {{args.out.rows}, kThreads, 0}, stream, args);
}

}  // namespace invar::kernels::cuda
