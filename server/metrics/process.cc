// The process, by the names that every exporter gives them.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/metrics/parts.h"

namespace invar::server {
namespace {

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t EntriesOf(const char* const folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return error ? 0 : std::distance(begin(entries), end(entries));
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * t.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

MetricsPart ProcessMetrics() {
  using S = MetricsSnapshot;
  return {
      .title = "The process",
      .of_model = false,
      .rows = {
          {"process_resident_memory_bytes", kGauge, "Resident memory.", [](const S&) { return ResidentBytes(); }},
          {"process_open_fds", kGauge, "Open file descriptors.", [](const S&) { return EntriesOf("/proc/self/fd"); }},
          {"process_threads", kGauge, "Threads.", [](const S&) { return EntriesOf("/proc/self/task"); }},
          {"process_cpu_seconds_total", kCounter, "User and system time.", [](const S&) { return CpuSeconds(); }},
      }};
}

}  // namespace invar::server
