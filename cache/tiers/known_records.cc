// See known_records.h.
#include "cache/tiers/known_records.h"

#include <algorithm>
#include <utility>

namespace invar::cache {

std::span<const KnownRecords::State> KnownRecords::StatesOf(const TierKey& directory) const {
  const auto found = states_.find(directory);
  return found == states_.end() ? std::span<const State>() : std::span<const State>(found->second);
}

bool KnownRecords::Add(const TierKey& key, Record record) {
  if (records_.size() >= records_max_ && !records_.contains(key)) {
    records_.clear();
    states_.clear();
  }
  const auto [place, is_new] = records_.try_emplace(key, record);
  if (!is_new) place->second.until = std::max(place->second.until, record.until);
  return is_new;
}

void KnownRecords::AddPage(const TierKey& key, const TierSpace& space, const TimeNs until) {
  Add(key, {.space = space, .until = until, .directory = std::nullopt});
}

void KnownRecords::AddState(const TierKey& directory, const std::span<const TokenId> tail, const TierKey& key,
                            const TierSpace& space, const TimeNs until) {
  if (!Add(key, {.space = space, .until = until, .directory = directory})) return;
  states_[directory].push_back({{tail.begin(), tail.end()}, key});
}

KnownRecords::Records::iterator KnownRecords::Erase(const Records::iterator at) {
  if (at->second.directory.has_value()) {
    const auto states = states_.find(*at->second.directory);
    std::erase_if(states->second, [&](const State& state) { return state.key == at->first; });
    if (states->second.empty()) states_.erase(states);
  }
  return records_.erase(at);
}

void KnownRecords::Forget(const TierKey& key) {
  if (const auto found = records_.find(key); found != records_.end()) Erase(found);
}

void KnownRecords::Forget(const TierSpaces& of) {
  for (auto at = records_.begin(); at != records_.end();) {
    at = of.Cover(at->second.space) ? Erase(at) : std::next(at);
  }
}

}  // namespace invar::cache
