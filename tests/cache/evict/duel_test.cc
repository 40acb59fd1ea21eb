// Who is followed, and when that changes.
#include "cache/evict/duel.h"

#include <gtest/gtest.h>

namespace invar::cache {
namespace {

void Play(DuelScore& score, const int requests, const int32_t first, const int32_t second) {
  for (int i = 0; i < requests; ++i) score.Count({first, second});
}

TEST(DuelScore, FollowsTheFirstUntilTheOtherIsBetter) {
  DuelScore score;
  EXPECT_EQ(score.winner(), 0U);
  Play(score, 5000, 1000, 1000);
  EXPECT_EQ(score.winner(), 0U);
  Play(score, 5000, 1000, 1010);  // Within the margin.
  EXPECT_EQ(score.winner(), 0U);
  Play(score, 5000, 1000, 1100);
  EXPECT_EQ(score.winner(), 1U);
}

TEST(DuelScore, ComesBackWhenTheLoadChanges) {
  DuelScore score;
  Play(score, 2000, 0, 500);
  EXPECT_EQ(score.winner(), 1U);
  Play(score, 4000, 500, 0);
  EXPECT_EQ(score.winner(), 0U);
}

TEST(DuelScore, ARunOfOddRequestsIsNotAChange) {
  DuelScore score;
  Play(score, 5000, 1000, 900);
  Play(score, 20, 0, 3000);
  EXPECT_EQ(score.winner(), 0U);
}

}  // namespace
}  // namespace invar::cache
