// The kernels of kernels/cuda on the emulation, in both types of activations.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/awaited_backend.h"
#include "tests/kernels/subjects.h"

namespace invar::kernels {

bool SubjectsAreSlow() { return true; }

std::vector<BackendOptions> SubjectOptions() { return {{"cuda", "", DType::kBf16}, {"cuda", "", DType::kF32}}; }

StatusOr<std::unique_ptr<Backend>> MakeSubject(const BackendOptions& options, WorkerPool& pool) {
  if (options.name != "cuda") return MakeBackend(options, pool);
  return Awaited(cuda::MakeCudaBackend(cuda::MakeEmulatedDevice(), nullptr, options.activations, pool));
}

}  // namespace invar::kernels
