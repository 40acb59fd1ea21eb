// See known_records.h.
#include "cache/tiers/known_records.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar::cache {

std::span<const KnownRecords::State> KnownRecords::StatesOf(const TierKey& directory) const {
  const auto found = states_.find(directory);
  return found == states_.end() ? std::span<const State>() : std::span<const State>(found->second);
}

bool KnownRecords::Add(const TierKey& key, const TierSpace& space, const TimeNs until,
                       std::optional<TierKey> directory) {
  if (const auto known = records_.find(key); known != records_.end()) {
    known->second.until = std::max(known->second.until, until);
    return false;
  }
  if (records_.size() >= records_max_) {
    records_.clear();
    spaces_.clear();
    states_.clear();
  }
  const auto of = spaces_.try_emplace(space).first;
  const Record record{
      .space = of, .at = of->second.size(), .until = until, .puts_under_way = 0, .directory = std::move(directory)};
  of->second.push_back(&records_.emplace(key, record).first->first);
  return true;
}

void KnownRecords::AddPage(const TierKey& key, const TierSpace& space, const TimeNs until) {
  Add(key, space, until, std::nullopt);
}

void KnownRecords::AddState(const TierKey& directory, const std::span<const TokenId> tail, const TierKey& key,
                            const TierSpace& space, const TimeNs until) {
  if (!Add(key, space, until, directory)) return;
  states_[directory].push_back({{tail.begin(), tail.end()}, key});
}

void KnownRecords::Erase(const Records::iterator at) {
  if (at->second.directory.has_value()) {
    const auto states = states_.find(*at->second.directory);
    std::erase_if(states->second, [&](const State& state) { return state.key == at->first; });
    if (states->second.empty()) states_.erase(states);
  }
  // The last of its space takes its place there.
  const Spaces::iterator space = at->second.space;
  std::vector<const TierKey*>& keys = space->second;
  records_.find(*keys.back())->second.at = at->second.at;
  keys[at->second.at] = keys.back();
  keys.pop_back();
  if (keys.empty()) spaces_.erase(space);
  records_.erase(at);
}

void KnownRecords::PutBegan(const TierKey& key) {
  if (const auto found = records_.find(key); found != records_.end()) ++found->second.puts_under_way;
}

// Of a record that was forgotten and came back meanwhile: what succeeded is there.
void KnownRecords::PutEnded(const TierKey& key) {
  const auto found = records_.find(key);
  if (found != records_.end() && found->second.puts_under_way > 0) --found->second.puts_under_way;
}

void KnownRecords::Forget(const TierKey& key) {
  if (const auto found = records_.find(key); found != records_.end()) Erase(found);
}

void KnownRecords::Forget(const TierSpaces& of) {
  for (auto space = spaces_.lower_bound(of.space); space != spaces_.end() && of.Cover(space->first);) {
    const Spaces::iterator here = space++;  // Goes with the last of its records.
    for (size_t left = here->second.size(); left > 0; --left) Erase(records_.find(*here->second.back()));
  }
}

void KnownRecords::CheckIntegrity() const {
  Check(records_.size() <= records_max_, "no more is known than may be", records_.size());
  size_t in_spaces = 0;
  for (const auto& [space, keys] : spaces_) {
    Check(!keys.empty(), "a space has records");
    in_spaces += keys.size();
    for (size_t at = 0; at < keys.size(); ++at) {
      const auto record = records_.find(*keys[at]);
      Check(record != records_.end() && record->second.space->first == space && record->second.at == at,
            "a record is where its space has it", at);
    }
  }
  Check(in_spaces == records_.size(), "every record is of a space", in_spaces, records_.size());
  size_t states = 0;
  for (const auto& [key, record] : records_) {
    Check(record.puts_under_way >= 0, "puts end once", record.puts_under_way);
    states += record.directory.has_value() ? 1 : 0;
  }
  size_t listed = 0;
  for (const auto& [directory, of] : states_) {
    Check(!of.empty(), "a directory has states");
    listed += of.size();
    for (const State& state : of) {
      const auto record = records_.find(state.key);
      Check(record != records_.end() && record->second.directory == directory, "a state is known by its directory");
    }
  }
  Check(listed == states, "every state is in a directory, once", listed, states);
}

}  // namespace invar::cache
