// Which backends the shared suites judge: those of the cpu here (cpu_subjects.cc), kernels of a device elsewhere
// (cuda/emulated_subjects.cc).
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace invar::kernels {

// An emulated device takes a thousand times as long: suites leave out what shows the same again.
bool SubjectsAreSlow();
// Every way they compute on this machine.
std::vector<BackendOptions> SubjectOptions();
// Also of others that MakeBackend knows.
StatusOr<std::unique_ptr<Backend>> MakeSubject(const BackendOptions& options, WorkerPool& pool);

}  // namespace invar::kernels
