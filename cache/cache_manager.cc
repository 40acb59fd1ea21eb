// The calls of cache_manager.h: the cache in memory, the duel of eviction orders around it, and the tiers below.
#include "cache/cache_manager.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "cache/checkpoint/plan_thread.h"
#include "cache/checkpoint/planner.h"
#include "cache/evict/orders.h"
#include "cache/prefix/duel_directories.h"
#include "cache/prefix/prefix_cache.h"
#include "cache/prefix/tier_link.h"

namespace invar::cache {

namespace {

// The registry's own copy of `name`, which outlives every report.
std::string_view NameOf(const std::string_view name) {
  const auto names = EvictionOrderNames();
  const auto place = std::find(names.begin(), names.end(), name);
  Check(place != names.end(), "an eviction order has a known name", name);
  return *place;
}

std::unique_ptr<PlanExecutor> MakeExecutor(const CacheOptions& options) {
  if (options.plans && options.plans_on_a_thread) return std::make_unique<PlanThread>();
  return std::make_unique<InlinePlanExecutor>();
}

}  // namespace

struct CacheManager::Impl {
  Impl(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers)
      : tiers(options, std::move(tiers)),
        executor(MakeExecutor(options)),
        duel(options.tuning.eviction == kDuelName ? std::make_unique<DuelDirectories>(options) : nullptr),
        order_name(duel == nullptr ? NameOf(options.tuning.eviction) : std::string_view()),
        order(duel == nullptr ? MakeEvictionOrder(order_name) : nullptr),
        memory(options, duel != nullptr ? duel->winner() : *order, *executor, &this->tiers) {}

  TierLink tiers;
  const std::unique_ptr<PlanExecutor> executor;  // Before the planner in it.
  const std::unique_ptr<DuelDirectories> duel;   // Either this
  const std::string_view order_name;             // or one order.
  const std::unique_ptr<EvictionOrder> order;
  PrefixCache memory;
  int64_t flushes_of_all = 0;
  std::map<std::string, int64_t> flushes_of_one;  // By tenant.
};

CacheManager::CacheManager(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers)
    : impl_(std::make_unique<Impl>(options, std::move(tiers))) {}
CacheManager::~CacheManager() = default;

std::optional<int64_t> CacheManager::Prefetch(const PrefixQuery& query, const double tokens_per_second,
                                              const TimeNs now) {
  return impl_->tiers.Prefetch(impl_->memory, query, tokens_per_second, now);
}

std::vector<Arrival> CacheManager::TakeArrivals(const TimeNs now) {
  return impl_->tiers.TakeArrivals(impl_->memory, now);
}

TimeNs CacheManager::next_arrival() const { return impl_->tiers.next_arrival(); }

PersistReport CacheManager::Persist(const Clock& clock, const TimeNs deadline, const std::stop_token& hurry) {
  return impl_->tiers.Persist(impl_->memory, clock, deadline, hurry);
}

PrefixMatch CacheManager::Lookup(const PrefixQuery& query) const { return impl_->memory.Lookup(query); }

std::optional<PrefixImage> CacheManager::CopyCached(const PrefixQuery& query, const int32_t first_page,
                                                    const TimeNs now) {
  return impl_->memory.CopyCached(query, first_page, now);
}

bool CacheManager::Adopt(const Scope& scope, const std::span<const TokenId> tokens, const PrefixImage& image,
                         const TimeNs now) {
  return impl_->memory.Adopt(scope, tokens, image, now);
}

int32_t CacheManager::LiveSharedPages(const PrefixQuery& query) const { return impl_->memory.LiveSharedPages(query); }

PrefixLease CacheManager::Acquire(const PrefixQuery& query, const TimeNs now) {
  if (impl_->duel != nullptr && impl_->memory.has_evicted() && query.read && query.write && query.entry == nullptr) {
    impl_->duel->PlayPrompt(query, now);
    impl_->memory.Follow(impl_->duel->winner());
  }
  return impl_->memory.Acquire(query, now);
}

void CacheManager::Extend(PrefixLease& lease, const int32_t end, const TimeNs now) {
  impl_->memory.Extend(lease, end, now);
}

void CacheManager::Emit(PrefixLease& lease, const int32_t first, const int32_t end, const TimeNs now,
                        std::vector<StateEmission>& out) {
  impl_->memory.Emit(lease, first, end, now, out);
}

void CacheManager::Commit(PrefixLease& lease, const std::span<const TokenId> computed, const TimeNs now) {
  impl_->memory.Commit(lease, computed, now);
}

void CacheManager::GiveUpPages(PrefixLease& lease, const std::span<const TokenId> computed, const int32_t pages,
                               const TimeNs now) {
  impl_->memory.GiveUpPages(lease, computed, pages, now);
}

std::vector<PageRef> CacheManager::TakePages(const int32_t count, const TimeNs now) {
  return impl_->memory.TakePages(count, now);
}

void CacheManager::TakeBackPages(PrefixLease& lease, std::vector<PageRef> pages) {
  impl_->memory.TakeBackPages(lease, std::move(pages));
}

ByteClaim CacheManager::Reserve(const int64_t bytes, const TimeNs now) { return impl_->memory.Reserve(bytes, now); }

void CacheManager::Release(PrefixLease lease, const std::span<const TokenId> computed, const CheckpointKind kind,
                           const TimeNs now) {
  if (impl_->duel != nullptr && lease.publishes() && !computed.empty()) {
    impl_->duel->PlayEnd(lease.scope(), computed, kind, now);
  }
  impl_->memory.Release(std::move(lease), computed, kind, now);
}

FlushReport CacheManager::Flush(const FlushOptions& what, const TimeNs now) {
  const FlushReport freed = impl_->memory.Flush(what);
  ++(what.tenant.has_value() ? impl_->flushes_of_one[*what.tenant] : impl_->flushes_of_all);
  if (what.part == CachedPart::kAll) impl_->tiers.Drop(what, now);
  if (impl_->duel != nullptr) impl_->duel->Flush(what);
  return freed;
}

int64_t CacheManager::flushes(const std::string& tenant) const {
  const auto of_one = impl_->flushes_of_one.find(tenant);
  return impl_->flushes_of_all + (of_one == impl_->flushes_of_one.end() ? 0 : of_one->second);
}

const CacheMemory& CacheManager::memory() const { return impl_->memory.memory(); }

PlacementReport CacheManager::Report() const {
  PlacementReport report = impl_->memory.Report();
  report.eviction_order = impl_->duel != nullptr ? impl_->duel->winner_name() : impl_->order_name;
  report.eviction_orders = EvictionOrderNames();
  impl_->tiers.AddTo(report);
  return report;
}

void CacheManager::Continue(TreeWalk& walk, const int32_t nodes_max) const { impl_->memory.Continue(walk, nodes_max); }

PlanReport CacheManager::ExplainPlan(const PrefixQuery& query) { return impl_->memory.Explain(query); }

int64_t CacheManager::DeadKvBytes() const { return impl_->memory.DeadKvBytes(); }

void CacheManager::CheckIntegrity() const {
  impl_->memory.CheckIntegrity();
  if (impl_->duel != nullptr) impl_->duel->CheckIntegrity();
  impl_->tiers.CheckIntegrity();
}

}  // namespace invar::cache
