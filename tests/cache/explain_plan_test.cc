// ExplainPlan against what then happens: the places it names are the places where checkpoints come to lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "cache/cache_manager.h"
#include "tests/cache/token_lists.h"
#include "tools/sim/random.h"

namespace invar::cache {
namespace {

constexpr StateShape kHybrid{.page_bytes = 64, .state_bytes = 256};

CacheTuning PlacedBy(const std::string& placement) {
  CacheTuning tuning = TuningOf({});
  tuning.placement = placement;
  return tuning;
}

class Rig {
 public:
  explicit Rig(const StateShape& shape = kHybrid, const std::string& placement = "optimal-dp")
      : cache_({.shape = shape, .budget_bytes = 1 << 24, .slots_without_bytes = 8, .tuning = PlacedBy(placement)}) {}

  PlanReport Explain(const Tokens& tokens, const std::vector<int32_t>& hints = {}) {
    return cache_.ExplainPlan(QueryOf(tokens, hints));
  }
  void Run(const Tokens& tokens, const std::vector<int32_t>& hints = {}) {
    PrefixLease lease = cache_.Acquire(QueryOf(tokens, hints), ++now_);
    const auto n = static_cast<int32_t>(tokens.size());
    cache_.Extend(lease, n, ++now_);
    std::vector<StateEmission> emissions;
    cache_.Emit(lease, lease.match().state_tokens, n, now_, emissions);
    cache_.Commit(lease, tokens, now_);
    cache_.CheckIntegrity();
  }
  CacheManager& cache() { return cache_; }

 private:
  static PrefixQuery QueryOf(const Tokens& tokens, const std::vector<int32_t>& hints) {
    const auto n = static_cast<int32_t>(tokens.size());
    return {.scope = {}, .tokens = tokens, .prompt_tokens = n, .resume_limit = n - 1, .hints = hints};
  }

  TimeNs now_ = 0;
  CacheManager cache_;
};

std::vector<int32_t> PlacedIn(const PlanReport& report) {
  std::vector<int32_t> positions;
  for (const PlaceDecision& decision : report.decisions) {
    if (decision.verdict == PlaceVerdict::kPlaced) positions.push_back(decision.place.at);
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}
std::vector<int32_t> ThereIn(const PlanReport& report) {
  std::vector<int32_t> positions;
  for (const CheckpointPlace& place : report.there) positions.push_back(place.at);
  return positions;
}
PlaceVerdict VerdictAt(const PlanReport& report, const int32_t at) {
  for (const PlaceDecision& decision : report.decisions) {
    if (decision.place.at == at) return decision.verdict;
  }
  ADD_FAILURE() << "nothing asks for a checkpoint at " << at;
  return {};
}

TEST(ExplainPlan, SaysWhyAPlaceGetsNoCheckpoint) {
  Rig rig;
  rig.Run(Join(Ids(0, 200), Ids(10'000, 100)));
  rig.Run(Join(Ids(0, 200), Ids(20'000, 100)));  // Leaves one where they part.
  const PlanReport report = rig.Explain(Join(Ids(0, 200), Ids(30'000, 400)), {50, 204, 300, 340, 1000});
  EXPECT_EQ(report.match.kv_tokens, 200);
  EXPECT_EQ(report.match.state_tokens, 200);
  EXPECT_THAT(ThereIn(report), testing::ElementsAre(200));
  EXPECT_EQ(VerdictAt(report, 50), PlaceVerdict::kBeforeResume);
  EXPECT_EQ(VerdictAt(report, 204), PlaceVerdict::kNearResume);
  EXPECT_EQ(VerdictAt(report, 300), PlaceVerdict::kPlaced);
  EXPECT_EQ(VerdictAt(report, 340), PlaceVerdict::kNearOther);
  EXPECT_EQ(VerdictAt(report, 1000), PlaceVerdict::kPastEnd);
  EXPECT_EQ(VerdictAt(report, 599), PlaceVerdict::kPlaced) << "the end of the prompt";
}

TEST(ExplainPlan, NamesThePlacesWhereCheckpointsThenLie) {
  sim::Random random(11);
  int placed = 0;
  Rig rig;
  std::vector<Tokens> seen;
  for (int i = 1; i <= 400; ++i) {
    Tokens tokens;
    if (!seen.empty() && random.Percent(70)) {
      const Tokens& other = seen[static_cast<size_t>(random.Between(0, static_cast<int32_t>(seen.size()) - 1))];
      tokens.assign(other.begin(), other.begin() + random.Between(1, static_cast<int32_t>(other.size())));
    }
    tokens = Join(std::move(tokens), Ids(1000 * i, random.Between(1, 500)));
    std::vector<int32_t> hints;
    if (random.Percent(30)) hints.push_back(random.Between(1, static_cast<int32_t>(tokens.size()) + 50));
    const PlanReport before = rig.Explain(tokens, hints);
    rig.Run(tokens, hints);
    // Without what is learned: an overlap that this very request shows may renew what its class knows.
    std::vector<int32_t> expected = ThereIn(before);
    for (const PlaceDecision& decision : before.decisions) {
      if (decision.verdict != PlaceVerdict::kPlaced || decision.place.kind == CheckpointKind::kPlanned) continue;
      expected.push_back(decision.place.at);
      ++placed;
    }
    EXPECT_THAT(ThereIn(rig.Explain(tokens)), testing::IsSupersetOf(expected)) << "request " << i;
    seen.push_back(std::move(tokens));
  }
  EXPECT_GT(placed, 300);
}

// As of the class that is come back to at 660..740 of 1000 (cache_manager_test.cc).
TEST(ExplainPlan, TellsWhatAClassTaughtAndWhatOtherPlacementsWouldCost) {
  Rig rig;
  sim::Random random(5);
  PlanReport report;
  for (int document = 1; document <= 60; ++document) {
    const Tokens first = Ids(10'000 * document, 1000);
    report = rig.Explain(first);
    rig.Run(first);
    EXPECT_EQ(ThereIn(rig.Explain(first)), PlacedIn(report)) << "nothing is learned from a new prefix: exact";
    for (int follow = 1; follow <= 2; ++follow) {
      Tokens next(first.begin(), first.begin() + random.Between(660, 740));
      rig.Run(Join(std::move(next), Ids(10'000'000 + 100'000 * document + 1000 * follow, 200)));
    }
  }
  ASSERT_EQ(report.basis, PlanBasis::kLearned);
  EXPECT_EQ(report.segment_begin, 0);
  EXPECT_EQ(report.segment_end, 999);
  EXPECT_GE(report.price_tokens, 100);
  EXPECT_GT(report.requests_expected, 1);
  const auto planned = std::find_if(report.decisions.begin(), report.decisions.end(), [](const PlaceDecision& d) {
    return d.place.kind == CheckpointKind::kPlanned && d.verdict == PlaceVerdict::kPlaced;
  });
  ASSERT_NE(planned, report.decisions.end());
  EXPECT_GE(planned->place.at, 600);
  EXPECT_LE(planned->place.at, 740);
  // The histogram is that of the requests that came.
  double in_range = 0, all = 0;
  for (const PlanReport::Depth& depth : report.histogram) {
    all += depth.requests;
    in_range += depth.position >= 600 && depth.position <= 768 ? depth.requests : 0;
  }
  EXPECT_NEAR(all, report.requests_expected, 0.01 * report.requests_expected);
  EXPECT_GT(in_range, 0.8 * all);
  // The plan saves what it costs at least, and no placement with as many checkpoints is cheaper.
  EXPECT_LT(report.cost_tokens, report.cost_without_tokens - report.price_tokens);
  EXPECT_FALSE(report.alternatives.empty());
  const double own = report.cost_tokens + report.price_tokens * report.planned;
  for (const PlanReport::Alternative& other : report.alternatives) {
    EXPECT_GE(other.cost_tokens + report.price_tokens * other.checkpoints, own) << other.policy;
  }
}

TEST(ExplainPlan, ChangesNothing) {
  Rig rig;
  for (int i = 0; i < 20; ++i) rig.Run(Join(Ids(0, 100 + 40 * i), Ids(1000 * (i + 1), 80)));
  const PlacementReport before = rig.cache().Report();
  const int64_t used = rig.cache().memory().used_bytes();
  for (int i = 0; i < 50; ++i) (void)rig.Explain(Join(Ids(0, 20 * i), Ids(777'000, 100)), {30, 64});
  const PlacementReport after = rig.cache().Report();
  EXPECT_EQ(rig.cache().memory().used_bytes(), used);
  EXPECT_EQ(after.queries, before.queries);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.classes, before.classes);
  EXPECT_EQ(after.nodes, before.nodes);
  rig.cache().CheckIntegrity();
}

TEST(ExplainPlan, SaysWhenThereIsNothingToPlan) {
  EXPECT_EQ(Rig({.page_bytes = 64, .state_bytes = 0}).Explain(Ids(0, 300)).basis, PlanBasis::kNoState);
  EXPECT_EQ(Rig(kHybrid, "none").Explain(Ids(0, 300)).basis, PlanBasis::kNoWriting);
  EXPECT_EQ(Rig(kHybrid, "balanced").Explain(Ids(0, 300)).basis, PlanBasis::kFormula);
  Rig rig;
  EXPECT_EQ(rig.Explain(Ids(0, 300)).basis, PlanBasis::kUnlearned);
  rig.Run(Ids(0, 300));
  EXPECT_EQ(rig.Explain(Ids(0, 300)).basis, PlanBasis::kNothingNew);
  EXPECT_EQ(rig.Explain(Join(Ids(0, 100), Ids(5000, 100))).basis, PlanBasis::kOtherParts);
}

}  // namespace
}  // namespace invar::cache
