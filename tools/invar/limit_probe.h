// LimitProbe: what benches state kernels and models as shares of: the limits of what computes, this machine's cores or
// a device, measured between the runs that are compared with them.
// Threads: one; nothing else should compute meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cpu/probe.h"

namespace invar::tools {

class LimitProbe {
 public:
  // Of `backend`, which outlives this; of cores, with its threads and instruction set.
  explicit LimitProbe(kernels::Backend& backend);

  // All keep the best seen. A device is no neighbour's, so there all of them measure everything, and but once.
  // Errors: RESOURCE_EXHAUSTED, of a device that lacks memory.
  Status Measure();
  Status MeasureRead(int64_t run_bytes = kernels::cpu::Probe::kRunBytes);
  Status MeasureUpdate();
  Status MeasurePeak();

  kernels::MachineLimits limits() const;

 private:
  Status MeasureDevice();

  kernels::Backend& backend_;
  std::optional<kernels::cpu::Probe> cores_;  // None: a device computes.
  std::optional<kernels::MachineLimits> device_;
};

}  // namespace invar::tools
