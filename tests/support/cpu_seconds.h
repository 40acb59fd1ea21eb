// What work costs, however busy the machine is.
#pragma once

#include <time.h>

namespace invar {

// CPU time of this thread.
inline double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace invar
