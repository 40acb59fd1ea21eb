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

// Weight x tokens of the planner in tokens, weight in requests.
double InOnes(const int64_t weight) { return static_cast<double>(weight) / static_cast<double>(kWeightOne); }

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
      clock_(options.clock),
      planner_({.places = options.places}, placement_, executor) {}

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
  const TimeNs begin = Now();
  planner_.ObserveOverlap(segment.key, {.length = segment.to - segment.from, .depth = found.tokens - segment.from});
  plan_ns_ += Now() - begin;
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

PlanRequest CheckpointPlacer::RequestFor(const PrefixQuery& query, const PrefixMatch& match,
                                         const std::optional<ClassKey>& key, const int32_t private_from,
                                         const double price_tokens,
                                         const std::span<const CheckpointPlace> fixed) const {
  // A formula means the whole prompt, and what runs only for its state can have it too.
  const int32_t run_end = static_cast<int32_t>(query.tokens.size()) - 1;
  // Where all was there before, too: a state after the last token could not be resumed from by the same prompt.
  const int32_t shared = std::min(private_from, run_end);
  const int32_t from = traits_.reads_demand ? std::max(shared, match.state_tokens) : match.state_tokens;
  const int64_t price = std::max(kPlannedTokensMin, static_cast<int64_t>(kPlannedPriceFactor * price_tokens));
  return {.key = key,
          .resume = match.state_tokens,
          .from = from,
          .to = std::max(from, StableEnd(query)),
          .run_end = run_end,
          .fixed = fixed,
          .price = price * kWeightOne};
}

std::vector<CheckpointPlace> CheckpointPlacer::PlacesFor(const PrefixQuery& query, const PrefixMatch& match,
                                                         const std::optional<ClassKey>& key, const int32_t private_from,
                                                         const double price_tokens) {
  const std::vector<CheckpointPlace> fixed = FixedPlaces(query, match);
  const TimeNs begin = Now();
  const std::vector<Candidate> chosen = planner_.Plan(RequestFor(query, match, key, private_from, price_tokens, fixed));
  plan_ns_ += Now() - begin;
  std::vector<CheckpointPlace> places;
  for (const Candidate& candidate : chosen) places.push_back({candidate.at, candidate.kind});
  return places;
}

void CheckpointPlacer::AddTo(PlacementReport& report) const {
  const PlannerCounts counts = planner_.counts();
  report.plans = counts.plans;
  report.plan_ns = plan_ns_;
  report.priors_renewed = counts.renewals;
  report.classes = counts.classes;
}

// --- Reasons ---

PlanBasis CheckpointPlacer::BasisOf(const PrefixQuery& query, const std::optional<ClassKey>& key,
                                    const int32_t private_from, const bool learned) const {
  if (!learns_) return PlanBasis::kFormula;
  if (key.has_value()) return learned ? PlanBasis::kLearned : PlanBasis::kUnlearned;
  return StableEnd(query) <= private_from ? PlanBasis::kNothingNew : PlanBasis::kOtherParts;
}

void CheckpointPlacer::Explain(const PrefixQuery& query, const std::optional<ClassKey>& key, const int32_t private_from,
                               PlanReport& report) {
  const std::vector<CheckpointPlace> fixed = FixedPlaces(query, report.match);
  const PlanRequest request = RequestFor(query, report.match, key, private_from, report.eviction_price_tokens, fixed);
  const PlanExplanation plan = planner_.Explain(request);
  report.basis = BasisOf(query, key, private_from, plan.learned);
  report.renewing = plan.renewing;
  report.segment_begin = request.from;
  report.segment_end = request.to;
  report.price_tokens = InOnes(plan.price);
  for (const CheckpointPlace& wish : fixed) report.decisions.push_back({wish, VerdictOn(wish, request, plan)});
  for (const Candidate& candidate : plan.chosen) {
    if (candidate.kind != CheckpointKind::kPlanned) continue;
    report.decisions.push_back({{candidate.at, candidate.kind}, PlaceVerdict::kPlaced});
    ++report.planned;
  }
  if (!plan.learned) return;
  report.anchor = AnchorName(plan.anchor);
  report.requests_expected = InOnes(plan.rate);
  for (const DepthWeight& depth : plan.demand) {
    report.histogram.push_back({request.from + depth.depth, InOnes(depth.weight)});
  }
  report.cost_tokens = InOnes(plan.cost);
  report.cost_without_tokens = InOnes(plan.cost_of_fixed);
  for (const PlanExplanation::Alternative& other : plan.alternatives) {
    report.alternatives.push_back({other.policy, other.checkpoints, InOnes(other.cost)});
  }
}

// What the planner chose is the truth; why a place is not among it follows from its rules in their order.
PlaceVerdict CheckpointPlacer::VerdictOn(const CheckpointPlace& wish, const PlanRequest& request,
                                         const PlanExplanation& plan) const {
  const auto is_it = [&](const Candidate& c) { return c.at == wish.at && c.kind == wish.kind; };
  if (std::ranges::any_of(plan.chosen, is_it)) return PlaceVerdict::kPlaced;
  if (!planner_.Uses(wish.kind)) return PlaceVerdict::kUnused;
  if (wish.at <= request.resume) return PlaceVerdict::kBeforeResume;
  if (wish.at > std::max(request.to, request.run_end)) return PlaceVerdict::kPastEnd;
  if (wish.at - request.resume < planner_.options().resume_spacing) return PlaceVerdict::kNearResume;
  return PlaceVerdict::kNearOther;
}

}  // namespace invar::cache
