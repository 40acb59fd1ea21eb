// The one file that calls CUDA's runtime. Opening gives a Status; what fails later is a broken device or a bug, and
// ends the process: a step cannot go on without its results.
#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/cuda_device.h"

namespace invar::kernels::cuda {
namespace {

constexpr int kOldestMajor = 8;  // Tensor cores with bf16, and asynchronous copies.

void Demand(const cudaError_t error, const char* what) {
  Check(error == cudaSuccess, "CUDA does what was asked:", what, cudaGetErrorString(error));
}

std::string Version(const int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

Status NoDriver(const cudaError_t error) {
  int driver = 0;  // Left as it is where there is none.
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (error == cudaErrorInsufficientDriver && driver == 0) {
    return FailedPrecondition("no NVIDIA driver (libcuda.so.1) is on this machine");
  }
  if (error == cudaErrorInsufficientDriver) {
    return FailedPrecondition("the NVIDIA driver knows CUDA " + Version(driver) + ", this build wants " +
                              Version(runtime));
  }
  if (error == cudaErrorNoDevice) return FailedPrecondition("the NVIDIA driver sees no device");
  return FailedPrecondition(std::string("the NVIDIA driver says: ") + cudaGetErrorString(error));
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::string numerics_name) : numerics_name_(std::move(numerics_name)) {
    Demand(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }
  ~CudaDevice() override { cudaStreamDestroy(stream_); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string numerics_name() const override { return numerics_name_; }
  Stream stream() const override { return stream_; }
  void* Allocate(const int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Else the next launch would be blamed for it.
      return nullptr;
    }
    Demand(error, "memory");
    return memory;
  }
  void Free(void* memory) override { Demand(cudaFree(memory), "giving memory back"); }
  void CopyIn(void* to, const void* from, const int64_t bytes) override {
    // Of memory that is not pinned, the runtime has taken what it needs when this returns.
    Demand(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_), "a copy");
  }
  void CopyOut(void* to, const void* from, const int64_t bytes) override {
    Demand(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_), "a copy back");
    Finish();
  }
  void Finish() override { Demand(cudaStreamSynchronize(stream_), "kernels that end"); }

 private:
  const std::string numerics_name_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return NoDriver(error);
  if (count == 0) return NoDriver(cudaErrorNoDevice);
  if (const cudaError_t error = cudaSetDevice(0); error != cudaSuccess) return NoDriver(error);
  cudaDeviceProp device;
  if (const cudaError_t error = cudaGetDeviceProperties(&device, 0); error != cudaSuccess) return NoDriver(error);
  if (device.major < kOldestMajor) {
    return FailedPrecondition("device " + std::string(device.name) + " has compute capability " +
                              std::to_string(device.major) + "." + std::to_string(device.minor) + ", wanted at least " +
                              std::to_string(kOldestMajor) + ".0");
  }
  if (device.pageableMemoryAccess == 0) {
    return FailedPrecondition("device " + std::string(device.name) +
                              " cannot use the host's memory where it lies: that takes Linux 6.1.24 or newer with "
                              "NVIDIA's open kernel modules (HMM), or a coherent link");
  }
  // Tensor cores of another generation may add in another order.
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>("cuda_sm" + std::to_string(device.major) + std::to_string(device.minor)));
}

}  // namespace invar::kernels::cuda
