// Starts a kernel: the one place that differs between nvcc's <<<>>> and the emulation.
#pragma once

#include <tuple>

#include "base/check.h"
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/ops.h"

namespace invar::kernels::cuda {

struct LaunchShape {
  Grid grid;
  int threads = 0;
  size_t shared_bytes = 0;
};

// Nothing starts where the grid is empty. A kernel that cannot start is a bug: shapes were checked before.
template <typename... Params, typename... Args>
void Launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape, [[maybe_unused]] const Stream stream,
            const Args&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
#if defined(__CUDACC__)
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  if (shape.shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    Check(error == cudaSuccess, "a block gets its shared memory", name, cudaGetErrorString(error));
  }
  const dim3 grid(static_cast<unsigned>(shape.grid.x), static_cast<unsigned>(shape.grid.y),
                  static_cast<unsigned>(shape.grid.z));
  kernel<<<grid, static_cast<unsigned>(shape.threads), shape.shared_bytes, static_cast<cudaStream_t>(stream)>>>(
      args...);
  const cudaError_t error = cudaGetLastError();
  Check(error == cudaSuccess, "a kernel starts", name, cudaGetErrorString(error));
#else
  // What the kernel takes is made now, as on a device: an array that is given goes on as a pointer to it.
  const auto run = [name, kernel, shape, params = std::tuple<Params...>(args...)] {
    emulation::RunGrid(name, shape.grid, shape.threads, shape.shared_bytes, [&] { std::apply(kernel, params); });
  };
  if (stream == nullptr) return run();
  static_cast<emulation::Queue*>(stream)->Add(run);
#endif
}

constexpr int64_t CeilDiv(const int64_t a, const int64_t b) { return (a + b - 1) / b; }

}  // namespace invar::kernels::cuda
