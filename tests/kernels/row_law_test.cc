// The law at the level of operations, in raw bits: a row's result depends on neither the other rows of the batch, nor
// the cut into spans, nor threads.
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/bits.h"

namespace invar::kernels {
namespace {

class RowLaw : public testing::TestWithParam<BackendOptions> {};

TEST_P(RowLaw, LinearRowsDoNotSeeTheirBatch) {
  const Rig rig(GetParam());
  constexpr int64_t kN = 130;
  const int64_t most = SubjectsAreSlow() ? 70 : 270;  // More than one block of rows.
  for (const int64_t k : {46, 1100}) {
    const std::vector<float> x = WildFloats(most * k, 1);
    for (const DType source : {DType::kBf16, DType::kF32}) {
      const OwnedMatrix w(*rig.backend, WildFloats(kN * k, 2), kN, k, source);
      std::vector<float> alone;
      for (int64_t t = 0; t < most; ++t) {
        const std::vector<float> row = Linear(rig, {x.begin() + t * k, x.begin() + (t + 1) * k}, w, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const int64_t rows : {1, 2, 3, 4, 6, 8, 13, 16, 31, 32, 64, 97, 128, 258, 270}) {
        if (rows > most) break;
        const std::vector<uint32_t> got = BitsOf(Linear(rig, {x.begin(), x.begin() + rows * k}, w, rows));
        const std::vector<uint32_t> want = BitsOf({alone.begin(), alone.begin() + rows * kN});
        ASSERT_EQ(got, want) << rows << " rows, k " << k;
      }
    }
  }
}

TEST_P(RowLaw, AttentionTokenByTokenEqualsTilesAcrossASuperblock) {
  const Rig rig(GetParam());
  const Rig other(GetParam(), 1);
  for (const AttentionShape& shape : {AttentionShape{4, 2, 32, 0, 0.2F}, AttentionShape{4, 1, 20, 70, 0.3F}}) {
    const auto whole = AttendInCuts(rig, shape, 1090, 1090, {1});
    EXPECT_EQ(AttendInCuts(rig, shape, 960, 1090, {1}), whole);
    EXPECT_EQ(AttendInCuts(other, shape, 960, 1090, {1, 7, 2, 64, 13, 3}), whole);
    if (SubjectsAreSlow()) continue;
    EXPECT_EQ(AttendInCuts(rig, shape, 1, 1090, {400, 5, 31}), whole);
  }
}

TEST_P(RowLaw, AttentionNeverReadsPastItsOwnPosition) {
  const Rig rig(GetParam());
  const AttentionShape shape{4, 2, 32, 0, 0.2F};
  EXPECT_EQ(AttendInCuts(rig, shape, 33, 150, {1, 2, 3}, true), AttendInCuts(rig, shape, 33, 150, {1, 2, 3}, false));
}

// Heads are gone over together where tasks are many for the threads: all by one thread, one each by eight.
TEST_P(RowLaw, AttentionHeadsDoNotSeeEachOther) {
  const Rig one(GetParam(), 1);
  const Rig eight(GetParam(), 8);
  for (const AttentionShape& shape : {AttentionShape{14, 7, 24, 0, 0.2F}, AttentionShape{9, 9, 20, 200, 0.3F}}) {
    const int32_t first = SubjectsAreSlow() ? 1080 : 960;
    EXPECT_EQ(AttendInCuts(one, shape, first, 1090, {1, 3}), AttendInCuts(eight, shape, first, 1090, {1, 3}));
  }
}

// A later token whose value is infinite must not reach earlier rows of the same tile.
TEST_P(RowLaw, AttentionRowsDoNotSeeLaterTokensOfTheirTile) {
  const Rig rig(GetParam());
  const AttentionShape shape{4, 2, 32, 0, 0.2F};
  AttentionSequence clean(rig, shape, 40, false);
  AttentionSequence broken(rig, shape, 40, false);
  for (int i = 0; i < 64; ++i) broken.v_[39 * 64 + i] = broken.k_[39 * 64 + i] = std::numeric_limits<float>::infinity();
  clean.Append(40);
  broken.Append(40);
  auto a = clean.bits();
  auto b = broken.bits();
  a.resize(39 * 128);
  b.resize(39 * 128);
  EXPECT_EQ(a, b);
}

TEST_P(RowLaw, RecurrenceInAnyCuts) {
  const Rig rig(GetParam());
  const Rig single(GetParam(), 1);
  const DeltaRun whole = ScanInCuts(rig, {600});
  for (const std::vector<int32_t>& cuts : {std::vector<int32_t>{1}, {2, 1, 97, 5}, {513, 3}, {64}}) {
    for (const Rig* other : {&rig, &single}) {
      const DeltaRun got = ScanInCuts(*other, cuts);
      EXPECT_EQ(got.out, whole.out);
      EXPECT_EQ(got.conv_out, whole.conv_out);
      EXPECT_EQ(got.state, whole.state);
      EXPECT_EQ(got.conv_state, whole.conv_state);
    }
  }
}

TEST_P(RowLaw, ExpertRowsDoNotSeeTheirBatch) {
  const Rig rig(GetParam());
  constexpr int64_t kHidden = 48;
  std::vector<OwnedMatrix> owned;
  std::vector<PackedMatrix> gates, downs;
  for (uint32_t e = 0; e < 4; ++e) {
    owned.emplace_back(*rig.backend, RandomFloats(2 * 16 * kHidden, 70 + e), 32, kHidden);
    gates.push_back(owned.back().view());
    owned.emplace_back(*rig.backend, RandomFloats(kHidden * 16, 80 + e), kHidden, 16);
    downs.push_back(owned.back().view());
  }
  const std::vector<float> x = RandomFloats(12 * kHidden, 91);
  const std::vector<float> logits = RandomFloats(12 * 4, 92, 3.0F);
  const OwnedActivations rows(rig.activations(), 12, kHidden, x);
  std::vector<float> together(12 * kHidden), alone(12 * kHidden);
  rig->Experts({rows.view(), ViewOf(logits, 4), 2, true, gates, downs, ViewOf(together, kHidden)});
  for (int64_t t = 0; t < 12; ++t) {
    rig->Experts(
        {rows.Rows(t, 1), ViewOf(logits, 4).Rows(t, 1), 2, true, gates, downs, ViewOf(alone, kHidden).Rows(t, 1)});
  }
  EXPECT_EQ(BitsOf(together), BitsOf(alone));
}

INSTANTIATE_TEST_SUITE_P(Backends, RowLaw, testing::ValuesIn(SubjectOptions()), OptionsName);

}  // namespace
}  // namespace invar::kernels
