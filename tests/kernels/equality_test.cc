// The law at the level of operations, in raw bits: a row's result depends on neither the other rows of the batch, nor
// the cut into spans, nor threads, nor the instruction set.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/rig.h"

namespace invar::kernels {
namespace {

// Magnitudes from denormal to large, signs and zeros: what tells rounding orders and flushing apart.
std::vector<float> WildFloats(const size_t count, const uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto random = static_cast<uint32_t>(engine());
    const uint32_t exponent = random % 4 == 0 ? (random >> 3) % 190 : 110 + (random >> 3) % 30;
    value = std::bit_cast<float>((static_cast<uint32_t>(engine()) & 0x807fffffU) | exponent << 23);
  }
  return values;
}

[[gnu::target("fma")]] float FmaInstruction(const float a, const float b, const float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

using Results = std::vector<std::vector<uint32_t>>;

std::vector<float> Linear(const Rig& rig, const std::vector<float>& x, const OwnedMatrix& w, const int64_t rows) {
  const int64_t k = w.view().cols;
  std::vector<float> out(rows * w.view().rows);
  rig->Linear(OwnedActivations(rig.activations(), rows, k, x).view(), w.view(), {}, LinearMode::kStore,
              ViewOf(out, w.view().rows));
  return out;
}

class Equality : public testing::TestWithParam<BackendOptions> {};

TEST_P(Equality, LinearRowsDoNotSeeTheirBatch) {
  const Rig rig(GetParam());
  constexpr int64_t kN = 130;
  constexpr int64_t kMost = 270;  // More than one block of rows.
  for (const int64_t k : {46, 1100}) {
    const std::vector<float> x = WildFloats(kMost * k, 1);
    for (const DType source : {DType::kBf16, DType::kF32}) {
      const OwnedMatrix w(*rig.backend, WildFloats(kN * k, 2), kN, k, source);
      std::vector<float> alone;
      for (int64_t t = 0; t < kMost; ++t) {
        const std::vector<float> row = Linear(rig, {x.begin() + t * k, x.begin() + (t + 1) * k}, w, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const int64_t rows : {1, 2, 3, 4, 6, 8, 13, 16, 31, 32, 64, 97, 128, 258, 270}) {
        const std::vector<uint32_t> got = BitsOf(Linear(rig, {x.begin(), x.begin() + rows * k}, w, rows));
        const std::vector<uint32_t> want = BitsOf({alone.begin(), alone.begin() + rows * kN});
        ASSERT_EQ(got, want) << rows << " rows, k " << k;
      }
    }
  }
}

// One sequence's attention layer with its own projections given; rows are appended in any cuts.
struct AttentionSequence {
  AttentionSequence(const Rig& rig, const AttentionShape& shape, const int32_t positions, const bool poison)
      : rig_(rig),
        shape_(shape),
        positions_(positions),
        pages_(*rig.backend, shape.kv_heads, shape.head_dim, positions, poison),
        q_(RandomFloats(positions * shape.heads * shape.head_dim * 2, 20, 2.0F)),
        k_(RandomFloats(positions * shape.kv_heads * shape.head_dim, 21, 2.0F)),
        v_(RandomFloats(positions * shape.kv_heads * shape.head_dim, 22)),
        angle_(RandomFloats(positions * 4, 23)),
        norm_(RandomFloats(shape.head_dim, 24)),
        out_(rig.activations(), positions, shape.heads * shape.head_dim) {}

  void Append(const int32_t rows) {
    const int32_t d = shape_.head_dim;
    const KvSpan span{0, rows, done_, pages_.view()};
    OwnedActivations q_out(rig_.backend->numerics().kv, rows, shape_.heads * d);
    const ConstF32View q = ViewOf(q_, shape_.heads * 2 * d).Rows(done_, rows);
    const ConstF32View angle = ViewOf(angle_, 4).Rows(done_, rows);
    rig_->QkvPrepare({shape_,
                      q,
                      2 * d,
                      ViewOf(k_, shape_.kv_heads * d).Rows(done_, rows),
                      ViewOf(v_, shape_.kv_heads * d).Rows(done_, rows),
                      norm_,
                      norm_,
                      1e-6F,
                      angle,
                      angle,
                      {&span, 1},
                      q_out.view()});
    rig_->Attention(
        {shape_, q_out.view(), {&span, 1}, {q.data + d, q.rows, q.cols - d, q.stride}, 2 * d, out_.Rows(done_, rows)});
    done_ += rows;
  }
  std::vector<uint32_t> bits() const { return BitsOf(out_.values()); }

  const Rig& rig_;
  AttentionShape shape_;
  int32_t positions_;
  int32_t done_ = 0;
  Pages pages_;
  std::vector<float> q_, k_, v_, angle_, norm_;
  OwnedActivations out_;
};

std::vector<uint32_t> AttendInCuts(const Rig& rig, const AttentionShape& shape, const int32_t first,
                                   const int32_t positions, const std::vector<int32_t>& cuts,
                                   const bool poison = false) {
  AttentionSequence sequence(rig, shape, positions, poison);
  sequence.Append(first);
  for (size_t i = 0; sequence.done_ < positions; ++i) {
    sequence.Append(std::min(cuts[i % cuts.size()], positions - sequence.done_));
  }
  return sequence.bits();
}

TEST_P(Equality, AttentionTokenByTokenEqualsTilesAcrossASuperblock) {
  const Rig rig(GetParam());
  const Rig other(GetParam(), 1);
  for (const AttentionShape& shape : {AttentionShape{4, 2, 32, 0, 0.2F}, AttentionShape{4, 1, 20, 70, 0.3F}}) {
    const auto whole = AttendInCuts(rig, shape, 1090, 1090, {1});
    EXPECT_EQ(AttendInCuts(rig, shape, 960, 1090, {1}), whole);
    EXPECT_EQ(AttendInCuts(other, shape, 960, 1090, {1, 7, 2, 64, 13, 3}), whole);
    EXPECT_EQ(AttendInCuts(rig, shape, 1, 1090, {400, 5, 31}), whole);
  }
}

// A tile of 60 rows is what prefill wants; one query row a head must not pay for it, eight superblocks over.
TEST_P(Equality, DecodeAttentionHoldsPartialsOfItsOwnRowsOnly) {
  const Rig rig(GetParam());
  AttentionSequence sequence(rig, AttentionShape{4, 2, 32, 0, 0.2F}, 8 * 1024, false);
  sequence.done_ = 8 * 1024 - 1;  // What the pages hold is of no interest here.
  sequence.Append(1);
  constexpr int64_t kPartialFloats = 2 * 16 + 2 * 32;  // Two vectors of row sums, two rows of values.
  EXPECT_LE(rig->scratch_bytes(), 2 * 8 * kPartialFloats * 4 * 3 / 2 + 64);
}

TEST_P(Equality, AttentionNeverReadsPastItsOwnPosition) {
  const Rig rig(GetParam());
  const AttentionShape shape{4, 2, 32, 0, 0.2F};
  EXPECT_EQ(AttendInCuts(rig, shape, 33, 150, {1, 2, 3}, true), AttendInCuts(rig, shape, 33, 150, {1, 2, 3}, false));
}

// A later token whose value is infinite must not reach earlier rows of the same tile.
TEST_P(Equality, AttentionRowsDoNotSeeLaterTokensOfTheirTile) {
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

struct DeltaRun {
  std::vector<uint32_t> out;
  std::vector<uint32_t> conv_out;
  std::vector<uint32_t> state;
  std::vector<uint32_t> conv_state;
};

// Convolution and delta rule of 600 tokens in the given cuts.
DeltaRun ScanInCuts(const Rig& rig, const std::vector<int32_t>& cuts) {
  const DeltaShape shape{2, 4, 32, 40};
  constexpr int32_t kTokens = 600;
  constexpr int64_t kWidth = 2 * 2 * 32 + 4 * 40;
  const std::vector<float> x = RandomFloats(kTokens * kWidth, 40, 2.0F);
  const std::vector<float> w = RandomFloats(kWidth * 4, 41);
  const std::vector<float> b = RandomFloats(kTokens * 4, 42, 4.0F);
  const std::vector<float> a = RandomFloats(kTokens * 4, 43, 10.0F);
  const std::vector<float> a_log = RandomFloats(4, 44);
  const std::vector<float> dt_bias = RandomFloats(4, 45);
  std::vector<float> conv_state(3 * kWidth), state(4 * 32 * 40), mixed(kTokens * kWidth), out(kTokens * 160);
  int32_t done = 0;
  for (size_t i = 0; done < kTokens; ++i) {
    const int32_t rows = std::min(cuts[i % cuts.size()], kTokens - done);
    const StateSpan span{0, rows, conv_state.data(), state.data()};
    rig->CausalConv({ViewOf(x, kWidth).Rows(done, rows), w, 4, {&span, 1}, ViewOf(mixed, kWidth).Rows(done, rows)});
    rig->DeltaScan({shape,
                    ViewOf(mixed, kWidth).Rows(done, rows),
                    ViewOf(b, 4).Rows(done, rows),
                    ViewOf(a, 4).Rows(done, rows),
                    a_log,
                    dt_bias,
                    {&span, 1},
                    ViewOf(out, 160).Rows(done, rows)});
    done += rows;
  }
  return {BitsOf(out), BitsOf(mixed), BitsOf(state), BitsOf(conv_state)};
}

TEST_P(Equality, RecurrenceInAnyCuts) {
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

// Several operations over a batch; the results in order. Wide inputs where the operation stays finite.
Results RunEverything(const Rig& rig) {
  Results results;
  const DType type = rig.activations();
  constexpr int64_t kRows = 19;
  constexpr int64_t kHidden = 75;
  const std::vector<float> wild = WildFloats(kRows * kHidden, 60);
  const std::vector<float> x = RandomFloats(kRows * kHidden, 61, 3.0F);
  for (const int64_t n : {64, 100}) {
    for (const DType source : {DType::kBf16, DType::kF32}) {
      results.push_back(
          BitsOf(Linear(rig, wild, OwnedMatrix(*rig.backend, WildFloats(n * kHidden, 62), n, kHidden, source), kRows)));
    }
  }
  OwnedActivations rows(type, kRows, kHidden);
  rig->RmsNorm(ViewOf(x, kHidden), RandomFloats(kHidden, 63), 1e-6F, rows.view());
  results.push_back(BitsOf(rows.values()));
  rig->GatedRmsNorm(ViewOf(x, kHidden), ViewOf(RandomFloats(kRows * kHidden, 64, 95.0F), kHidden), RandomFloats(25, 65),
                    1e-6F, rows.view());
  results.push_back(BitsOf(rows.values()));
  OwnedActivations half(type, kRows, 37);
  const std::vector<float> gate_up = WildFloats(kRows * 74, 66);
  rig->SwiGlu(ViewOf(gate_up, 74), half.view());
  results.push_back(BitsOf(half.values()));
  std::vector<float> sum = x;
  rig->AddSigmoidScaled(ViewOf(wild, kHidden), ViewOf(RandomFloats(kRows, 67, 90.0F), 1), ViewOf(sum, kHidden));
  results.push_back(BitsOf(sum));
  results.push_back(AttendInCuts(rig, {4, 2, 32, 0, 0.2F}, 70, 150, {7}));
  results.push_back(AttendInCuts(rig, {6, 2, 18, 90, 0.3F}, 120, 150, {7}));
  const DeltaRun scan = ScanInCuts(rig, {37});
  for (const auto* part : {&scan.out, &scan.conv_out, &scan.state}) results.push_back(*part);

  std::vector<OwnedMatrix> owned;
  std::vector<PackedMatrix> gates, downs;
  for (uint32_t e = 0; e < 6; ++e) {
    owned.emplace_back(*rig.backend, RandomFloats(2 * 20 * kHidden, 70 + e, 0.4F), 40, kHidden);
    gates.push_back(owned.back().view());
    owned.emplace_back(*rig.backend, RandomFloats(kHidden * 20, 80 + e, 0.4F), kHidden, 20);
    downs.push_back(owned.back().view());
  }
  const std::vector<float> logits = RandomFloats(kRows * 6, 90, 3.0F);
  std::vector<float> out = x;
  rig->Experts({OwnedActivations(type, kRows, kHidden, x).view(), ViewOf(logits, 6), 3, true, gates, downs,
                ViewOf(out, kHidden)});
  results.push_back(BitsOf(out));
  return results;
}

TEST_P(Equality, ThreadsAndInstructionSetsGiveTheSameBits) {
  BackendOptions scalar = GetParam();
  scalar.isa = "scalar";
  const Results want = RunEverything(Rig(scalar, 1));
  for (const int threads : {1, 2, 3}) {
    const Results got = RunEverything(Rig(GetParam(), threads));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "result " << i << ", " << threads << " threads";
  }
}

TEST_P(Equality, ExpertRowsDoNotSeeTheirBatch) {
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

INSTANTIATE_TEST_SUITE_P(Backends, Equality, testing::ValuesIn(CpuOptions()), OptionsName);

TEST(ExactFma, EqualsTheInstruction) {
  if (SupportedIsas().front() == "scalar") GTEST_SKIP() << "no fma instruction here";
  const FlushDenormals flush;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const std::vector<float> a = WildFloats(16, 3 * seed);
    const std::vector<float> b = WildFloats(16, 3 * seed + 1);
    std::vector<float> c = WildFloats(16, 3 * seed + 2);
    for (size_t i = 0; i < 16; i += 2) c[i] = -a[i] * b[i] * (1.0F + 0x1p-23F * static_cast<float>(i % 3));  // Cancels.
    std::vector<float> got(16), want(16);
    cpu::ExactFma16(a.data(), b.data(), c.data(), got.data());
    for (size_t i = 0; i < 16; ++i) want[i] = FmaInstruction(a[i], b[i], c[i]);
    ASSERT_EQ(BitsOf(got), BitsOf(want));
  }
}

TEST(PackMatrix, GivesTheSameBytesOnEveryInstructionSet) {
  const std::vector<float> w = RandomFloats(100 * 33, 1);
  const Rig scalar({"cpu", "scalar", DType::kBf16});
  const OwnedMatrix want(*scalar.backend, w, 100, 33);
  for (const std::string& isa : SupportedIsas()) {
    const Rig rig({"cpu", isa, DType::kBf16});
    const OwnedMatrix got(*rig.backend, w, 100, 33);
    EXPECT_EQ(std::memcmp(got.memory(), want.memory(), rig->PackedBytes(100, 33, DType::kBf16)), 0);
  }
}

}  // namespace
}  // namespace invar::kernels
