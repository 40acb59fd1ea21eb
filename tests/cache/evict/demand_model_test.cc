// What the model learns from returns it sees, held to what the nodes were made to do.
#include "cache/evict/demand_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tools/sim/random.h"

namespace invar::cache {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

NodeUse EndAt(const TimeNs now, const int32_t turns = 0) {
  NodeUse use;
  DemandModel::Begin(use, UseOrigin::kEnd, now, turns);
  return use;
}

void Census(DemandModel& model, const std::vector<NodeUse>& nodes, const TimeNs now) {
  model.StartCensus();
  for (const NodeUse& use : nodes) model.Count(use, now);
  model.EndCensus();
}

// `count` nodes of which each third is come back to after `gap` and the others never; seen at time `end`.
DemandModel Taught(const int count, const TimeNs gap, const TimeNs end) {
  DemandModel model;
  std::vector<NodeUse> waiting;
  for (int i = 0; i < count; ++i) {
    NodeUse use = EndAt(0);
    if (i % 3 == 0) {
      model.Hit(use, gap);
    } else {
      waiting.push_back(use);
    }
  }
  Census(model, waiting, end);
  return model;
}

TEST(DemandModel, LearnsWhichShareIsComeBackTo) {
  const DemandModel model = Taught(3000, 100 * kSecond, 10'000 * kSecond);
  EXPECT_NEAR(model.Expected(EndAt(0), 0).requests, 1.0 / 3, 0.03);
  // Who has waited long in vain is not waited for any more.
  EXPECT_LT(model.Expected(EndAt(0), 1000 * kSecond).requests, 0.1);
}

TEST(DemandModel, IsWorthMostShortlyBeforeReturnsAreDue) {
  const DemandModel model = Taught(3000, 100 * kSecond, 10'000 * kSecond);
  const auto rate = [&](const TimeNs age) { return model.Expected(EndAt(0), age).per_second; };
  EXPECT_GT(rate(80 * kSecond), 2 * rate(0));
  EXPECT_GT(rate(80 * kSecond), 10 * rate(500 * kSecond));
}

TEST(DemandModel, CountsNodesThatWentAwayOnlyForAsLongAsTheyWereSeen) {
  // All come back after 100 s, but most go away after 10 s: that says nothing about later.
  DemandModel model;
  for (int i = 0; i < 3000; ++i) {
    NodeUse use = EndAt(0);
    if (i % 10 == 0) {
      model.Hit(use, 100 * kSecond);
    } else {
      model.Fall(use, nullptr, 10 * kSecond);
    }
  }
  Census(model, {}, 100 * kSecond);
  EXPECT_GT(model.Expected(EndAt(0), 0).requests, 0.85);
}

TEST(DemandModel, TellsLaterTurnsFromFirstOnes) {
  DemandModel model;
  std::vector<NodeUse> waiting;
  for (int i = 0; i < 2000; ++i) {
    NodeUse use = EndAt(0, i % 2 == 0 ? 0 : 3);
    if (i % 2 == 1 && i % 10 != 1) {
      model.Hit(use, 60 * kSecond);
    } else {
      waiting.push_back(use);
    }
  }
  Census(model, waiting, 3600 * kSecond);
  EXPECT_LT(model.Expected(EndAt(0, 0), 0).requests, 0.1);
  EXPECT_NEAR(model.Expected(EndAt(0, 3), 0).requests, 0.8, 0.05);
}

TEST(DemandModel, DemandOfANodeThatGoesFallsToWhatIsAboveAndFades) {
  DemandModel model = Taught(3000, 100 * kSecond, 10'000 * kSecond);
  const NodeUse leaf = EndAt(0);
  NodeUse above;
  const Prospect before = model.Expected(leaf, 50 * kSecond);
  model.Fall(leaf, &above, 50 * kSecond);
  const Prospect after = model.Expected(above, 50 * kSecond);
  EXPECT_DOUBLE_EQ(after.requests, before.requests);
  EXPECT_DOUBLE_EQ(after.per_second, before.per_second);
  EXPECT_LT(model.Expected(above, 5000 * kSecond).requests, 0.01 * before.requests);
}

TEST(DemandModel, APlaceThatIsOnTheWayOnlyHasNone) {
  const DemandModel model = Taught(300, kSecond, 100 * kSecond);
  EXPECT_EQ(model.Expected(NodeUse{}, kSecond).requests, 0);
  EXPECT_EQ(model.Expected(NodeUse{}, kSecond).per_second, 0);
}

TEST(DemandModel, FirstHitOfAPlaceMakesItABranch) {
  DemandModel model;
  NodeUse use;
  model.Hit(use, kSecond);
  EXPECT_EQ(use.origin, UseOrigin::kBranch);
  EXPECT_EQ(use.hits, 0);
  model.Hit(use, 2 * kSecond);
  EXPECT_EQ(use.hits, 1);
  EXPECT_EQ(use.met_at, 2 * kSecond);
}

TEST(DemandModel, NumbersStayFiniteAndInRange) {
  sim::Random random(7);
  DemandModel model;
  for (int i = 0; i < 20'000; ++i) {
    NodeUse use = EndAt(0, random.Between(0, 8));
    const TimeNs gap = static_cast<TimeNs>(std::exp2(random.Between(0, 59)));
    if (random.Between(0, 1) == 0) {
      model.Hit(use, gap);
    } else {
      model.Fall(use, nullptr, gap);
    }
    if (i % 1000 == 0) Census(model, {use}, gap);
    const Prospect prospect = model.Expected(use, use.met_at + static_cast<TimeNs>(std::exp2(random.Between(0, 59))));
    ASSERT_GE(prospect.requests, 0);
    ASSERT_LE(prospect.requests, 1);
    ASSERT_GE(prospect.per_second, 0);
    ASSERT_TRUE(std::isfinite(prospect.per_second));
  }
}

}  // namespace
}  // namespace invar::cache
