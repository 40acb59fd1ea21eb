// Name -> backend. Until the vector backend is asked for, nothing of it runs.
#include "kernels/backend.h"
#include "kernels/reference/reference_backend.h"

namespace invar::kernels {

std::vector<std::string> SupportedIsas() { return {"scalar"}; }

StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options, WorkerPool& pool) {
  if (options.name == "reference") return reference::MakeReferenceBackend(pool);
  return InvalidArgument("unknown backend '" + options.name + "'; known: cpu, reference", "backend");
}

}  // namespace invar::kernels
