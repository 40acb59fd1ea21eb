// States emitted inside a span, and rows of a span whose keys and values are in the pages already: both are compared,
// in raw bits, with the same rows run in spans that end and begin there.
#include <gtest/gtest.h>

#include "tests/kernels/rig.h"

namespace invar::kernels {
namespace {

constexpr DeltaShape kShape{.heads_k = 2, .heads_v = 4, .dim_k = 24, .dim_v = 40};
constexpr int64_t kWidth = 2 * 2 * 24 + 4 * 40;  // 256: two blocks of channels.
constexpr int64_t kOut = 4 * 40;
constexpr int64_t kConvSize = 3 * kWidth;
constexpr int64_t kStateSize = 4 * 24 * 40;
constexpr int32_t kTokens = 540;  // Past a round of the scan, which is 512 tokens.

struct Slot {
  std::vector<float> conv = std::vector<float>(kConvSize, 7.0F);  // What lay there before must not matter.
  std::vector<float> recurrent = std::vector<float>(kStateSize, 7.0F);
};

// One layer of one sequence, whose inputs are given.
class Recurrence {
 public:
  explicit Recurrence(const Rig& rig) : rig_(rig) {}

  // Rows [begin, end) in one span, emitting after the given rows (counted from `begin`).
  void Run(const int32_t begin, const int32_t end, const std::vector<int32_t>& emit_rows, std::vector<Slot>* emitted) {
    std::vector<EmittedState> emit;
    emitted->assign(emit_rows.size(), Slot());
    for (size_t i = 0; i < emit_rows.size(); ++i) {
      emit.push_back({emit_rows[i], (*emitted)[i].conv.data(), (*emitted)[i].recurrent.data()});
    }
    const int32_t rows = end - begin;
    const StateSpan span{0, rows, state_.conv.data(), state_.recurrent.data(), emit};
    rig_->CausalConv(
        {ViewOf(x_, kWidth).Rows(begin, rows), w_, 4, {&span, 1}, ViewOf(mixed_, kWidth).Rows(begin, rows)});
    rig_->DeltaScan({kShape,
                     ViewOf(std::as_const(mixed_), kWidth).Rows(begin, rows),
                     ViewOf(b_, 4).Rows(begin, rows),
                     ViewOf(a_, 4).Rows(begin, rows),
                     a_log_,
                     dt_bias_,
                     {&span, 1},
                     ViewOf(out_, kOut).Rows(begin, rows)});
  }

  const Rig& rig_;
  const std::vector<float> x_ = RandomFloats(kTokens * kWidth, 40, 2.0F);
  const std::vector<float> w_ = RandomFloats(kWidth * 4, 41);
  const std::vector<float> b_ = RandomFloats(kTokens * 4, 42, 4.0F);
  const std::vector<float> a_ = RandomFloats(kTokens * 4, 43, 10.0F);
  const std::vector<float> a_log_ = RandomFloats(4, 44);
  const std::vector<float> dt_bias_ = RandomFloats(4, 45);
  std::vector<float> mixed_ = std::vector<float>(kTokens * kWidth);
  std::vector<float> out_ = std::vector<float>(kTokens * kOut);
  Slot state_{RandomFloats(kConvSize, 46), RandomFloats(kStateSize, 47, 0.3F)};
};

class Emit : public testing::TestWithParam<BackendOptions> {};

void ExpectSame(const Slot& got, const Slot& want, const int32_t row) {
  ASSERT_EQ(BitsOf(got.conv), BitsOf(want.conv)) << "after row " << row;
  ASSERT_EQ(BitsOf(got.recurrent), BitsOf(want.recurrent)) << "after row " << row;
}

TEST_P(Emit, EveryRowsStateEqualsThatOfASpanEndingThere) {
  const Rig rig(GetParam());
  const bool slow = GetParam().name == "reference";
  const int32_t tokens = slow ? 40 : kTokens;
  Recurrence stepwise(rig);
  std::vector<Slot> wanted;
  std::vector<Slot> none;
  for (int32_t t = 0; t < tokens; ++t) {
    stepwise.Run(t, t + 1, {}, &none);
    wanted.push_back(stepwise.state_);
  }
  Recurrence whole(rig);
  std::vector<int32_t> every(tokens);
  for (int32_t t = 0; t < tokens; ++t) every[t] = t + 1;
  std::vector<Slot> emitted;
  whole.Run(0, tokens, every, &emitted);
  for (int32_t t = 0; t < tokens; ++t) ExpectSame(emitted[t], wanted[t], t);
  ExpectSame(whole.state_, stepwise.state_, tokens);
  EXPECT_EQ(BitsOf(whole.out_), BitsOf(stepwise.out_));
  EXPECT_EQ(BitsOf(whole.mixed_), BitsOf(stepwise.mixed_));
}

// A few rows only, in a span that does not begin with the sequence; the last behind its last row.
TEST_P(Emit, SparseRowsOfALaterSpan) {
  const Rig rig(GetParam());
  const int32_t tokens = GetParam().name == "reference" ? 40 : kTokens;
  const std::vector<int32_t> rows = {1, 2, tokens - 20, tokens - 9};
  Recurrence whole(rig);
  std::vector<Slot> emitted;
  std::vector<Slot> none;
  whole.Run(0, 9, {}, &none);
  whole.Run(9, tokens, rows, &emitted);
  Recurrence cut(rig);
  cut.Run(0, 9, {}, &none);
  int32_t done = 9;
  for (size_t i = 0; i < rows.size(); ++i) {
    cut.Run(done, 9 + rows[i], {}, &none);
    done = 9 + rows[i];
    ExpectSame(emitted[i], cut.state_, rows[i]);
  }
  ExpectSame(whole.state_, cut.state_, tokens);
  EXPECT_EQ(BitsOf(whole.out_), BitsOf(cut.out_));
}

// Other sequences of the batch get their own states only.
TEST_P(Emit, SpansDoNotSeeEachOthersEmits) {
  const Rig rig(GetParam());
  const std::vector<float> x = RandomFloats(20 * kWidth, 50);
  const std::vector<float> w = RandomFloats(kWidth * 4, 51);
  std::vector<float> out(20 * kWidth);
  Slot a, b, from_a, from_b;
  const EmittedState emit_a{3, from_a.conv.data(), nullptr};
  const EmittedState emit_b{5, from_b.conv.data(), nullptr};
  const std::vector<StateSpan> spans = {{0, 8, a.conv.data(), nullptr, {&emit_a, 1}},
                                        {8, 12, b.conv.data(), nullptr, {&emit_b, 1}}};
  rig->CausalConv({ViewOf(x, kWidth), w, 4, spans, ViewOf(out, kWidth)});
  const auto inputs_before = [&](const int64_t row) {
    return std::vector<float>(x.begin() + (row - 3) * kWidth, x.begin() + row * kWidth);
  };
  EXPECT_EQ(from_a.conv, inputs_before(3));
  EXPECT_EQ(from_b.conv, inputs_before(8 + 5));
  EXPECT_EQ(a.conv, inputs_before(8));
  EXPECT_EQ(b.conv, inputs_before(20));
}

using EmitDeathTest = Emit;
TEST_P(EmitDeathTest, RefusesRowsThatDoNotAscendInsideTheSpan) {
  for (const std::vector<int32_t>& rows : {std::vector<int32_t>{0}, {4, 4}, {5, 3}, {11}}) {
    EXPECT_DEATH(
        {
          const Rig rig(GetParam(), 1);
          std::vector<Slot> emitted;
          Recurrence(rig).Run(0, 10, rows, &emitted);
        },
        "emitted states ascend inside their span");
  }
}

// Rows [0, write_from) leave every byte of the pages alone, all others write; queries come out for all rows.
TEST_P(Emit, QkvPrepareWritesFromThePositionItIsTold) {
  const Rig rig(GetParam());
  constexpr int32_t kRows = 90;
  constexpr int32_t kFirst = 40;
  const AttentionShape shape{4, 2, 20, 0, 0.2F};
  const std::vector<float> q = RandomFloats(kRows * 4 * 20, 60);
  const std::vector<float> k = RandomFloats(kRows * 2 * 20, 61);
  const std::vector<float> v = RandomFloats(kRows * 2 * 20, 62);
  const std::vector<float> angle = RandomFloats(kRows * 4, 63);
  const auto prepare = [&](Pages& pages, const int32_t begin, const int32_t end, const int32_t write_from) {
    const int32_t rows = end - begin;
    const KvSpan span{0, rows, kFirst + begin, pages.view(), write_from};
    OwnedActivations out(rig.backend->numerics().kv, rows, 4 * 20);
    rig->QkvPrepare({.shape = shape,
                     .q = ViewOf(q, 80).Rows(begin, rows),
                     .q_head_stride = 20,
                     .k = ViewOf(k, 40).Rows(begin, rows),
                     .v = ViewOf(v, 40).Rows(begin, rows),
                     .q_norm = {},
                     .k_norm = {},
                     .norm_eps = 1e-6F,
                     .cos = ViewOf(angle, 4).Rows(begin, rows),
                     .sin = ViewOf(angle, 4).Rows(begin, rows),
                     .spans = {&span, 1},
                     .q_out = out.view()});
    return BitsOf(out.values());
  };
  const auto poisoned = [&] { return Pages(*rig.backend, 2, 20, kFirst + kRows, true); };
  Pages all = poisoned();
  const std::vector<uint32_t> queries = prepare(all, 0, kRows, 0);
  EXPECT_NE(all.bytes(), poisoned().bytes());
  for (const int32_t row : {0, 1, 23, 24, 25, 77, kRows}) {  // Position 64, a new page, is row 24.
    Pages some = poisoned();
    EXPECT_EQ(prepare(some, 0, kRows, kFirst + row), queries) << row;
    Pages rest = poisoned();
    if (row < kRows) prepare(rest, row, kRows, 0);
    EXPECT_EQ(some.bytes(), rest.bytes()) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Emit, testing::ValuesIn(AllOptions()), OptionsName);
INSTANTIATE_TEST_SUITE_P(Backends, EmitDeathTest, testing::ValuesIn(AllOptions()), OptionsName);

}  // namespace
}  // namespace invar::kernels
