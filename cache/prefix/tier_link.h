// TierLink: what goes between memory and the cache's tiers. Whatever memory gives up is written, what a request lacks
// is looked for and put into the tree; keys, records and copies are PrefixStore's. Threads: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cache/arrival.h"
#include "cache/cache_options.h"
#include "cache/evict/evictor.h"
#include "cache/persist_report.h"
#include "cache/placement_report.h"
#include "cache/prefix/prefix_cache.h"
#include "cache/tiers/prefix_store.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

class TierLink final : public EvictionListener {
 public:
  // `tiers`: the fastest first.
  TierLink(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers);

  bool empty() const { return store_.empty(); }

  // As the calls of cache_manager.h.
  std::optional<int64_t> Prefetch(const PrefixCache& memory, const PrefixQuery& query, double tokens_per_second,
                                  TimeNs now);
  std::vector<Arrival> TakeArrivals(PrefixCache& memory, TimeNs now);
  TimeNs next_arrival() const { return store_.next_work(); }
  PersistReport Persist(const PrefixCache& memory, const Clock& clock, TimeNs deadline, const std::stop_token& hurry);
  void Drop(const FlushOptions& of, TimeNs now) { store_.Drop(of, now); }

  void Evicting(Node& node, TimeNs now) override { Write(node, now); }

  void AddTo(PlacementReport& report) const;
  void CheckIntegrity() const { store_.CheckIntegrity(); }

 private:
  std::optional<OutgoingPrefix> PrefixTo(Node& node);
  bool Write(Node& node, TimeNs now);
  bool IsStored(Node& node, TimeNs now);
  int64_t CountStored(std::span<Node* const> nodes, const Clock& clock);
  // Grows where a tier takes nothing because it is left alone.
  int64_t times_left_alone() const;
  bool AwaitTiers(const Clock& clock, TimeNs deadline, const std::stop_token& hurry) const;
  // How many of `nodes`, from the first on, were given what there was time for.
  int64_t WriteAll(std::span<Node* const> nodes, const Clock& clock, TimeNs deadline, const std::stop_token& hurry);
  bool Settle(const Clock& clock, TimeNs deadline, const std::stop_token& hurry);
  std::vector<PageName> NamesAlong(std::span<Node* const> path, std::span<const TokenId> tokens);

  // Set at construction.
  const std::string identity_;

  PrefixStore store_;
  std::map<int64_t, std::string_view> brought_;  // By ticket: the tier of what came of loads that go on.
};

}  // namespace invar::cache
