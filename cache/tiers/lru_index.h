// LruIndex: records by key in the order of their last use, under a byte budget. What ram and disk have in common.
// Invariant: bytes() is the sum over all entries plus what is reserved for records on their way; it exceeds the budget
// only within Reserve. Threads: its owner's lock.
#pragma once

#include <cstdint>
#include <cstring>
#include <list>
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
    return found == places_.end() ? nullptr : &*found->second;
  }
  // As Find; the entry becomes the most recently used.
  const Entry* Use(const TierKey& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second);
    return &*found->second;
  }

  // Makes room for `bytes` and counts them as taken; gives the entries that had to go, oldest first.
  // False: more than the budget, or than reservations of others leave of it; nothing is changed then.
  [[nodiscard]] bool Reserve(const int64_t bytes, std::vector<Entry>& evicted) {
    if (bytes > budget_bytes_ - reserved_) return false;
    while (bytes_ + bytes > budget_bytes_) evicted.push_back(Take(order_.begin()));
    evictions_ += static_cast<int64_t>(evicted.size());
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
  // Turns a reservation of entry.bytes into an entry, the most recently used; gives the one it replaces.
  std::optional<Entry> Commit(Entry entry) {
    Check(entry.bytes <= reserved_, "no more is committed than was reserved", entry.bytes, reserved_);
    std::optional<Entry> replaced = Remove(entry.key);
    reserved_ -= entry.bytes;
    order_.push_back(std::move(entry));
    places_.emplace(order_.back().key, std::prev(order_.end()));
    return replaced;
  }

  // Whether it was there.
  std::optional<Entry> Remove(const TierKey& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return std::nullopt;
    return Take(found->second);
  }
  // Oldest entries of at least `bytes` together, or all: for a disk that is full below the budget.
  std::vector<Entry> EvictOldest(const int64_t bytes) {
    std::vector<Entry> evicted;
    for (int64_t freed = 0; freed < bytes && !order_.empty();) {
      freed += order_.front().bytes;
      evicted.push_back(Take(order_.begin()));
    }
    evictions_ += static_cast<int64_t>(evicted.size());
    return evicted;
  }

  const std::list<Entry>& oldest_first() const { return order_; }
  int64_t count() const { return static_cast<int64_t>(order_.size()); }
  int64_t bytes() const { return bytes_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t evictions() const { return evictions_; }

 private:
  // Keys are SHA-256 already: their first bytes spread.
  struct FirstBytes {
    size_t operator()(const TierKey& key) const {
      size_t hash = 0;
      std::memcpy(&hash, key.data(), sizeof(hash));
      return hash;
    }
  };
  using Place = typename std::list<Entry>::iterator;

  Entry Take(const Place place) {
    Entry entry = std::move(*place);
    bytes_ -= entry.bytes;
    places_.erase(entry.key);
    order_.erase(place);
    return entry;
  }

  const int64_t budget_bytes_;
  int64_t bytes_ = 0;
  int64_t reserved_ = 0;
  int64_t evictions_ = 0;
  std::list<Entry> order_;  // Oldest use first.
  std::unordered_map<TierKey, Place, FirstBytes> places_;
};

}  // namespace invar::cache
