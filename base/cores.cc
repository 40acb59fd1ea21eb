// Affinity from the scheduler, the quota from the files of control groups, version 2 or 1.
#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace invar {
namespace {

// CPU time a second of time, in cores; nothing where no quota is set.
std::optional<double> CpuQuota() {
  double quota = -1, period = 0;
  std::string text;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> text >> period) {
    quota = text == "max" ? -1 : std::atof(text.c_str());
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (!(quota > 0 && period > 0)) return std::nullopt;
  return quota / period;
}

}  // namespace

std::vector<int> AllowedCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

int ComputeCores() {
  int cores = static_cast<int>(AllowedCores().size());
  if (const std::optional<double> quota = CpuQuota(); quota && *quota < cores) cores = static_cast<int>(*quota);
  return std::max(1, cores);
}

}  // namespace invar
