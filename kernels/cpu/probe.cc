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
#include <vector>

#include "base/worker_pool.h"
#include "kernels/cpu/isa.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kSliceBytes = int64_t{64} << 20;
constexpr int64_t kUnitBytes = 16384;  // What every number of streams divides.
// Ways to read: streams a thread, and floats that are prefetched ahead. Which is fastest depends on the machine's own
// prefetchers: the best counts.
struct Way {
  int64_t streams;
  int64_t ahead;
};
constexpr Way kWays[] = {{1, 0}, {2, 0}, {8, 1024}};
constexpr int64_t kPeakSteps = 1 << 20;  // Some 4 to 20 ms.

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

Probe::Probe(const int threads, const char* isa) : threads_(threads), buffer_(UncachedBytes()) {
  StatusOr<const KernelTable*> table = ChooseTable(isa);
  Check(table.ok(), "the instruction set was checked before", isa);
  table_ = *table;
}

void Probe::Measure() {
  MeasureRead();
  MeasureUpdate();
  MeasurePeak();
}

// In runs that last about as long as what they are compared with: on a shared machine the best of several runs is the
// machine's, a longer one is the neighbours' too. And where a host rations bandwidth, some milliseconds after a pause
// are twice as fast as what follows.
void Probe::MeasureRead(const int64_t run_bytes) {
  std::atomic<float> sink{0.0F};
  for (const Way& way : kWays) {
    const double gbps = Walk(run_bytes, [&](const float* begin, const int64_t floats) {
      sink.store(table_->read(begin, floats, way.streams, way.ahead));
    });
    limits_.read_gbps = std::max(limits_.read_gbps, gbps);
  }
}

void Probe::MeasureUpdate() {
  constexpr int64_t kUpdateBytes = kRunBytes / 4;  // It goes slower, and lasts as long.
  const double gbps = Walk(kUpdateBytes, [&](float* begin, const int64_t floats) { table_->update(begin, floats); });
  limits_.update_gbps = std::max(limits_.update_gbps, gbps);
}

double Probe::Walk(const int64_t run_bytes, const std::function<void(float*, int64_t)>& work) {
  const int64_t part = kSliceBytes / threads_ / kUnitBytes * kUnitBytes;
  const int64_t slices = std::max<int64_t>(1, run_bytes / kSliceBytes);
  const int64_t places = buffer_.bytes() / (part * threads_);
  auto* const floats = reinterpret_cast<float*>(buffer_.data());
  const double seconds = TimeTogether(threads_, [&](const int i) {
    for (int64_t slice = 0; slice < slices; ++slice) {
      const int64_t begin = (next_ + slice) % places * part * threads_ + i * part;
      work(floats + begin / 4, part / 4);
    }
  });
  next_ = (next_ + slices) % places;
  return static_cast<double>(part * threads_ * slices) / seconds * 1e-9;
}

void Probe::MeasurePeak() {
  const auto gflops = [this](double (*peak)(int64_t, float*)) {
    std::vector<float> sinks(threads_ * 16);
    std::vector<double> flops(threads_);
    const double seconds = TimeTogether(threads_, [&](const int i) { flops[i] = peak(kPeakSteps, &sinks[i * 16]); });
    return std::accumulate(flops.begin(), flops.end(), 0.0) / seconds * 1e-9;
  };
  limits_.bf16_gflops = std::max(limits_.bf16_gflops, gflops(table_->product_peak));
  limits_.lane_gops = std::max(limits_.lane_gops, gflops(table_->fma_peak) / 2.0);
}

}  // namespace invar::kernels::cpu
