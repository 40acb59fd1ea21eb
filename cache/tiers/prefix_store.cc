// See prefix_store.h.
#include "cache/tiers/prefix_store.h"

#include <algorithm>

#include "cache/tiers/prefix_keys.h"

namespace invar::cache {
namespace {

// What a tier holds from before.
void LearnInventory(KnownTier& tier, const StateShape& shape) {
  for (const TierRecord& record : tier.tier().Inventory()) {
    if (IsPageHeader(record.header)) {
      if (record.payload_bytes == shape.page_bytes) tier.known().AddPage(record.key, record.space, kNever);
    } else if (const std::optional<StateName> state = ReadStateHeader(record.header); state.has_value()) {
      tier.known().AddState(DirectoryKey(state->chain_before), state->tail, record.key, record.space, kNever);
    }
  }
}

std::vector<KnownTier> Know(std::vector<std::unique_ptr<Tier>> tiers, const StateShape& shape) {
  std::vector<KnownTier> known;
  for (std::unique_ptr<Tier>& tier : tiers) LearnInventory(known.emplace_back(std::move(tier)), shape);
  return known;
}

}  // namespace

PrefixStore::PrefixStore(const PrefixStoreOptions& options, std::vector<std::unique_ptr<Tier>> tiers,
                         std::function<void()> wake)
    : events_(std::make_shared<TierEvents>(std::move(wake))),
      tiers_(Know(std::move(tiers), options.shape)),
      writer_(
          {.identity = options.identity, .copy_bytes_max = options.copy_bytes_max, .deadline = options.deadlines.write},
          tiers_, events_),
      loader_({.shape = options.shape,
               .identity = options.identity,
               .copy_bytes_max = options.copy_bytes_max,
               .deadline = options.deadlines.read},
              tiers_, events_),
      drops_(tiers_, events_, options.deadlines.write) {}

PrefixStore::~PrefixStore() { events_->Close(); }

bool PrefixStore::outlives_process() const {
  return std::ranges::any_of(tiers_, [](const KnownTier& tier) { return tier.tier().outlives_process(); });
}

bool PrefixStore::is_paused() const {
  return std::ranges::any_of(tiers_, [](const KnownTier& tier) { return tier.tier().is_paused(); });
}

void PrefixStore::Work(const TimeNs now) {
  next_work_ = kNever;
  for (const KnownTier& tier : tiers_) next_work_ = std::min(next_work_, tier.tier().Poll(now));
  events_->RunAll();
  next_work_ = std::min(next_work_, drops_.Retry(now));
}

void PrefixStore::Drop(const FlushOptions& of, const TimeNs now) {
  loader_.Drop(of);
  drops_.Drop(SpacesOf(of), now);
}

void PrefixStore::CheckIntegrity() const {
  for (const KnownTier& tier : tiers_) tier.known().CheckIntegrity();
  loader_.CheckIntegrity();
  events_->CheckIntegrity();
}

std::vector<std::pair<std::string_view, TierStats>> PrefixStore::Stats() const {
  std::vector<std::pair<std::string_view, TierStats>> stats;
  for (const KnownTier& tier : tiers_) stats.emplace_back(tier.tier().name(), tier.tier().Stats());
  return stats;
}

}  // namespace invar::cache
