// LruIndex: records by key in the order of their last use, under a byte budget. What ram and disk have in common.
// Invariant: bytes() is the sum over all entries plus what is reserved for records on their way; it exceeds the budget
// only within Reserve. Threads: its owner's lock.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

template <typename Value>
class LruIndex {
 public:
  struct Entry {
    TierKey key;
    int64_t bytes;
    Value value;
  };

  explicit LruIndex(const int64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  // Null where there is none; the caller may keep it until the next change.
  const Entry* Find(const TierKey& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &order_.at(found->second);
  }
  // As Find; the entry was used at `used_at`, or later.
  const Entry* Use(const TierKey& key, const TimeNs used_at) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    if (used_at <= found->second.used_at) return &order_.at(found->second);
    auto node = order_.extract(found->second);
    node.key() = found->second = UseAt(used_at);
    return &order_.insert(std::move(node)).position->second;
  }

  // Makes room for `bytes` last used at `used_at` and counts them as taken; gives the entries that had to go, oldest
  // first. False: more than the budget, or than reservations of others and what was used later leave of it; nothing is
  // changed then.
  [[nodiscard]] bool Reserve(const int64_t bytes, const TimeNs used_at, std::vector<Entry>& evicted) {
    int64_t missing = bytes_ + bytes - budget_bytes_;
    for (auto at = order_.begin(); missing > 0; ++at) {
      if (at == order_.end() || at->first.used_at > used_at) return false;
      missing -= at->second.bytes;
    }
    while (bytes_ + bytes > budget_bytes_) evicted.push_back(Evict());
    reserved_ += bytes;
    bytes_ += bytes;
    return true;
  }
  // Gives a reservation back.
  void Cancel(const int64_t bytes) {
    Check(bytes <= reserved_, "no more is given back than was reserved", bytes, reserved_);
    reserved_ -= bytes;
    bytes_ -= bytes;
  }
  // Turns a reservation of entry.bytes into an entry; gives the one it replaces.
  std::optional<Entry> Commit(Entry entry, const TimeNs used_at) {
    Check(entry.bytes <= reserved_, "no more is committed than was reserved", entry.bytes, reserved_);
    std::optional<Entry> replaced = Remove(entry.key);
    reserved_ -= entry.bytes;
    const LastUse use = UseAt(used_at);
    places_.emplace(entry.key, use);
    order_.emplace(use, std::move(entry));
    return replaced;
  }

  // Whether it was there.
  std::optional<Entry> Remove(const TierKey& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return std::nullopt;
    return Take(order_.find(found->second));
  }
  // Oldest entries of at least `bytes` together, or all that were used no later than `used_at`: for a disk that is full
  // below the budget.
  std::vector<Entry> EvictOldest(const int64_t bytes, const TimeNs used_at) {
    std::vector<Entry> evicted;
    for (int64_t freed = 0; freed < bytes && !order_.empty() && order_.begin()->first.used_at <= used_at;) {
      freed += order_.begin()->second.bytes;
      evicted.push_back(Evict());
    }
    return evicted;
  }
  // Takes the entries for which `goes`(entry).
  template <typename Goes>
  std::vector<Entry> RemoveIf(const Goes& goes) {
    std::vector<Entry> removed;
    for (auto at = order_.begin(); at != order_.end();) {
      const auto next = std::next(at);
      if (goes(at->second)) removed.push_back(Take(at));
      at = next;
    }
    return removed;
  }

  // As Remove, of what is damaged: it has gone without the caller's doing, as what is evicted has.
  void Lose(const TierKey& key) {
    if (Remove(key)) gone_.push_back(key);
  }
  // Keys of what was evicted or lost since the last call.
  std::vector<TierKey> TakeGone() { return std::exchange(gone_, {}); }

  // Calls visit(entry), oldest use first.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [use, entry] : order_) visit(entry);
  }
  // Of all uses whose time was said.
  TimeNs latest() const { return latest_; }
  int64_t count() const { return static_cast<int64_t>(order_.size()); }
  int64_t bytes() const { return bytes_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t evictions() const { return evictions_; }

 private:
  // What was used at one time stands in the order in which it came.
  struct LastUse {
    TimeNs used_at;
    uint64_t tie;
    auto operator<=>(const LastUse&) const = default;
  };
  using Order = std::map<LastUse, Entry>;

  LastUse UseAt(const TimeNs used_at) {
    if (used_at != TierRecord::kJustNow) latest_ = std::max(latest_, used_at);
    return {used_at == TierRecord::kJustNow ? latest_ : used_at, ++ties_};
  }

  Entry Evict() {
    ++evictions_;
    gone_.push_back(order_.begin()->second.key);
    return Take(order_.begin());
  }
  Entry Take(const typename Order::iterator place) {
    Entry entry = std::move(place->second);
    bytes_ -= entry.bytes;
    places_.erase(entry.key);
    order_.erase(place);
    return entry;
  }

  const int64_t budget_bytes_;
  int64_t bytes_ = 0;
  int64_t reserved_ = 0;
  int64_t evictions_ = 0;
  TimeNs latest_ = 0;  // Use of all; clocks begin after it, so that what is committed at 0 is from before.
  uint64_t ties_ = 0;
  std::vector<TierKey> gone_;
  Order order_;  // Oldest use first.
  std::unordered_map<TierKey, LastUse, TierKeyHash> places_;
};

}  // namespace invar::cache
