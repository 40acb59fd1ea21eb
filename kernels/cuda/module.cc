// The module's side of module.h.
#include "kernels/cuda/module.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"

namespace invar::kernels::cuda {
namespace {

void Refuse(const Status& status, OpenAnswer& answer) {
  answer.code = static_cast<int32_t>(status.code());
  const std::string text(status.message());
  const size_t count = std::min(text.size(), sizeof(answer.message) - 1);
  std::memcpy(answer.message, text.data(), count);
  answer.message[count] = '\0';
}

void Open(const OpenRequest& request, OpenAnswer& answer) {
  if (std::strcmp(request.face, BackendFace()) != 0) {
    return Refuse(FailedPrecondition("libinvar_cuda.so is of another build than this program"), answer);
  }
  StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice();
  if (!device.ok()) return Refuse(device.status(), answer);
  StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(*std::move(device), request.activations, *request.pool);
  if (!backend.ok()) return Refuse(backend.status(), answer);
  answer.backend = backend->release();
}

}  // namespace
}  // namespace invar::kernels::cuda

extern "C" [[gnu::visibility("default")]] void invar_cuda_open(const invar::kernels::cuda::OpenRequest& request,
                                                               invar::kernels::cuda::OpenAnswer& answer) {
  try {
    invar::kernels::cuda::Open(request, answer);
  } catch (const std::exception& error) {
    invar::kernels::cuda::Refuse(invar::FailedPrecondition(error.what()), answer);
  }
}
