// Memory comes from the C library, a piece at a time, so that sanitizers see who leaves one.
#include "kernels/cuda/emulated_device.h"

#include <cstdlib>
#include <cstring>

namespace invar::kernels::cuda {
namespace {

class EmulatedDevice final : public Device {
 public:
  // Not a device's: its tensor cores add in an order of their own.
  std::string numerics_name() const override { return "cuda_emulated"; }
  Stream stream() const override { return nullptr; }
  void* Allocate(const int64_t bytes) override {
    constexpr int64_t kAlignment = 256;
    return std::aligned_alloc(kAlignment, static_cast<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment));
  }
  void Free(void* memory) override { std::free(memory); }
  void CopyIn(void* to, const void* from, const int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void CopyOut(void* to, const void* from, const int64_t bytes) override { CopyIn(to, from, bytes); }
  void Finish() override {}
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice() { return std::make_unique<EmulatedDevice>(); }

}  // namespace invar::kernels::cuda
