// The pages one sequence holds, in the order of its positions. Giving them up is its destructor (or Clear).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
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
  void RemoveFirst(const int32_t count) {
    refs_.erase(refs_.begin(), refs_.begin() + count);
    ids_.erase(ids_.begin(), ids_.begin() + count);
  }
  void Prepend(std::vector<PageRef> pages) {
    for (size_t i = 0; i < pages.size(); ++i) ids_.insert(ids_.begin() + static_cast<ptrdiff_t>(i), pages[i].id());
    refs_.insert(refs_.begin(), std::make_move_iterator(pages.begin()), std::make_move_iterator(pages.end()));
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
