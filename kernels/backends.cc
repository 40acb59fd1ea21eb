// Name -> backend.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "config/backend_names.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/module.h"
#include "kernels/reference/reference_backend.h"

namespace invar::kernels {

std::vector<std::string> SupportedIsas() { return cpu::DetectedIsas(); }

StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options, WorkerPool& pool) {
  if (options.name == "cpu") return cpu::MakeCpuBackend(options, pool);
  if (options.name == "reference") return reference::MakeReferenceBackend(pool);
  if (options.name == "cuda") return cuda::OpenModule(options.module_folder, options.activations, pool);
  if (options.name == "auto") {
    StatusOr<std::unique_ptr<Backend>> cuda = cuda::OpenModule(options.module_folder, options.activations, pool);
    if (cuda.ok()) return cuda;
    Logger("kernels")->info("computing on the cpu: {}", cuda.status().message());
    return cpu::MakeCpuBackend(options, pool);
  }
  return InvalidArgument(fmt::format("unknown backend '{}'; known: {}", options.name, fmt::join(kBackendNames, ", ")),
                         "backend");
}

}  // namespace invar::kernels
