// SlowStore: the file that full KV lies in which the fast tier has no room for. Ranges of whole blocks, first fit,
// under a budget. It is a place for running sequences only: its name is gone as soon as it is open, so nothing of it
// outlives the process.
//
// Reads go through the page cache or, `direct`, around it: then what is read has really come from the disk. Writes go
// through it in any case; the system brings the two together. What lies in the page cache can be read in place, through
// a mapping (mapped_range.h).
// Threads: Take and ranges on one; Read and Write any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "cache/make_tiers.h"
#include "engine/slow/block_buffer.h"
#include "engine/slow_tier_options.h"

namespace invar::engine {

class SlowStore {
 public:
  // Errors: INVALID_ARGUMENT with the field, where the folder cannot be written or not be read around the page cache.
  static StatusOr<std::unique_ptr<SlowStore>> Open(const SlowTierOptions& options);
  ~SlowStore();
  SlowStore(const SlowStore&) = delete;
  SlowStore& operator=(const SlowStore&) = delete;

  // A part of the file. Giving it back is its destructor. Requires: the store outlives it.
  class Range {
   public:
    Range(Range&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)), offset_(other.offset_), bytes_(other.bytes_) {}
    Range& operator=(Range&&) = delete;
    ~Range();
    int64_t offset() const { return offset_; }
    int64_t bytes() const { return bytes_; }

   private:
    friend class SlowStore;
    Range(SlowStore* const store, const int64_t offset, const int64_t bytes)
        : store_(store), offset_(offset), bytes_(bytes) {}

    SlowStore* store_;
    int64_t offset_;
    int64_t bytes_;
  };
  // nullopt: the budget has no room for it. Requires: whole blocks.
  std::optional<Range> Take(int64_t bytes);
  int64_t used_bytes() const { return used_bytes_; }

  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED (the disk is full).
  Status Write(int64_t offset, std::span<const std::byte> from);
  // Reads `bytes` and perhaps what fills the last block. Requires: `offset` and `to` are at whole blocks, and `to` has
  // room for them. Errors: UNAVAILABLE, DATA_LOSS (the file is shorter).
  Status Read(int64_t offset, int64_t bytes, std::byte* to);

  // Whether `count` bytes at whole blocks from `at` on may show what lies at `offset`: false where reads go around the
  // page cache, through a test's files, or the system has no more mappings. Requires: `at` lies in a MappedRange.
  bool MapAt(std::byte* at, int64_t offset, int64_t bytes) const;
  bool maps() const { return own_files_ != nullptr && !options_.direct; }
  // Whether something that had been written was found to be no longer in the page cache: from then on whatever is
  // mapped may have come from the disk, and nothing is read in place any more. Any thread.
  bool reads_disk() const { return reads_disk_; }
  void SetReadsDisk() { reads_disk_ = true; }

 private:
  SlowStore(const SlowTierOptions& options, std::unique_ptr<cache::FileLayer> own_files);
  Status OpenFiles();
  void GiveBack(int64_t offset, int64_t bytes);

  // Set at construction.
  const SlowTierOptions options_;
  const std::unique_ptr<cache::FileLayer> own_files_;
  cache::FileLayer& files_;
  int write_fd_ = -1;
  int read_fd_ = -1;

  std::atomic<bool> reads_disk_ = false;

  // The one thread of Take.
  std::map<int64_t, int64_t> free_;  // Offset to bytes: ranges that were given back, no two side by side.
  int64_t end_ = 0;                  // Of all that was ever taken.
  int64_t used_bytes_ = 0;
};

}  // namespace invar::engine
