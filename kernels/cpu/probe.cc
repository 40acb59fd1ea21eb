// Each thread is pinned, waits for the others, and works on its own part; the time is from the common start to the last
// end.
#include "kernels/cpu/probe.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include "base/worker_pool.h"
#include "kernels/cpu/isa.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kBufferFloats = int64_t{128} << 20;  // 512 MiB: far more than any cache.
constexpr int kPasses = 4;                             // 2 GiB in all.
constexpr int64_t kPeakSteps = 1 << 20;                // Some 4 to 20 ms.

void PinToCore(const int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != index) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

// Seconds from the moment all threads are ready until the last has done work(index).
double TimeTogether(const int threads, const std::function<void(int)>& work) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      PinToCore(i);
      const FlushDenormals flush;
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(i);
    });
  }
  while (ready.load() != threads) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true, std::memory_order_release);
  for (std::thread& thread : all) thread.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Probe::Probe(const int threads, const char* isa) : threads_(threads), buffer_(kBufferFloats, 1.0F) {
  StatusOr<const KernelTable*> table = ChooseTable(isa);
  Check(table.ok(), "the instruction set was checked before", isa);
  table_ = *table;
}

void Probe::Measure() {
  MeasureRead();
  MeasurePeak();
}

void Probe::MeasureRead() {
  const int64_t part = kBufferFloats / threads_;
  std::atomic<float> sink{0.0F};
  const double seconds = TimeTogether(threads_, [&](const int i) {
    for (int pass = 0; pass < kPasses; ++pass) sink.store(table_->read(buffer_.data() + i * part, part));
  });
  read_gbps_ = std::max(read_gbps_, static_cast<double>(part) * threads_ * 4 * kPasses / seconds * 1e-9);
}

void Probe::MeasurePeak() {
  const auto gflops = [this](double (*peak)(int64_t, float*)) {
    std::vector<float> sinks(threads_ * 16);
    std::vector<double> flops(threads_);
    const double seconds = TimeTogether(threads_, [&](const int i) { flops[i] = peak(kPeakSteps, &sinks[i * 16]); });
    return std::accumulate(flops.begin(), flops.end(), 0.0) / seconds * 1e-9;
  };
  bf16_gflops_ = std::max(bf16_gflops_, gflops(table_->product_peak));
  lane_gops_ = std::max(lane_gops_, gflops(table_->fma_peak) / 2.0);
}

}  // namespace invar::kernels::cpu
