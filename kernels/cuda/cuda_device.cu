// The one file that calls CUDA's runtime. Opening gives a Status; what fails later is a broken device or a bug, and
// ends the process: a step cannot go on without its results.
#include <cuda_runtime.h>

#include <algorithm>
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

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const cudaStream_t stream) : stream_(stream) {
    Demand(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void Record() override { Demand(cudaEventRecord(event_, stream_), "a moment"); }
  void Await() override { Demand(cudaEventSynchronize(event_), "kernels that end"); }

 private:
  const cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::string numerics_name, const DeviceSize& size)
      : numerics_name_(std::move(numerics_name)), size_(size) {
    Demand(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }
  ~CudaDevice() override { cudaStreamDestroy(stream_); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string numerics_name() const override { return numerics_name_; }
  DeviceSize size() const override { return size_; }
  Stream stream() const override { return stream_; }
  void* Allocate(const int64_t bytes) override {
    void* memory = nullptr;
    return IsThere(cudaMalloc(&memory, static_cast<size_t>(bytes))) ? memory : nullptr;
  }
  void Free(void* memory) override { Demand(cudaFree(memory), "giving memory back"); }
  void* AllocatePinned(const int64_t bytes) override {
    void* memory = nullptr;
    return IsThere(cudaMallocHost(&memory, static_cast<size_t>(bytes))) ? memory : nullptr;
  }
  void FreePinned(void* memory) override { Demand(cudaFreeHost(memory), "giving memory back"); }
  void CopyIn(void* to, const void* from, const int64_t bytes) override {
    Demand(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_), "a copy");
  }
  void Zero(void* memory, const int64_t bytes) override {
    Demand(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream_), "zeros");
  }
  void CopyOut(void* to, const void* from, const int64_t bytes) override {
    Demand(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_), "a copy back");
    Finish();
  }
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<CudaEvent>(stream_); }
  void Finish() override { Demand(cudaStreamSynchronize(stream_), "kernels that end"); }

 private:
  static bool IsThere(const cudaError_t error) {
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Else the next launch would be blamed for it.
      return false;
    }
    Demand(error, "memory");
    return true;
  }

  const std::string numerics_name_;
  const DeviceSize size_;
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
  const DeviceSize size{.multiprocessors = device.multiProcessorCount,
                        .uncached_bytes = std::max(int64_t{device.l2CacheSize} * 8, int64_t{256} << 20)};
  // Tensor cores of another generation may add in another order.
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>("cuda_sm" + std::to_string(device.major) + std::to_string(device.minor), size));
}

}  // namespace invar::kernels::cuda
