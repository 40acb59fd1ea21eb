// Who leaves the fast tier and who comes back, as a table.
#include "engine/slow/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace invar::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ResidentView Resident(const int32_t id, const int32_t gives) {
  return {.id = SequenceId(id), .may_leave = true, .gives = gives};
}
ResidentView Away(const int32_t id, const int32_t pages, const bool drafts = true) {
  return {.id = SequenceId(id), .may_leave = true, .drafts = drafts, .away = pages};
}

TEST(Residency, NobodyLeavesWhileThereIsRoom) {
  const Residency plan = PlanResidency(std::vector{Resident(1, 9), Resident(2, 5)}, 10, 10);
  EXPECT_THAT(plan.leave, IsEmpty());
  EXPECT_FALSE(plan.back.has_value());
}

TEST(Residency, TheFewestLeaveWhoMakeTheRoom) {
  const std::vector residents = {Resident(1, 3), Resident(2, 9), Resident(3, 5)};
  EXPECT_THAT(PlanResidency(residents, 2, 6).leave, ElementsAre(SequenceId(2)));
  EXPECT_THAT(PlanResidency(residents, 2, 12).leave, ElementsAre(SequenceId(2), SequenceId(3)));
}

TEST(Residency, WhoIsOnTheWayOutIsCountedOn) {
  std::vector residents = {Resident(1, 3), Resident(2, 9)};
  residents[1].leaving = true;
  EXPECT_THAT(PlanResidency(residents, 0, 9).leave, IsEmpty());
  EXPECT_THAT(PlanResidency(residents, 0, 10).leave, ElementsAre(SequenceId(1)));
}

TEST(Residency, WhoDraftsOnNothingStays) {
  std::vector residents = {Resident(1, 9), Resident(2, 1)};
  residents[0].may_leave = false;
  EXPECT_THAT(PlanResidency(residents, 0, 9).leave, IsEmpty()) << "and one page is not worth a stream";
}

TEST(Residency, TheSmallestComesBackWithRoomToSpare) {
  const std::vector residents = {Away(1, 16), Away(2, 8)};
  EXPECT_FALSE(PlanResidency(residents, 9, 0).back.has_value()) << "the next page wanted would send it out again";
  EXPECT_EQ(PlanResidency(residents, 10, 0).back, SequenceId(2));
  EXPECT_EQ(PlanResidency(residents, 30, 20).back, SequenceId(2));
  EXPECT_FALSE(PlanResidency(residents, 30, 21).back.has_value());
}

TEST(Residency, WhoLostItsViewComesBackFirst) {
  EXPECT_EQ(PlanResidency(std::vector{Away(1, 8), Away(2, 16, /*drafts=*/false)}, 20, 0).back, SequenceId(2));
}

TEST(Residency, NobodyComesBackWhileOthersLeave) {
  std::vector residents = {Resident(1, 30), Away(2, 4)};
  residents[0].leaving = true;
  EXPECT_FALSE(PlanResidency(residents, 10, 0).back.has_value());
}

}  // namespace
}  // namespace invar::engine
