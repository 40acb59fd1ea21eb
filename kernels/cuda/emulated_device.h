// The device of the emulation: kernels and copies run behind their launches, as late as the host lets them, and memory
// of the device's own is out of the host's reach in between. So a wait that is missing, a staging buffer that is
// written too soon, and a host that reads what it must not are seen.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"

namespace invar::kernels::cuda {

// When what was launched runs: as soon as it is, not before somebody waits, or at moments between that a seed gives.
enum class Pace { kAtOnce, kAtWaits, kSeeded };

struct EmulatedDeviceOptions {
  Pace pace = Pace::kAtWaits;
  uint64_t seed = 0;
  // The wait with this number, of those that find something to wait for, returns without it; -1: none.
  int64_t removed_wait = -1;
};

// Null, or counts the waits that found something to wait for.
std::unique_ptr<Device> MakeEmulatedDevice(const EmulatedDeviceOptions& options = {}, int64_t* waits = nullptr);

}  // namespace invar::kernels::cuda
