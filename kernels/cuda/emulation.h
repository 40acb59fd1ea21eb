// Runs CUDA kernels on the CPU, so that their logic, layouts and barriers are tested where no GPU is: the same .cu
// files, compiled as C++ by the host's compiler (device_ops.cuh chooses). Every CUDA thread is a fiber; the blocks of a
// grid run one after another on the calling thread.
//
// What it finds, besides wrong results:
//   missing barriers   a block's threads run in a chosen order, each until it must wait: what one reads too early or
//                      overwrites too soon differs between orders. Shared memory begins as NaN in every block.
//   barriers that not all threads reach, or that they reach at different places of the source
//   writes outside a shared array: guard bytes lie around each
//   copies not waited for: an asynchronous copy happens when its thread waits for it, not before
// A fault ends the process with kernel, block and place, unless the control says to note it.
//
// What it does not show: the bits of a device's tensor cores (the emulated product sums k ascending), speed, and races
// within one warp between two points where its lanes wait.
//
// Threads: one grid a thread at a time; the control is the thread's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/grid.h"

// CUDA's own keywords mean nothing here.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

namespace invar::kernels::cuda {

// Where in the source threads wait; by default arguments, that of the caller.
struct Place {
  const char* file;
  int line;

  bool operator==(const Place& other) const { return line == other.line && std::strcmp(file, other.file) == 0; }
};

namespace emulation {

enum class Order { kAscending, kDescending, kStrided };

struct Control {
  Order order = Order::kAscending;
  std::optional<Place> removed = {};  // Waiting there does nothing, as if the source did not say it.
  bool note_faults = false;           // Into `faults`, giving the rest of the grid up, instead of ending the process.
  bool record_places = false;         // Into `places`.
  std::vector<Place> places = {};
  std::vector<std::string> faults = {};
};
// Of the calling thread.
Control& control();
// "attention.cu:120"
std::string NameOf(const Place& place);

// Runs `body` as every thread of the grid. Requires: threads is a multiple of 32, at most 1024.
void RunGrid(const char* kernel, const Grid& grid, int threads, size_t shared_bytes, const std::function<void()>& body);

// A stream: what was launched on it and has perhaps not run yet. A launch on none has run when it returns.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual void Add(std::function<void()> work) = 0;
};

// --- For device_ops.cuh, inside a kernel ---
int Thread();
int Threads();
const Grid& Block();
std::byte* Shared();
// Bytes around every shared array.
inline constexpr size_t kGuardBytes = 32;
// Says that [offset, offset + bytes) of the shared memory is no array's.
void Guard(size_t offset, size_t bytes);

void WaitForBlock(const Place& place);
void WaitForWarp(const Place& place);
// Lends `bytes` of every lane of this warp to the others: the result's [lane * kLaneBytes] is that lane's, until the
// next exchange but one. Not a wait of the source, so it cannot be removed.
inline constexpr size_t kLaneBytes = 64;
const std::byte* Exchange(const void* mine, size_t bytes, const Place& place);

// An asynchronous copy of 16 bytes, the source's first `valid` and then zeros: joins the open group.
void StartCopy(void* to, const void* from, size_t valid);
void CloseGroup();
// Performs all but the newest `pending` closed groups.
void WaitForGroups(size_t pending, const Place& place);

}  // namespace emulation
}  // namespace invar::kernels::cuda
