// Modules that stand in for libinvar_cuda.so; STUB_KIND says what is wrong with them.
#include <cstring>
#include <string_view>

#include "kernels/cuda/module.h"

namespace invar::kernels::cuda {
namespace {

void Refuse(const char* why, const StatusCode code, OpenAnswer& answer) {
  answer.code = static_cast<int32_t>(code);
  std::strncpy(answer.message, why, sizeof(answer.message) - 1);
}

void Open(const OpenRequest& request, OpenAnswer& answer) {
  constexpr std::string_view kKind = STUB_KIND;
  if (kKind == "refuses") return Refuse("the stub sees no device", StatusCode::kFailedPrecondition, answer);
  if (kKind == "silent") return;
  if (kKind == "no_f16") return Refuse("not with f16", StatusCode::kInvalidArgument, answer);
  if (std::string_view(request.face) != BackendFace()) {
    return Refuse("of another build", StatusCode::kFailedPrecondition, answer);
  }
  StatusOr<std::unique_ptr<Backend>> backend = MakeBackend({.name = "reference"}, *request.pool);
  answer.backend = (*std::move(backend)).release();
}

}  // namespace
}  // namespace invar::kernels::cuda

#if !defined(STUB_WITHOUT_ENTRY)
extern "C" void invar_cuda_open(const invar::kernels::cuda::OpenRequest& request,
                                invar::kernels::cuda::OpenAnswer& answer) {
  invar::kernels::cuda::Open(request, answer);
}
#else
extern "C" void* invar_stub_keeps() { return reinterpret_cast<void*>(&invar::kernels::cuda::Open); }
#endif
