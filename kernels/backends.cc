// Name -> backend.
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/reference/reference_backend.h"

namespace invar::kernels {

std::vector<std::string> SupportedIsas() { return cpu::DetectedIsas(); }

StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options, WorkerPool& pool) {
  if (options.name == "cpu") return cpu::MakeCpuBackend(options, pool);
  if (options.name == "reference") return reference::MakeReferenceBackend(pool);
  return InvalidArgument("unknown backend '" + options.name + "'; known: cpu, reference", "backend");
}

}  // namespace invar::kernels
