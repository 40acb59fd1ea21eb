// From tree and query to the planner's positions and classes, and back.
#include "cache/checkpoint/placer.h"

#include <algorithm>

#include "base/check.h"

namespace invar::cache {
namespace {

// What a planned checkpoint must be expected to save: tokens, about twice the work of restoring one on the fastest
// devices (19 MB over PCIe at 60,000 tokens/s), and as many times what one that is evicted was worth, since it is a
// guess about a prefix nobody came back to, where most others have been come back to.
constexpr int64_t kPlannedTokensMin = 100;
constexpr double kPlannedPriceFactor = 4.0;

std::shared_ptr<const PlacementPolicy> PlacementNamed(const std::string_view name) {
  std::shared_ptr<const PlacementPolicy> placement = MakePlacement(name);
  Check(placement != nullptr, "a placement has a known name", name);
  return placement;
}

// Those the request itself asks for. The planner leaves out what the placement does not use.
std::vector<CheckpointPlace> FixedPlaces(const PrefixQuery& query, const PrefixMatch& match) {
  std::vector<CheckpointPlace> places;
  for (const int32_t hint : query.hints) places.push_back({hint, CheckpointKind::kHint});
  if (match.kv_tokens > match.state_tokens) places.push_back({match.kv_tokens, CheckpointKind::kBranch});
  places.push_back({StableEnd(query), CheckpointKind::kPromptEnd});
  return places;
}

}  // namespace

CheckpointPlacer::CheckpointPlacer(const PlacerOptions& options, RadixTree& tree, PlanExecutor& executor)
    : tree_(tree),
      placement_(PlacementNamed(options.placement)),
      traits_(placement_->traits()),
      learns_(options.learns && traits_.reads_demand),
      planner_({.slots = options.slots}, placement_, executor) {}

std::optional<ClassKey> CheckpointPlacer::ClassOf(const PrefixQuery& query, const Match& found) const {
  const int32_t length = StableEnd(query) - found.tokens;
  if (!learns_ || length < 1 || (!found.nodes.empty() && found.nodes.back()->end != found.tokens)) return std::nullopt;
  return KeyOf(query.scope, found.nodes.empty() ? nullptr : found.nodes.back(), length);
}

// Of `length` tokens after `trunk`, or (null) from the start on.
ClassKey CheckpointPlacer::KeyOf(const Scope& scope, const Node* const trunk, const int32_t length) const {
  const int64_t root = tree_.RootId(scope);
  return {.space = static_cast<uint64_t>(root),
          .trunk = trunk == nullptr ? root : trunk->id,
          .size_bucket = SizeBucket(length)};
}

void CheckpointPlacer::ObserveOverlap(const Match& found) {
  if (!learns_ || found.nodes.empty() || !found.nodes.back()->segment.has_value()) return;
  const PrivateSegment& segment = *found.nodes.back()->segment;
  if (found.tokens <= segment.from || found.tokens > segment.to) return;
  planner_.ObserveOverlap(segment.key, {.length = segment.to - segment.from, .depth = found.tokens - segment.from});
}

void CheckpointPlacer::ObserveEntry(const Scope& scope, const std::span<const TokenId> tokens, const int32_t from,
                                    const int32_t to) {
  if (!learns_ || to <= from) return;
  const ClassKey key = KeyOf(scope, from == 0 ? nullptr : &tree_.NodeAt(scope, tokens, from), to - from);
  planner_.ObserveEntry(key);
  for (Node* node = &tree_.NodeAt(scope, tokens, to); !node->is_root() && node->begin >= from; node = node->parent) {
    node->segment = PrivateSegment{key, from, to};
  }
}

std::vector<CheckpointPlace> CheckpointPlacer::PlacesFor(const PrefixQuery& query, const PrefixMatch& match,
                                                         const std::optional<ClassKey>& key, const int32_t private_from,
                                                         const double price_tokens) {
  const std::vector<CheckpointPlace> fixed = FixedPlaces(query, match);
  // A formula means the whole prompt, and what runs only for its state can have it too.
  const int32_t from = traits_.reads_demand ? std::max(private_from, match.state_tokens) : match.state_tokens;
  const int64_t price = std::max(kPlannedTokensMin, static_cast<int64_t>(kPlannedPriceFactor * price_tokens));
  std::vector<CheckpointPlace> places;
  for (const Candidate& candidate : planner_.Plan({.key = key,
                                    .resume = match.state_tokens,
                                    .from = from,
                                    .to = std::max(from, StableEnd(query)),
                                    .run_end = static_cast<int32_t>(query.tokens.size()) - 1,
                                    .fixed = fixed,
                                    .price = price * kWeightOne})) {
    places.push_back({candidate.at, candidate.kind});
  }
  return places;
}

}  // namespace invar::cache
