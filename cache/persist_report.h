// What became of the cache in memory when the daemon ended.
#pragma once

#include <cstdint>

namespace invar::cache {

struct PersistReport {
  int64_t prefixes = 0;        // Where sequences could resume in memory; 0 where no tier outlives the process.
  int64_t stored = 0;          // Of these, there for the next process; at least so many where time was up.
  bool was_cut_short = false;  // Time was up before the tiers had ended all they were given.
};

}  // namespace invar::cache
