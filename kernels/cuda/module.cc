// The module's side of module.h.
#include "kernels/cuda/module.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"

namespace invar::kernels::cuda {
namespace {

template <size_t kSize>
void Write(const std::string& text, char (&to)[kSize]) {
  const size_t count = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

void Refuse(const Status& status, OpenAnswer& answer) {
  answer.code = static_cast<int32_t>(status.code());
  Write(status.message(), answer.message);
}

void Open(const OpenRequest& request, OpenAnswer& answer) {
  if (std::strcmp(request.face, BackendFace()) != 0) {
    return Refuse(FailedPrecondition("libinvar_cuda.so is of another build than this program"), answer);
  }
  StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice();
  if (!device.ok()) return Refuse(device.status(), answer);
  std::unique_ptr<ProductLibrary> library;
  if (request.activations == DType::kBf16) {
    StatusOr<std::unique_ptr<ProductLibrary>> opened = OpenCublasLt();
    if (opened.ok()) {
      library = *std::move(opened);
    } else {
      Write("matrices are multiplied by our own, slower kernels: " + opened.status().message(), answer.note);
    }
  }
  StatusOr<std::unique_ptr<Backend>> backend =
      MakeCudaBackend(*std::move(device), std::move(library), request.activations, *request.pool);
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
