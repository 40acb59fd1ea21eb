// What was launched is a queue of closures. The device's memory is mapped a piece at a time and opened only while the
// queue runs; under the address sanitizer it comes from the C library instead, which finds who leaves a piece.
#include "kernels/cuda/emulated_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/split_mix64.h"
#include "kernels/cuda/emulation.h"

namespace invar::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMapped = false;
#else
constexpr bool kMapped = true;
#endif

void* AllocateHost(const int64_t bytes) {
  return std::aligned_alloc(kAlignment, static_cast<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment));
}

class DeviceMemory {
 public:
  ~DeviceMemory() { Check(pieces_.empty(), "all of the device's memory was given back", pieces_.size()); }

  void* Allocate(const int64_t bytes) {
    if (!kMapped) return AllocateHost(bytes);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t size = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + page - 1) / page * page;
    void* const memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    pieces_.push_back({memory, size});
    return memory;
  }
  void Free(void* const memory) {
    if (!kMapped) return std::free(memory);
    const auto at =
        std::find_if(pieces_.begin(), pieces_.end(), [memory](const Piece& piece) { return piece.memory == memory; });
    Check(at != pieces_.end(), "what is given back is the device's");
    munmap(at->memory, at->bytes);
    pieces_.erase(at);
  }
  void Open() { Protect(PROT_READ | PROT_WRITE); }
  void Close() { Protect(PROT_NONE); }

 private:
  struct Piece {
    void* memory;
    size_t bytes;
  };
  void Protect(const int access) {
    for (const Piece& piece : pieces_) {
      Check(mprotect(piece.memory, piece.bytes, access) == 0, "memory can be opened and closed");
    }
  }

  std::vector<Piece> pieces_;
};

class WorkQueue final : public emulation::Queue {
 public:
  WorkQueue(const EmulatedDeviceOptions& options, DeviceMemory& memory, int64_t* const waits)
      : options_(options), memory_(memory), waits_(waits), random_(options.seed) {}

  void Add(std::function<void()> work) override {
    work_.push_back(std::move(work));
    ++added_;
    if (options_.pace == Pace::kAtOnce) return RunTo(added_);
    if (options_.pace == Pace::kAtWaits) return;
    const uint64_t chance = random_.Next() % 8;  // As often nothing as something, and now and then all of it.
    if (chance < 4) RunTo(done_ + static_cast<int64_t>(work_.size()) * static_cast<int64_t>(chance + 1) / 4);
  }
  int64_t added() const { return added_; }
  // Until the first `count` have run.
  void WaitFor(const int64_t count) {
    if (count <= done_) return;
    if (waits_ != nullptr) ++*waits_;
    if (waited_++ == options_.removed_wait) return;
    RunTo(count);
  }

 private:
  void RunTo(const int64_t count) {
    if (count <= done_) return;
    memory_.Open();
    for (; done_ < count; ++done_) {
      work_.front()();
      work_.pop_front();
    }
    memory_.Close();
  }

  const EmulatedDeviceOptions options_;
  DeviceMemory& memory_;
  int64_t* const waits_;
  SplitMix64 random_;
  std::deque<std::function<void()>> work_;
  int64_t added_ = 0;
  int64_t done_ = 0;
  int64_t waited_ = 0;
};

class EmulatedEvent final : public Event {
 public:
  explicit EmulatedEvent(WorkQueue& queue) : queue_(queue) {}
  void Record() override { at_ = queue_.added(); }
  void Await() override { queue_.WaitFor(at_); }

 private:
  WorkQueue& queue_;
  int64_t at_ = 0;
};

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(const EmulatedDeviceOptions& options, int64_t* const waits) : queue_(options, memory_, waits) {}

  // Not a device's: its tensor cores add in an order of their own.
  std::string numerics_name() const override { return "cuda_emulated"; }
  DeviceSize size() const override { return {.multiprocessors = 1, .uncached_bytes = int64_t{64} << 10}; }
  Stream stream() const override { return &queue_; }
  void* Allocate(const int64_t bytes) override { return memory_.Allocate(bytes); }
  void Free(void* memory) override { memory_.Free(memory); }
  void* AllocatePinned(const int64_t bytes) override { return AllocateHost(bytes); }
  void FreePinned(void* memory) override { std::free(memory); }
  void CopyIn(void* to, const void* from, const int64_t bytes) override {
    queue_.Add([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  void Zero(void* memory, const int64_t bytes) override {
    queue_.Add([=] { std::memset(memory, 0, static_cast<size_t>(bytes)); });
  }
  void CopyOut(void* to, const void* from, const int64_t bytes) override {
    CopyIn(to, from, bytes);
    Finish();
  }
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<EmulatedEvent>(queue_); }
  void Finish() override { queue_.WaitFor(queue_.added()); }

 private:
  DeviceMemory memory_;
  mutable WorkQueue queue_;  // A stream is named by its address.
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options, int64_t* const waits) {
  return std::make_unique<EmulatedDevice>(options, waits);
}

}  // namespace invar::kernels::cuda
