// How many of a sequence's pages no other sequence holds, without looking at all of them every step: of the pages that
// are shared, the number changes only when somebody joins or leaves one, which the pool counts.
// Threads: engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "cache/page_pool.h"
#include "cache/page_table.h"

namespace invar::engine {

// Of one page table.
class OwnPages {
 public:
  // Looks at every page where sharing has changed since the last call, else at none.
  int32_t Count(const cache::PageTable& table, const cache::PagePool& pool) {
    if (at_change_ != pool.sharing_changes()) {
      const std::span<const PageId> pages = table.ids();
      shared_ = static_cast<int32_t>(
          std::count_if(pages.begin(), pages.end(), [&](const PageId page) { return pool.LiveClaims(page) > 1; }));
      at_change_ = pool.sharing_changes();
    }
    return table.size() - shared_;
  }

 private:
  int64_t at_change_ = -1;
  int32_t shared_ = 0;
};

}  // namespace invar::engine
