// KnownRecords: which records one tier is known to hold: pages by key, states by the chain they hang on.
//   A tier of our own (ram, disk): exactly what it holds. It is fed by the inventory, by what is written and by what
//   the tier says has gone (Tier::TakeGone), so the tier's budget bounds it. A shared tier: what was written or found
//   lately. Records there expire and others drop them, so nothing is believed for ever; beyond `records_max` all is
//   forgotten, since it can be asked for again.
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

class KnownRecords {
 public:
  struct State {
    std::vector<TokenId> tail;  // Tokens of the page it lies in.
    TierKey key{};
  };

  explicit KnownRecords(const size_t records_max) : records_max_(records_max) {}

  bool Has(const TierKey& key, const TimeNs now) const {
    const auto found = records_.find(key);
    return found != records_.end() && now < found->second.until;
  }
  // Whether it is there as well: of what is being put, that is not so yet.
  bool IsThere(const TierKey& key, const TimeNs now) const {
    const auto found = records_.find(key);
    return found != records_.end() && now < found->second.until && found->second.puts_under_way == 0;
  }
  // The states that hang on the chain of `directory`; those of them that Has() denies are no longer believed.
  std::span<const State> StatesOf(const TierKey& directory) const;

  // `until`: how long it is believed; kNever: until it is forgotten.
  void AddPage(const TierKey& key, const TierSpace& space, TimeNs until);
  void AddState(const TierKey& directory, std::span<const TokenId> tail, const TierKey& key, const TierSpace& space,
                TimeNs until);
  // A put of a known record has been accepted; one has succeeded. One that fails is a Forget.
  void PutBegan(const TierKey& key);
  void PutEnded(const TierKey& key);
  void Forget(const TierKey& key);
  // Cost: by what there is of the spaces, not by all that is known.
  void Forget(const TierSpaces& of);

  size_t count() const { return records_.size(); }
  // Recounts; stops the process where something differs.
  void CheckIntegrity() const;

 private:
  // Records of a space, in no order. By space, so that those that begin alike stand together.
  using Spaces = std::map<TierSpace, std::vector<const TierKey*>>;
  struct Record {
    Spaces::iterator space = {};
    size_t at = 0;  // Its place among those of its space.
    TimeNs until = 0;
    int32_t puts_under_way = 0;
    std::optional<TierKey> directory;  // Of states.
  };
  using Records = std::unordered_map<TierKey, Record, TierKeyHash>;

  // Whether it is new.
  bool Add(const TierKey& key, const TierSpace& space, TimeNs until, std::optional<TierKey> directory);
  void Erase(Records::iterator at);

  const size_t records_max_;
  Records records_;
  Spaces spaces_;                                                        // None is empty.
  std::unordered_map<TierKey, std::vector<State>, TierKeyHash> states_;  // By directory.
};

}  // namespace invar::cache
