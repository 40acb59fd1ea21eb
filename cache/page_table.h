// The pages one sequence holds, in the order of its positions. Giving them up is its destructor (or Clear).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/page_pool.h"

namespace invar::cache {

class PageTable {
 public:
  void Append(PageRef page) {
    ids_.push_back(page.id());
    refs_.push_back(std::move(page));
  }
  void Replace(const int32_t index, PageRef page) {
    ids_[index] = page.id();
    refs_[index] = std::move(page);
  }
  void RemoveLast() {
    refs_.pop_back();
    ids_.pop_back();
  }
  void Clear() {
    refs_.clear();
    ids_.clear();
  }

  int32_t size() const { return static_cast<int32_t>(ids_.size()); }
  std::span<const PageId> ids() const { return ids_; }
  const PageRef& ref(const int32_t index) const { return refs_[index]; }

 private:
  std::vector<PageRef> refs_;
  std::vector<PageId> ids_;  // Of refs_: what a forward wants to see.
};

}  // namespace invar::cache
