// When and where the planner places: fixed candidates, what classes teach, prices, jobs that end late.
#include "cache/checkpoint/planner.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/cache/checkpoint/brute_force.h"

namespace invar::cache {
namespace {

using Kind = CheckpointKind;

class LatePlanExecutor final : public PlanExecutor {
 public:
  void Run(std::function<void()> job) override { jobs.push_back(std::move(job)); }
  void RunAll() {
    for (; !jobs.empty(); jobs.pop_front()) jobs.front()();
  }
  std::deque<std::function<void()>> jobs;
};

std::vector<int32_t> Positions(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> out;
  for (const Candidate& candidate : candidates) out.push_back(candidate.at);
  return out;
}

std::vector<Kind> Kinds(const std::vector<Candidate>& candidates) {
  std::vector<Kind> out;
  for (const Candidate& candidate : candidates) out.push_back(candidate.kind);
  return out;
}

class Planner : public testing::Test {
 protected:
  static constexpr ClassKey kKey = {.space = 1, .trunk = 2, .size_bucket = 12};

  CheckpointPlanner Make(const PlannerOptions& options = {}, const char* const policy = "optimal-dp") {
    return CheckpointPlanner(options, MakePlacement(policy), inline_);
  }
  // `entries` prefixes, each come back to `each` times at `depth` of `length`.
  static void Teach(CheckpointPlanner& planner, const int entries, const int each, const int32_t length,
                    const int32_t depth, const ClassKey& key = kKey) {
    for (int i = 0; i < entries; ++i) {
      planner.ObserveEntry(key);
      for (int j = 0; j < each; ++j) planner.ObserveOverlap(key, {.length = length, .depth = depth});
    }
    planner.CheckIntegrity();
  }
  static PlanRequest Request(const int32_t to, const int64_t price = 0) {
    return {.key = kKey, .to = to, .price = price};
  }

  InlinePlanExecutor inline_;
};

TEST_F(Planner, PlansNothingForAClassThatTaughtNothing) {
  CheckpointPlanner planner = Make();
  EXPECT_TRUE(planner.Plan(Request(8192)).empty());
  planner.ObserveEntry(kKey);
  for (int i = 0; i < 3; ++i) planner.ObserveOverlap(kKey, {.length = 8192, .depth = 4096});
  EXPECT_TRUE(planner.Plan(Request(8192)).empty()) << "three overlaps are not enough";
  planner.ObserveOverlap(kKey, {.length = 8192, .depth = 4096});
  EXPECT_FALSE(planner.Plan(Request(8192)).empty());
}

TEST_F(Planner, PlacesWhereItsClassWasComeBackTo) {
  CheckpointPlanner planner = Make({.places = 1});
  Teach(planner, 20, 2, 8192, 5000);
  const auto plan = planner.Plan(Request(8192));
  EXPECT_EQ(Positions(plan), (std::vector<int32_t>{4992}));
  EXPECT_EQ(Kinds(plan), (std::vector<Kind>{Kind::kPlanned}));
}

TEST_F(Planner, CountsDepthsFromThePrivateSegmentsStart) {
  CheckpointPlanner planner = Make({.places = 1});
  Teach(planner, 20, 2, 8192, 5000);
  PlanRequest request = Request(10'192);
  request.resume = request.from = 2000;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{6992}));
}

TEST_F(Planner, KnowsTheEndOfSegmentsOfOtherLengths) {
  SplitMix64 random(1);
  CheckpointPlanner planner = Make({.places = 1});
  for (int i = 0; i < 100; ++i) {
    const int32_t length = Pick(random, 4096, 8192);
    Teach(planner, 1, 2, length, length - 200);
  }
  const auto plan = planner.Plan(Request(6000));
  EXPECT_EQ(Positions(plan), (std::vector<int32_t>{6000 - 256}));
  EXPECT_EQ(planner.Explain(Request(6000)).anchor, Anchor::kEnd);
}

TEST_F(Planner, APriceAboveWhatIsSavedPlacesNothing) {
  CheckpointPlanner planner = Make();
  Teach(planner, 50, 2, 8192, 5000);
  size_t before = planner.Plan(Request(8192)).size();
  EXPECT_EQ(before, 8U) << "all places are free at price 0";
  for (const int64_t tokens : {100, 1000, 9000, 12'000}) {
    const size_t now = planner.Plan(Request(8192, tokens * kWeightOne)).size();
    EXPECT_LE(now, before) << tokens;
    before = now;
  }
  EXPECT_EQ(before, 0U) << "2 requests of 4,992 tokens are less than 12,000";
  EXPECT_EQ(planner.Plan(Request(8192, 5000 * kWeightOne)).size(), 1U);
}

TEST_F(Planner, EntriesNobodyComesBackToMakeCheckpointsWorthless) {
  CheckpointPlanner planner = Make();
  Teach(planner, 20, 2, 8192, 5000);
  EXPECT_FALSE(planner.Plan(Request(8192, 1000 * kWeightOne)).empty());
  Teach(planner, 1000, 0, 8192, 1);
  Teach(planner, 1, 64, 8192, 5000);  // Enough to renew.
  EXPECT_LT(planner.Explain(Request(8192)).rate, kWeightOne);
}

TEST_F(Planner, MergesFixedCandidatesByImportance) {
  CheckpointPlanner planner = Make();
  const std::vector<CheckpointPlace> fixed = {{1000, Kind::kEnd}, {980, Kind::kPromptEnd}, {500, Kind::kHint},
                                              {540, Kind::kHint}, {437, Kind::kBranch},    {100, Kind::kHint},
                                              {99, Kind::kHint},  {0, Kind::kBranch},      {1001, Kind::kHint},
                                              {700, Kind::kHint}, {764, Kind::kHint}};
  PlanRequest request = Request(1000);
  request.fixed = fixed;
  const auto plan = planner.Plan(request);
  // 500 loses to the branch at 437 (63 away), so 540 may stay; 764 is exactly far enough from 700.
  EXPECT_EQ(Positions(plan), (std::vector<int32_t>{99, 437, 540, 700, 764, 980}));
  EXPECT_EQ(Kinds(plan),
            (std::vector<Kind>{Kind::kHint, Kind::kBranch, Kind::kHint, Kind::kHint, Kind::kHint, Kind::kPromptEnd}));
}

// What comes after the part that follow-ups repeat runs too, and a caller may want a state there.
TEST_F(Planner, KeepsFixedCandidatesBeyondTheSegmentUpToTheEndOfTheRun) {
  CheckpointPlanner planner = Make({.places = 1});
  Teach(planner, 20, 2, 8192, 5000);
  const std::vector<CheckpointPlace> fixed = {{8400, Kind::kHint}, {8500, Kind::kHint}};
  PlanRequest request = Request(8192);
  request.run_end = 8450;
  request.fixed = fixed;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{4992, 8400}));
}

TEST_F(Planner, PlacesNothingRightBehindWhereItResumes) {
  CheckpointPlanner planner = Make();
  const std::vector<CheckpointPlace> fixed = {{107, Kind::kHint}, {300, Kind::kHint}};
  PlanRequest request = Request(1000);
  request.resume = request.from = 100;
  request.fixed = fixed;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{300}));
  request.resume = request.from = 99;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{107, 300}));
}

TEST_F(Planner, WithoutAClassPlacesWhatIsFixed) {
  CheckpointPlanner planner = Make();
  Teach(planner, 20, 2, 8192, 5000);
  const std::vector<CheckpointPlace> fixed = {{8000, Kind::kPromptEnd}};
  PlanRequest request = Request(8192);
  request.key.reset();
  request.fixed = fixed;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{8000}));
}

TEST_F(Planner, KeepsABranchOnTheSpanThatRunsOnlyForItsState) {
  CheckpointPlanner planner = Make();
  const std::vector<CheckpointPlace> fixed = {{600, Kind::kBranch}, {200, Kind::kHint}, {100, Kind::kHint}};
  PlanRequest request = Request(2000);
  request.resume = 100;
  request.from = 600;
  request.fixed = fixed;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{200, 600})) << "state at 100 is there already";
}

TEST_F(Planner, APolicyUsesTheKindsItSaysItDoes) {
  const std::vector<CheckpointPlace> fixed = {{500, Kind::kBranch}, {700, Kind::kHint}, {1000, Kind::kPromptEnd}};
  PlanRequest request = Request(1000);
  request.fixed = fixed;
  const auto plan = [&](const char* const policy, const int32_t places) {
    return Positions(Make({.places = places}, policy).Plan(request));
  };
  EXPECT_EQ(plan("optimal-dp", 4), (std::vector<int32_t>{500, 700, 1000}));
  EXPECT_EQ(plan("none", 4), (std::vector<int32_t>{}));
  EXPECT_EQ(plan("kv-only", 4), (std::vector<int32_t>{}));
  EXPECT_EQ(plan("end-only", 4), (std::vector<int32_t>{1000}));
  EXPECT_EQ(plan("branch-on-demand", 4), (std::vector<int32_t>{500, 1000}));
  EXPECT_EQ(plan("balanced", 4), (std::vector<int32_t>{200, 400, 600, 800, 1000}));
  request.resume = request.from = 450;
  EXPECT_EQ(plan("balanced", 4), (std::vector<int32_t>{600, 800, 1000})) << "even over the whole prompt";
}

TEST_F(Planner, PlannedOnesFillTheGapsBetweenFixedOnes) {
  CheckpointPlanner planner = Make({.places = 2});
  Teach(planner, 30, 1, 8192, 2048);
  Teach(planner, 30, 1, 8192, 6016);
  const std::vector<CheckpointPlace> fixed = {{2048, Kind::kHint}};
  PlanRequest request = Request(8192, 500 * kWeightOne);
  request.fixed = fixed;
  EXPECT_EQ(Positions(planner.Plan(request)), (std::vector<int32_t>{2048, 6016}));
}

TEST_F(Planner, ASavingIsWhatLeavingOneOutCosts) {
  SplitMix64 random(2);
  CheckpointPlanner planner = Make({.places = 5});
  for (int i = 0; i < 200; ++i) Teach(planner, 1, 2, 8192, Pick(random, 1, 8193));
  const PlanRequest request = Request(8192);
  const PlanExplanation why = planner.Explain(request);
  ASSERT_EQ(why.chosen.size(), 5U);
  for (size_t left_out = 0; left_out < why.chosen.size(); ++left_out) {
    std::vector<int32_t> others = Positions(why.chosen);
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
    EXPECT_EQ(why.chosen[left_out].saving, RecomputeCost(why.demand, others) - why.cost);
  }
}

TEST_F(Planner, ExplainsItsPlanAndTheAlternativesAtEqualPlaces) {
  SplitMix64 random(3);
  CheckpointPlanner planner = Make({.places = 4, .merge_tokens = 1});
  for (int i = 0; i < 300; ++i) Teach(planner, 1, 2, 8192, Pick(random, 1, 100) * Pick(random, 1, 80));
  const PlanRequest request = Request(8192);
  const PlanExplanation why = planner.Explain(request);
  EXPECT_TRUE(why.learned);
  EXPECT_EQ(Positions(why.chosen), Positions(planner.Plan(request)));
  EXPECT_EQ(why.alternatives.size(), PlacementNames().size());
  for (const auto& alternative : why.alternatives) {
    EXPECT_TRUE(alternative.policy != "optimal-dp" || alternative.cost == why.cost);
    // "sqrt" places so many of them, whatever it is given.
    EXPECT_TRUE(alternative.policy == "sqrt" || alternative.cost >= why.cost) << alternative.policy;
  }
  EXPECT_FALSE(planner.Explain({.key = ClassKey{.space = 9}, .to = 100}).learned);
}

TEST_F(Planner, TenantsDoNotTeachEachOther) {
  CheckpointPlanner planner = Make();
  Teach(planner, 20, 4, 8192, 5000);
  PlanRequest request = Request(8192);
  request.key->space = 99;
  EXPECT_TRUE(planner.Plan(request).empty());
}

TEST_F(Planner, RenewsOnDriftAndOtherwiseEvery64Overlaps) {
  CheckpointPlanner planner = Make();
  planner.ObserveEntry(kKey);
  const auto observe = [&](const int count, const int32_t depth) {
    for (int i = 0; i < count; ++i) planner.ObserveOverlap(kKey, {.length = 8192, .depth = depth});
    return planner.counts().renewals;
  };
  EXPECT_EQ(observe(4, 1000), 1);
  EXPECT_EQ(observe(63, 1000), 1) << "more of the same";
  EXPECT_EQ(observe(1, 1000), 2);
  EXPECT_EQ(observe(6, 6000), 2) << "less than a tenth moved";
  EXPECT_EQ(observe(3, 6000), 3);
}

TEST_F(Planner, FollowsTheOldPriorUntilAJobsAnswerIsThere) {
  LatePlanExecutor late;
  CheckpointPlanner planner({.places = 1}, MakePlacement("optimal-dp"), late);
  Teach(planner, 20, 2, 8192, 5000);
  EXPECT_EQ(late.jobs.size(), 1U) << "one job a class at a time";
  EXPECT_TRUE(planner.Plan(Request(8192)).empty());
  late.RunAll();
  EXPECT_EQ(planner.Plan(Request(8192)).size(), 1U);
}

TEST_F(Planner, AJobMayEndAfterThePlannerOrItsClass) {
  LatePlanExecutor late;
  {
    CheckpointPlanner planner({.classes_max = 1}, MakePlacement("optimal-dp"), late);
    Teach(planner, 1, 4, 8192, 5000);
    ASSERT_EQ(late.jobs.size(), 1U);
    planner.ObserveEntry({.space = 7});  // Forgets the class, then meets it anew.
    planner.ObserveEntry(kKey);
    late.RunAll();
    EXPECT_TRUE(planner.Plan(Request(8192)).empty()) << "the answer was for the forgotten class";
    planner.CheckIntegrity();
    Teach(planner, 1, 4, 8192, 5000);
  }
  ASSERT_FALSE(late.jobs.empty());
  late.RunAll();
}

TEST_F(Planner, ForgetsTheLeastRecentlyUsedClass) {
  CheckpointPlanner planner = Make({.classes_max = 2});
  const ClassKey other = {.space = 5};
  Teach(planner, 20, 2, 8192, 5000);
  Teach(planner, 20, 2, 8192, 5000, other);
  EXPECT_FALSE(planner.Plan(Request(8192)).empty());  // Used: `other` is the older one now.
  planner.ObserveEntry({.space = 6});
  EXPECT_EQ(planner.counts().classes, 2);
  EXPECT_EQ(planner.counts().classes_forgotten, 1);
  EXPECT_TRUE(planner.Explain(Request(8192)).learned);
  EXPECT_FALSE(planner.Explain({.key = other, .to = 8192}).learned);
}

TEST_F(Planner, ReadsNoDepthOutsideTheSegment) {
  CheckpointPlanner planner = Make();
  planner.ObserveOverlap(kKey, {.length = 100, .depth = 0});
  planner.ObserveOverlap(kKey, {.length = 100, .depth = 101});
  planner.ObserveOverlap(kKey, {.length = 0, .depth = 0});
  EXPECT_EQ(planner.counts().overlaps, 0);
  EXPECT_EQ(planner.counts().classes, 0);
}

TEST_F(Planner, KeepsItsPromisesOnRandomTraffic) {
  SplitMix64 random(4);
  CheckpointPlanner planner = Make({.classes_max = 20});
  CheckpointPlanner twin = Make({.classes_max = 20});
  for (int i = 0; i < 5000; ++i) {
    const ClassKey key = {.space = random.Next() % 3, .trunk = Pick(random, 0, 5), .size_bucket = Pick(random, 0, 3)};
    const int32_t length = Pick(random, 1, i % 100 == 0 ? 200'000 : 3000);
    const int32_t depth = Pick(random, 1, length + 1);
    const int32_t resume = Pick(random, 0, length);
    const int32_t from = Pick(random, resume, length + 1);
    std::vector<CheckpointPlace> fixed;
    for (int j = Pick(random, 0, 5); j > 0; --j) {
      fixed.push_back({Pick(random, 0, length + 100), static_cast<Kind>(Pick(random, 0, 4))});
    }
    const PlanRequest request = {.key = key,
                                 .resume = resume,
                                 .from = from,
                                 .to = length,
                                 .fixed = fixed,
                                 .price = Pick(random, 0, 500) * kWeightOne};
    for (CheckpointPlanner* const each : {&planner, &twin}) {
      if (i % 3 == 0) each->ObserveEntry(key);
      each->ObserveOverlap(key, {.length = length, .depth = depth});
    }
    const auto plan = planner.Plan(request);
    ASSERT_EQ(Positions(plan), Positions(twin.Plan(request)));
    int32_t before = -64;
    for (const Candidate& candidate : plan) {
      ASSERT_GT(candidate.at, request.resume);
      ASSERT_LE(candidate.at, request.to);
      ASSERT_GE(candidate.at - before, 64);
      ASSERT_GE(candidate.saving, 0);
      ASSERT_TRUE(candidate.kind != Kind::kPlanned || candidate.at > request.from);
      before = candidate.at;
    }
  }
  planner.CheckIntegrity();
  EXPECT_GT(planner.counts().planned_checkpoints, 100);
}

TEST(SizeBucket, HoldsLengthsWithinAFactorOfTwo) {
  EXPECT_EQ(SizeBucket(1), 0);
  EXPECT_EQ(SizeBucket(4096), SizeBucket(8191));
  EXPECT_NE(SizeBucket(4096), SizeBucket(4095));
}

}  // namespace
}  // namespace invar::cache
