// SimulatedFiles: the slow tier's one file, in memory: reads and writes that fail, fall short, bring
// other bytes, take long, or find the disk full, as often as they are told.
// Threads: engine thread only; it must be the one that reads (SlowTierOptions::reads_on_a_thread).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cache/tiers/file_layer.h"
#include "tools/sim/random.h"

namespace invar::sim {

struct SimulatedFileOptions {
  uint64_t seed = 0;
  // Of a thousand calls.
  int32_t reads_fail = 0;
  int32_t reads_fall_short = 0;
  int32_t reads_are_damaged = 0;
  int32_t writes_fail = 0;
  int32_t disk_is_full = 0;
  int32_t slow = 0;  // Take `slow_ns`, reads and writes: the step that they are of is longer by it.
  TimeNs slow_ns = 0;
};

class SimulatedFiles final : public cache::FileLayer {
 public:
  explicit SimulatedFiles(const SimulatedFileOptions& options) : options_(options), random_(options.seed) {}

  // That calls took since it was asked last.
  TimeNs TakeTime() { return std::exchange(took_, 0); }
  int64_t faults() const { return faults_; }

  int Open(const std::string&, int) override { return 1; }
  int Close(int) override { return 0; }
  int64_t ReadAt(int fd, std::span<std::byte> to, int64_t offset) override;
  int64_t WriteAt(int fd, std::span<const std::byte> from, int64_t offset) override;
  int Sync(int) override { return 0; }
  int64_t BytesOf(int) override { return std::ssize(bytes_); }
  int LockExclusive(int) override { return 0; }
  int Rename(const std::string&, const std::string&) override { return 0; }
  int Remove(const std::string&) override { return 0; }
  int64_t NowNs() override { return 0; }
  int SetModified(const std::string&, int64_t) override { return 0; }
  int MakeFolder(const std::string&) override { return 0; }
  int List(const std::string&, std::vector<FolderEntry>&) override { return 0; }

 private:
  bool Draw(int32_t per_mille);
  void PassTime();

  // Set at construction.
  const SimulatedFileOptions options_;

  Random random_;
  std::vector<std::byte> bytes_;
  TimeNs took_ = 0;
  int64_t faults_ = 0;
};

}  // namespace invar::sim
