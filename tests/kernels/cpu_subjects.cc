// The cpu backend on every instruction set, in both types of activations.
#include "tests/kernels/subjects.h"

namespace invar::kernels {

bool SubjectsAreSlow() { return false; }

std::vector<BackendOptions> SubjectOptions() {
  std::vector<BackendOptions> all;
  for (const std::string& isa : SupportedIsas()) {
    for (const DType activations : {DType::kBf16, DType::kF32}) all.push_back({"cpu", isa, activations});
  }
  return all;
}

StatusOr<std::unique_ptr<Backend>> MakeSubject(const BackendOptions& options, WorkerPool& pool) {
  return MakeBackend(options, pool);
}

}  // namespace invar::kernels
