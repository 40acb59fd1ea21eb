// What became of the cache in memory when the daemon ended.
#pragma once

#include <cstdint>

namespace invar::cache {

struct PersistReport {
  int64_t prefixes = 0;        // Where sequences could resume in memory.
  int64_t given = 0;           // Of these, handed to the tiers or known to be there.
  bool was_cut_short = false;  // Time was up before the tiers had stored all they were given.
};

}  // namespace invar::cache
