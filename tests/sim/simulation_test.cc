// The whole engine from a seed: thousands of schedules in each run, and proof that the simulation sees planted bugs.
#include "tools/sim/simulation.h"

#include <gtest/gtest.h>

namespace invar::sim {
namespace {

constexpr uint64_t kSeeds = 5000;

TEST(Simulation, EveryScheduleIsRightAndTheSchedulesReachEveryKindOfEnd) {
  Outcome seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = RunSchedule(MakeSchedule(seed), Plant::kNone);
    ASSERT_TRUE(outcome.ok()) << outcome.FirstProblem() << "\nreplay: invar sim --seeds 1 --seed " << seed;
    seen.finished_stop += outcome.finished_stop;
    seen.finished_length += outcome.finished_length;
    seen.cancelled += outcome.cancelled;
    seen.expired += outcome.expired;
    seen.failed += outcome.failed;
    seen.rejected += outcome.rejected;
    seen.preemptions += outcome.preemptions;
    seen.pauses += outcome.pauses;
    seen.stop_strings += outcome.stop_strings;
    seen.scored_prompts += outcome.scored_prompts;
    seen.hits += outcome.hits;
    seen.tier_hits += outcome.tier_hits;
    seen.peer_hits += outcome.peer_hits;
    seen.peer_faults += outcome.peer_faults;
    seen.resumed_after_preemption += outcome.resumed_after_preemption;
    seen.evicted += outcome.evicted;
    seen.flushes += outcome.flushes;
    seen.moved_out += outcome.moved_out;
    seen.brought_back += outcome.brought_back;
    seen.streams += outcome.streams;
    seen.file_faults += outcome.file_faults;
    seen.slow_tier_failures += outcome.slow_tier_failures;
    seen.drafted_beside += outcome.drafted_beside;
    seen.accepted += outcome.accepted;
    seen.fallbacks += outcome.fallbacks;
    for (size_t i = 0; i < seen.accepted_lengths.size(); ++i) seen.accepted_lengths[i] += outcome.accepted_lengths[i];
  }
  std::printf("%lld moved out, %lld came back, %lld streams, %lld faults, %lld failures, %lld drafted beside streams\n",
              static_cast<long long>(seen.moved_out), static_cast<long long>(seen.brought_back),
              static_cast<long long>(seen.streams), static_cast<long long>(seen.file_faults),
              static_cast<long long>(seen.slow_tier_failures), static_cast<long long>(seen.drafted_beside));
  for (const int64_t count : {seen.finished_stop,
                              seen.finished_length,
                              seen.cancelled,
                              seen.expired,
                              seen.failed,
                              seen.rejected,
                              seen.preemptions,
                              seen.pauses,
                              seen.stop_strings,
                              seen.scored_prompts,
                              seen.hits,
                              seen.tier_hits,
                              seen.peer_hits,
                              seen.peer_faults,
                              seen.resumed_after_preemption,
                              seen.evicted,
                              seen.flushes,
                              seen.moved_out,
                              seen.brought_back,
                              seen.streams,
                              seen.file_faults,
                              seen.slow_tier_failures,
                              seen.drafted_beside,
                              seen.accepted,
                              seen.fallbacks}) {
    EXPECT_GT(count, 100);
  }
  for (size_t i = 0; i < engine::kAcceptedBounds.size() && engine::kAcceptedBounds[i] <= 24; ++i) {
    EXPECT_GT(seen.accepted_lengths[i], 0) << "rounds of up to " << engine::kAcceptedBounds[i] << " accepted tokens";
  }
}

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(RunSchedule(MakeSchedule(seed), Plant::kNone).trace, RunSchedule(MakeSchedule(seed), Plant::kNone).trace);
  }
}

class PlantedBug : public testing::TestWithParam<std::string> {};

TEST_P(PlantedBug, IsCaughtWithin200SeedsAndShrinks) {
  const Plant plant = PlantNamed(GetParam()).value();
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Schedule schedule = MakeSchedule(seed);
    if (RunSchedule(schedule, plant).ok()) continue;
    const Reduction reduction = Minimize(schedule, plant);
    EXPECT_FALSE(RunSchedule(Reduce(schedule, reduction), plant).ok());
    EXPECT_LE(reduction.only->size(), schedule.requests.size());
    EXPECT_TRUE(RunSchedule(Reduce(schedule, reduction), Plant::kNone).ok());
    return;
  }
  FAIL() << GetParam() << " was not seen";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug, testing::ValuesIn(PlantNames()), [](const auto& p) { return p.param; });

}  // namespace
}  // namespace invar::sim
