// DropLog: which spaces a store was told to drop, and so which records are void: those of the space that were put
// before. A Put that is still on its way when the drop comes asks before it commits, and a store whose records outlive
// the process keeps the log as long as one of them may lie around. Threads: its owner's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/tiers/tier.h"

namespace invar::cache {

class DropLog {
 public:
  static constexpr size_t kDropsMax = 4096;

  struct Drop {
    TierSpaces of;
    uint64_t sequence = 0;  // Of the drop; what was put before it has a lower one.
  };

  void Add(const TierSpaces& of, const uint64_t sequence) {
    std::erase_if(drops_, [&](const Drop& drop) { return of.Cover(drop.of) && drop.sequence < sequence; });
    drops_.push_back({of, sequence});
    // To drop more than was asked is always right, these are caches; to keep no limit is not.
    if (drops_.size() > kDropsMax) drops_ = {{.of = {}, .sequence = sequence}};
  }
  bool Voids(const TierSpace& space, const uint64_t sequence) const {
    return std::ranges::any_of(drops_,
                               [&](const Drop& drop) { return sequence < drop.sequence && drop.of.Cover(space); });
  }
  const std::vector<Drop>& drops() const { return drops_; }

 private:
  std::vector<Drop> drops_;
};

}  // namespace invar::cache
