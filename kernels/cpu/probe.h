// What this machine can do at most, measured: reading memory, updating it in place, and the product's own inner
// operation on registers.
// Performance is stated as a share of these, measured in the same run (a shared host's bandwidth moves within minutes).
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/big_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/machine_limits.h"

namespace invar::kernels::cpu {

// Threads: one; nothing else should compute meanwhile. Threads of a probe are pinned to one core each where allowed.
class Probe {
 public:
  // `isa` as in BackendOptions; empty: the best. Takes a buffer of UncachedBytes.
  Probe(int threads, const char* isa = "");

  static constexpr int64_t kRunBytes = int64_t{1} << 30;  // Some 20 to 60 ms.

  // All keep the best seen: call them between the runs they are compared with.
  void Measure();  // All of them.
  // Several times `run_bytes`, about as much as what it is compared with reads at a stretch: once in each way.
  void MeasureRead(int64_t run_bytes = kRunBytes);
  // As MeasureRead, of memory that is read and written in place.
  void MeasureUpdate();
  void MeasurePeak();

  // Best so far; products are this instruction set's.
  const MachineLimits& limits() const { return limits_; }

 private:
  // Lets each thread work on its part of one slice after another; 1e9 bytes a second, of all.
  double Walk(int64_t run_bytes, const std::function<void(float* begin, int64_t floats)>& work);

  const int threads_;
  const KernelTable* table_;
  BigMemory buffer_;
  int64_t next_ = 0;  // Where in the buffer the next slice begins: each comes from memory.
  MachineLimits limits_;
};

}  // namespace invar::kernels::cpu
