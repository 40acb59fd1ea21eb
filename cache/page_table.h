// The pages one sequence holds, in the order of its positions. Giving them up is its destructor (or Clear).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.h"

namespace invar::cache {

class PageTable {
 public:
  // Takes pages until there are `pages`. False where the pool ran out; what was taken stays.
  bool GrowTo(const int32_t pages, PagePool& pool) {
    while (size() < pages) {
      std::optional<PageRef> page = pool.Take();
      if (!page.has_value()) return false;
      ids_.push_back(page->id());
      owned_.push_back(*std::move(page));
    }
    return true;
  }
  void Clear() {
    owned_.clear();
    ids_.clear();
  }

  int32_t size() const { return static_cast<int32_t>(ids_.size()); }
  std::span<const PageId> ids() const { return ids_; }

 private:
  std::vector<PageRef> owned_;
  std::vector<PageId> ids_;  // Of owned_: what a forward wants to see.
};

}  // namespace invar::cache
