// Chance is drawn call by call, so that a schedule's faults come in the order of its reads and writes.
#include "tools/sim/simulated_files.h"

#include <algorithm>
#include <cerrno>

namespace invar::sim {

bool SimulatedFiles::Draw(const int32_t per_mille) {
  const bool comes = per_mille > 0 && random_.Between(0, 999) < per_mille;
  faults_ += comes ? 1 : 0;
  return comes;
}

void SimulatedFiles::PassTime() {
  if (Draw(options_.slow)) took_ += options_.slow_ns;
}

// A file ends where nothing was written behind it, as a last block that is read does.
int64_t SimulatedFiles::ReadAt(int, std::span<std::byte> to, const int64_t offset) {
  PassTime();
  if (Draw(options_.reads_fail)) return -EIO;
  const auto there = static_cast<size_t>(std::max<int64_t>(0, std::ssize(bytes_) - offset));
  to = to.first(std::min(to.size(), there));
  if (to.empty()) return 0;
  if (Draw(options_.reads_fall_short)) {
    to = to.first(static_cast<size_t>(random_.Between(0, static_cast<int32_t>(to.size()) - 1)));
  }
  std::copy_n(bytes_.begin() + offset, to.size(), to.begin());
  if (!to.empty() && Draw(options_.reads_are_damaged)) {
    to[static_cast<size_t>(random_.Between(0, static_cast<int32_t>(to.size()) - 1))] ^= std::byte{16};
  }
  return std::ssize(to);
}

// What fails has written some.
int64_t SimulatedFiles::WriteAt(int, std::span<const std::byte> from, const int64_t offset) {
  PassTime();
  const bool fails = Draw(options_.writes_fail);
  const bool is_full = !fails && Draw(options_.disk_is_full);
  if (fails || is_full) from = from.first(from.size() / 2);
  bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(offset) + from.size()));
  std::copy(from.begin(), from.end(), bytes_.begin() + offset);
  if (fails) return -EIO;
  return is_full ? -ENOSPC : std::ssize(from);
}

}  // namespace invar::sim
