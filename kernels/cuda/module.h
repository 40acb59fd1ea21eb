// libinvar_cuda.so: all that needs CUDA, in a library of its own that is opened only where it is asked for, so that the
// daemon itself starts without a driver, a device or a toolkit. This is its one door: a C entry that makes a backend.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/backend.h"

namespace invar::kernels::cuda {

inline constexpr const char* kModuleFile = "libinvar_cuda.so";
inline constexpr const char* kModuleEntry = "invar_cuda_open";

struct OpenRequest {
  const char* face = nullptr;  // BackendFace() of the caller.
  DType activations = DType::kBf16;
  WorkerPool* pool = nullptr;
};
struct OpenAnswer {
  Backend* backend = nullptr;  // Owned by the caller. Null: `code` and `message` say why.
  int32_t code = 0;            // A StatusCode.
  char message[512] = {};
  char note[512] = {};  // Of a backend that does without something: a sentence for the log; empty: nothing to say.
};
// Never throws, never ends the process for want of a library, driver or device.
using OpenFunction = void (*)(const OpenRequest& request, OpenAnswer& answer);

// What the two sides must agree on: a digest of the headers that cross between them (kernels/CMakeLists.txt).
const char* BackendFace();

// Opens the module and makes its backend. `folder`: where it lies; empty: beside the running program, then in ../lib of
// it, then wherever the system's loader looks. Effects: the module stays loaded until the process ends. Errors:
// FAILED_PRECONDITION, with one sentence that names what is missing: module, entry, driver, device.
StatusOr<std::unique_ptr<Backend>> OpenModule(const std::string& folder, DType activations, WorkerPool& pool);

}  // namespace invar::kernels::cuda
