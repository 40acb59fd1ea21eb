// The CUDA module on a device, in both types of activations, as subjects of the shared suites; and a main that says,
// where the module refuses, why nothing was tested.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/kernels/awaited_backend.h"
#include "tests/kernels/subjects.h"

namespace invar::kernels {

bool SubjectsAreSlow() { return false; }

std::vector<BackendOptions> SubjectOptions() { return {{"cuda", "", DType::kBf16}, {"cuda", "", DType::kF32}}; }

StatusOr<std::unique_ptr<Backend>> MakeSubject(const BackendOptions& options, WorkerPool& pool) {
  return Awaited(MakeBackend(options, pool));
}

}  // namespace invar::kernels

int main(int argc, char** argv) {
  invar::WorkerPool pool(1);
  const auto backend = invar::kernels::MakeBackend({.name = "cuda"}, pool);
  if (!backend.ok()) {
    std::printf("skipped: %s\n", backend.status().message().c_str());
    return 77;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
