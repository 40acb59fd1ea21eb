// One fiber a CUDA thread, switched by saving the callee's registers on its own stack. A block's warps run in turn,
// each as far as its lanes get; when all wait for the block, they go on. Stacks are kept for the next block.
#include "kernels/cuda/emulation.h"

#include <sys/mman.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

// Saves rbx, rbp and r12 to r15 on the present stack, whose pointer goes to *save, and takes those of `load`.
extern "C" void invar_emulation_switch(void** save, void* load);
asm(R"(
.text
.globl invar_emulation_switch
.type invar_emulation_switch, @function
invar_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size invar_emulation_switch, .-invar_emulation_switch
)");

namespace invar::kernels::cuda::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = size_t{128} << 10;  // Sanitizers make frames several times as large.
constexpr std::byte kUnwritten{0xff};              // NaN in every type.
constexpr std::byte kGuardByte{0xa5};

// Notes the place, where that is asked for.
bool IsRemoved(const Place& place) {
  Control& now = control();
  if (now.record_places && std::find(now.places.begin(), now.places.end(), place) == now.places.end()) {
    now.places.push_back(place);
  }
  return now.removed.has_value() && *now.removed == place;
}

// A stack above a page that must not be touched.
class Stack {
 public:
  Stack() : guard_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* memory =
        mmap(nullptr, guard_ + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    Check(memory != MAP_FAILED, "memory for a fiber's stack");
    Check(mprotect(memory, guard_, PROT_NONE) == 0, "a stack's end can be guarded");
    memory_ = static_cast<std::byte*>(memory);
  }
  ~Stack() { munmap(memory_, guard_ + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  std::byte* top() const { return memory_ + guard_ + kStackBytes; }
  // What the address sanitizer remembers of frames that never returned: of a fiber that was given up all of them, of
  // any other the first, Main's.
  void Forget() const { Forget(kStackBytes); }
  void ForgetMain() const { Forget(kMainBytes); }

 private:
  static constexpr size_t kMainBytes = 4096;  // Its frame is a few hundred.

  void Forget([[maybe_unused]] const size_t bytes) const {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(top() - bytes, bytes);
#endif
  }

  size_t guard_;
  std::byte* memory_;
};

enum class State { kReady, kAtWarp, kAtBlock, kDone };

struct Copy {
  void* to;
  const void* from;
  size_t valid;
};

struct Fiber {
  void* saved = nullptr;  // Stack pointer while it does not run.
  State state = State::kDone;
  Place place{"", 0};  // Where it waits.
  int parity = 0;      // Which of two exchange buffers comes next.
  std::vector<Copy> open = {};
  std::deque<std::vector<Copy>> closed = {};
};

// All that one grid runs on. One lives at a time in a thread.
class Machine {
 public:
  void Run(const char* kernel, const Grid& grid, int threads, size_t shared_bytes, const std::function<void()>& body);

  int thread() const { return current_; }
  int threads() const { return threads_; }
  const Grid& block() const { return block_; }
  std::byte* shared() const { return aligned_; }
  void Guard(size_t offset, size_t bytes);
  void Wait(State state, const Place& place, bool removable);
  const std::byte* Exchange(const void* mine, size_t bytes, const Place& place);
  Fiber& current() { return fibers_[static_cast<size_t>(current_)]; }
  [[noreturn]] static void Main();

 private:
  struct Interval {
    size_t begin;
    size_t bytes;
  };

  void Prepare(size_t shared_bytes);
  void RunBlock();
  void RunWarp(int warp);
  void Resume(int thread);
  // True: all threads that live wait for the same thing at the same place.
  bool Agree(int begin, int end, State state);
  void CheckGuards();
  void Fault(const std::string& what);
  int Ordered(int index, int count) const;

  // Of this thread, kept from grid to grid.
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<Fiber> fibers_;
  std::vector<std::byte> shared_;
  std::vector<std::byte> exchange_;
  // Of the grid.
  const char* kernel_ = "";
  const std::function<void()>* body_ = nullptr;
  int threads_ = 0;
  size_t shared_bytes_ = 0;
  std::byte* aligned_ = nullptr;
  bool faulty_ = false;
  // Of the block.
  Grid block_;
  std::vector<Interval> guards_;
  int current_ = 0;
  void* scheduler_ = nullptr;
};

Machine& machine() {
  static thread_local Machine machine;
  return machine;
}

void Machine::Main() {
  (*machine().body_)();
  machine().current().state = State::kDone;
  void* unused = nullptr;
  invar_emulation_switch(&unused, machine().scheduler_);
  __builtin_unreachable();
}

int Machine::Ordered(const int index, const int count) const {
  switch (control().order) {
    case Order::kAscending:
      return index;
    case Order::kDescending:
      return count - 1 - index;
    case Order::kStrided:
      // 11 shares no factor with counts that have only 2, 3, 5 and 7 in them; others fall back to ascending.
      return count % 11 == 0 ? index : (index * 11 + 5) % count;
  }
  return index;
}

void Machine::Fault(const std::string& what) {
  faulty_ = true;
  const std::string text = std::string(kernel_) + ", block " + std::to_string(block_.x) + " " +
                           std::to_string(block_.y) + " " + std::to_string(block_.z) + ": " + what;
  Check(control().note_faults, "an emulated kernel is without fault:", text);
  control().faults.push_back(text);
}

void Machine::Prepare(const size_t shared_bytes) {
  while (stacks_.size() < static_cast<size_t>(threads_)) stacks_.push_back(std::make_unique<Stack>());
  fibers_.assign(static_cast<size_t>(threads_), Fiber());
  exchange_.resize(static_cast<size_t>(threads_) * 2 * kLaneBytes);
  // A whole line more, so that arrays can be aligned, and guards at both ends.
  shared_.assign(shared_bytes + 64, kUnwritten);
  shared_bytes_ = shared_bytes;
  const size_t off = reinterpret_cast<uintptr_t>(shared_.data()) % 64;
  aligned_ = shared_.data() + (64 - off) % 64;
}

void Machine::RunBlock() {
  std::fill(shared_.begin(), shared_.end(), kUnwritten);
  guards_.clear();
  // Behind the last array, which no array after it guards.
  if (shared_bytes_ >= kGuardBytes) Guard(shared_bytes_ - kGuardBytes, kGuardBytes);
  for (int i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[static_cast<size_t>(i)];
    fiber.state = State::kReady;
    fiber.parity = 0;
    fiber.open.clear();
    fiber.closed.clear();
    stacks_[static_cast<size_t>(i)]->ForgetMain();
    // As if Main had been called: where it would return to, its address, six registers.
    auto** top = reinterpret_cast<void**>(stacks_[static_cast<size_t>(i)]->top());
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&Machine::Main);
    for (int r = 0; r < 6; ++r) *--top = nullptr;
    fiber.saved = top;
  }
  const int warps = threads_ / kWarp;
  while (!faulty_) {
    for (int w = 0; w < warps && !faulty_; ++w) RunWarp(Ordered(w, warps));
    if (faulty_) break;
    const auto done =
        std::count_if(fibers_.begin(), fibers_.end(), [](const Fiber& f) { return f.state == State::kDone; });
    if (done == threads_) break;
    if (!Agree(0, threads_, State::kAtBlock)) break;
    for (Fiber& fiber : fibers_) fiber.state = State::kReady;
  }
  if (!faulty_) CheckGuards();
  for (const Fiber& fiber : fibers_) {
    if (fiber.state == State::kDone) continue;
    for (int i = 0; i < threads_; ++i) stacks_[static_cast<size_t>(i)]->Forget();
    break;
  }
}

void Machine::RunWarp(const int warp) {
  const int begin = warp * kWarp;
  while (true) {
    bool at_warp = false;
    for (int i = 0; i < kWarp; ++i) {
      const int thread = begin + Ordered(i, kWarp);
      if (fibers_[static_cast<size_t>(thread)].state == State::kReady) Resume(thread);
      at_warp = at_warp || fibers_[static_cast<size_t>(thread)].state == State::kAtWarp;
    }
    if (!at_warp) return;
    if (!Agree(begin, begin + kWarp, State::kAtWarp)) return;
    for (int i = begin; i < begin + kWarp; ++i) fibers_[static_cast<size_t>(i)].state = State::kReady;
  }
}

void Machine::Resume(const int thread) {
  current_ = thread;
  invar_emulation_switch(&scheduler_, fibers_[static_cast<size_t>(thread)].saved);
}

bool Machine::Agree(const int begin, const int end, const State state) {
  const Fiber& first = fibers_[static_cast<size_t>(begin)];
  for (int i = begin; i < end; ++i) {
    const Fiber& fiber = fibers_[static_cast<size_t>(i)];
    if (fiber.state == state && fiber.state == first.state && fiber.place == first.place) continue;
    const auto where = [](const Fiber& f) { return f.state == State::kDone ? "the end" : NameOf(f.place); };
    Fault("threads " + std::to_string(begin) + " and " + std::to_string(i) + " have parted: one is at " + where(first) +
          ", the other at " + where(fiber));
    return false;
  }
  return true;
}

void Machine::Guard(const size_t offset, const size_t bytes) {
  for (const Interval& guard : guards_) {
    if (guard.begin == offset) return;
  }
  Check(offset + bytes <= shared_bytes_, "shared arrays fit what the launch asked for", kernel_, offset + bytes,
        shared_bytes_);
  std::memset(aligned_ + offset, static_cast<int>(kGuardByte), bytes);
  guards_.push_back({offset, bytes});
}

void Machine::CheckGuards() {
  for (size_t i = 0; i < guards_.size(); ++i) {
    for (size_t b = 0; b < guards_[i].bytes; ++b) {
      if (aligned_[guards_[i].begin + b] == kGuardByte) continue;
      Fault("wrote outside a shared array, at byte " + std::to_string(guards_[i].begin + b) + ", guard " +
            std::to_string(i));
      return;
    }
  }
}

void Machine::Wait(const State state, const Place& place, const bool removable) {
  if (removable && IsRemoved(place)) return;
  Fiber& fiber = current();
  fiber.state = state;
  fiber.place = place;
  invar_emulation_switch(&fiber.saved, scheduler_);
}

const std::byte* Machine::Exchange(const void* mine, const size_t bytes, const Place& place) {
  Check(bytes <= kLaneBytes, "a lane lends what fits", bytes);
  const int warp = current_ / kWarp;
  Fiber& fiber = current();
  std::byte* all = exchange_.data() + static_cast<size_t>(warp * 2 + fiber.parity) * kWarp * kLaneBytes;
  fiber.parity ^= 1;
  std::memcpy(all + static_cast<size_t>(current_ % kWarp) * kLaneBytes, mine, bytes);
  Wait(State::kAtWarp, place, false);
  return all;
}

void Machine::Run(const char* kernel, const Grid& grid, const int threads, const size_t shared_bytes,
                  const std::function<void()>& body) {
  Check(threads > 0 && threads <= 1024 && threads % kWarp == 0, "a block has whole warps", threads);
  Check(grid.x >= 0 && grid.x < (int64_t{1} << 31) && grid.y >= 0 && grid.y < 65536 && grid.z >= 0 && grid.z < 65536,
        "a grid that a device takes", kernel, grid.x, grid.y, grid.z);
  const unsigned flags = _mm_getcsr();
  _mm_setcsr(0x1f80);  // As a device computes: to nearest, denormals kept.
  kernel_ = kernel;
  body_ = &body;
  threads_ = threads;
  faulty_ = false;
  Prepare(shared_bytes);
  const auto blocks = grid.x * grid.y * grid.z;
  for (int64_t i = 0; i < blocks && !faulty_; ++i) {
    const int64_t at = control().order == Order::kAscending ? i : blocks - 1 - i;
    block_ = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
    RunBlock();
  }
  _mm_setcsr(flags);
}

void Perform(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    std::memset(copy.to, 0, 16);
    if (copy.valid > 0) std::memcpy(copy.to, copy.from, copy.valid);
  }
}

}  // namespace

std::string NameOf(const Place& place) {
  const std::string file = place.file;
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(place.line);
}

Control& control() {
  static thread_local Control control;
  return control;
}

void RunGrid(const char* kernel, const Grid& grid, const int threads, const size_t shared_bytes,
             const std::function<void()>& body) {
  machine().Run(kernel, grid, threads, shared_bytes, body);
}

int Thread() { return machine().thread(); }
int Threads() { return machine().threads(); }
const Grid& Block() { return machine().block(); }
std::byte* Shared() { return machine().shared(); }
void Guard(const size_t offset, const size_t bytes) { machine().Guard(offset, bytes); }

void WaitForBlock(const Place& place) { machine().Wait(State::kAtBlock, place, true); }
void WaitForWarp(const Place& place) { machine().Wait(State::kAtWarp, place, true); }
const std::byte* Exchange(const void* mine, const size_t bytes, const Place& place) {
  return machine().Exchange(mine, bytes, place);
}

void StartCopy(void* to, const void* from, const size_t valid) {
  Check(reinterpret_cast<uintptr_t>(to) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0,
        "an asynchronous copy is aligned");
  machine().current().open.push_back({to, from, valid});
}

void CloseGroup() {
  Fiber& fiber = machine().current();
  fiber.closed.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void WaitForGroups(const size_t pending, const Place& place) {
  if (IsRemoved(place)) return;
  Fiber& fiber = machine().current();
  while (fiber.closed.size() > pending) {
    Perform(fiber.closed.front());
    fiber.closed.pop_front();
  }
}

}  // namespace invar::kernels::cuda::emulation
