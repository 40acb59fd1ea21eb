// Every operation of every backend against the scalar definition, within tolerances derived from the arithmetic:
// an f32 sum of n terms of size m is off by at most about n * 2^-24 * m; a value stored as bf16 by 2^-9 of itself.
#include <gtest/gtest.h>

#include <span>
#include <utility>

#include "tests/kernels/rig.h"

namespace invar::kernels {
namespace {

// |a - b| <= relative * |b| + absolute, elementwise.
void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, const double relative,
                 const double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << "element " << i;
  }
}

class Conformance : public testing::TestWithParam<BackendOptions> {
 protected:
  Conformance() : rig(GetParam()), reference(ReferenceRig()) {}
  bool bf16() const { return rig.activations() == DType::kBf16; }
  // Relative error of an output stored in the activation type.
  double stored() const { return bf16() ? 0x1p-8 : 1e-6; }

  Rig rig;
  Rig reference;
};

TEST_P(Conformance, LinearOfAnyShapeAndWeightType) {
  for (const DType source : {DType::kBf16, DType::kF32}) {
    for (const auto& [rows, n, k] : std::vector<std::array<int64_t, 3>>{
             {1, 64, 64}, {3, 70, 33}, {7, 1, 1}, {13, 200, 1030}, {100, 65, 48}, {262, 130, 300}}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << n << "x" << k << " of " << DTypeName(source));
      const std::vector<float> x = RandomBf16Floats(rows * k, 1);
      const std::vector<float> w =
          source == DType::kF32 && !bf16() ? RandomFloats(n * k, 2) : RandomBf16Floats(n * k, 2);
      const std::vector<float> some = RandomFloats(n, 3);
      for (const auto& [mode, biased] : std::vector<std::pair<LinearMode, bool>>{{LinearMode::kStore, true},
                                                                                 {LinearMode::kAdd, true},
                                                                                 {LinearMode::kStore, false},
                                                                                 {LinearMode::kAdd, false}}) {
        const std::span<const float> bias = biased ? std::span<const float>(some) : std::span<const float>();
        std::vector<float> got = RandomFloats(rows * n, 4);
        std::vector<float> want = got;
        rig->Linear(OwnedActivations(rig.activations(), rows, k, x).view(),
                    OwnedMatrix(*rig.backend, w, n, k, source).view(), bias, mode, ViewOf(got, n));
        reference->Linear(OwnedActivations(DType::kF32, rows, k, x).view(),
                          OwnedMatrix(*reference.backend, w, n, k, source).view(), bias, mode, ViewOf(want, n));
        ExpectClose(got, want, 1e-6, static_cast<double>(k) * 0x1p-23);
      }
    }
  }
}

TEST_P(Conformance, EmbedReadsThePackedTable) {
  const std::vector<float> w = RandomBf16Floats(130 * 37, 5);
  std::vector<float> got(4 * 37);
  const std::vector<int32_t> ids = {0, 129, 64, 63};
  rig->Embed(OwnedMatrix(*rig.backend, w, 130, 37).view(), ids, ViewOf(got, 37));
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(got[t * 37 + i], w[ids[t] * 37 + i]);
  }
}

TEST_P(Conformance, Norms) {
  for (const int64_t dim : {16, 48, 50, 1024}) {
    const std::vector<float> x = RandomFloats(5 * 2 * dim, 6, 3.0F);
    const std::vector<float> z = RandomFloats(5 * 2 * dim, 7, 6.0F);
    const std::vector<float> whole = RandomFloats(2 * dim, 8);
    const std::vector<float> head(whole.begin(), whole.begin() + dim);
    OwnedActivations got(rig.activations(), 5, 2 * dim);
    OwnedActivations want(DType::kF32, 5, 2 * dim);
    rig->RmsNorm(ViewOf(x, 2 * dim), whole, 1e-6F, got.view());
    reference->RmsNorm(ViewOf(x, 2 * dim), whole, 1e-6F, want.view());
    ExpectClose(got.values(), want.values(), stored(), 1e-6);
    rig->GatedRmsNorm(ViewOf(x, 2 * dim), ViewOf(z, 2 * dim), head, 1e-6F, got.view());
    reference->GatedRmsNorm(ViewOf(x, 2 * dim), ViewOf(z, 2 * dim), head, 1e-6F, want.view());
    ExpectClose(got.values(), want.values(), stored(), 3e-6);
  }
}

TEST_P(Conformance, SwiGluAndSigmoidOverTheWholeRange) {
  const std::vector<float> gate_up = RandomFloats(4 * 2 * 75, 9, 40.0F);
  OwnedActivations got(rig.activations(), 4, 75);
  OwnedActivations want(DType::kF32, 4, 75);
  rig->SwiGlu(ViewOf(gate_up, 150), got.view());
  reference->SwiGlu(ViewOf(gate_up, 150), want.view());
  ExpectClose(got.values(), want.values(), bf16() ? 0x1p-8 : 2e-6, 1e-30);

  const std::vector<float> gate = RandomFloats(4, 10, 5.0F);
  std::vector<float> sum = RandomFloats(4 * 150, 11);
  std::vector<float> sum_want = sum;
  rig->AddSigmoidScaled(ViewOf(gate_up, 150), ViewOf(gate, 1), ViewOf(sum, 150));
  reference->AddSigmoidScaled(ViewOf(gate_up, 150), ViewOf(gate, 1), ViewOf(sum_want, 150));
  ExpectClose(sum, sum_want, 1e-6, 1e-5);
}

TEST_P(Conformance, AddAddsEachElement) {
  const std::vector<float> x = RandomFloats(3 * 70, 12);
  std::vector<float> got = RandomFloats(3 * 70, 13);
  const std::vector<float> before = got;
  rig->Add(ViewOf(x, 70), ViewOf(got, 70));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], before[i] + x[i]) << i;
}

TEST_P(Conformance, CopyMovesPiecesOfAnyEvenSizeAndPlace) {
  // By words of 16, 4 and 2 bytes, shorter and longer than a block's share.
  constexpr int64_t kLongest = 70000;
  std::vector<uint16_t> from(kLongest);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i * 7 + 1);
  std::vector<uint16_t> to(6 * kLongest, 0);
  std::vector<uint16_t> want = to;
  std::vector<CopyPiece> pieces;
  int64_t at = 0;
  for (const auto& [offset, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, kLongest}, {1, 9}, {8, 64}, {2, 30002}, {3, 0}, {4, 16384}}) {
    pieces.push_back({to.data() + at + offset, from.data() + offset, std::min(count, kLongest - offset) * 2});
    std::copy_n(from.begin() + offset, pieces.back().bytes / 2, want.begin() + at + offset);
    at += kLongest;
  }
  rig->Copy(pieces);
  EXPECT_EQ(to, want);
}

TEST_P(Conformance, RopeAnglesOfSmallAndHugePositions) {
  std::vector<double> frequencies;
  for (int i = 0; i < 20; ++i) frequencies.push_back(std::pow(1e7, -i / 20.0));
  const std::vector<int32_t> positions = {0, 1, 2, 3, 511, 32768, 262143, 1048575};
  std::vector<float> cos(8 * 20), sin(8 * 20), cos_want(8 * 20), sin_want(8 * 20);
  rig->RopeAngles(positions, frequencies, 1.25, ViewOf(cos, 20), ViewOf(sin, 20));
  reference->RopeAngles(positions, frequencies, 1.25, ViewOf(cos_want, 20), ViewOf(sin_want, 20));
  ExpectClose(cos, cos_want, 1.2e-7, 1e-12);  // One rounding to float.
  ExpectClose(sin, sin_want, 1.2e-7, 1e-12);
}

struct AttentionCase {
  int32_t heads, kv_heads, head_dim, rotary, window, context, rows;
  bool norm, gate;
};

// Runs QkvPrepare for the context in one go, then Attention for its last `rows` rows.
std::vector<float> RunAttentionCase(const Rig& rig, const AttentionCase& c, std::vector<float>* queries) {
  const int32_t d = c.head_dim;
  const int32_t q_stride = c.gate ? 2 * d : d;
  const std::vector<float> q = RandomBf16Floats(c.context * c.heads * q_stride, 20, 2.0F);
  const std::vector<float> k = RandomBf16Floats(c.context * c.kv_heads * d, 21, 2.0F);
  const std::vector<float> v = RandomBf16Floats(c.context * c.kv_heads * d, 22);
  const std::vector<float> q_norm = RandomFloats(d, 23);
  const std::vector<float> k_norm = RandomFloats(d, 24);
  const int32_t half = c.rotary / 2;
  std::vector<float> cos(c.context * half), sin(c.context * half);
  for (int32_t t = 0; t < c.context; ++t) {
    for (int32_t i = 0; i < half; ++i) {
      cos[t * half + i] = static_cast<float>(std::cos(t * std::pow(1e4, -2.0 * i / c.rotary)));
      sin[t * half + i] = static_cast<float>(std::sin(t * std::pow(1e4, -2.0 * i / c.rotary)));
    }
  }
  Pages pages(*rig.backend, c.kv_heads, d, c.context, true);
  const KvSpan span{0, c.context, 0, pages.view()};
  AttentionShape shape{c.heads, c.kv_heads, d, c.window, 1.0F / std::sqrt(static_cast<float>(d))};
  OwnedActivations q_out(rig.backend->numerics().kv, c.context, c.heads * d);
  QkvArgs args{.shape = shape,
               .q = ViewOf(q, c.heads * q_stride),
               .q_head_stride = q_stride,
               .k = ViewOf(k, c.kv_heads * d),
               .v = ViewOf(v, c.kv_heads * d),
               .q_norm = {},
               .k_norm = {},
               .norm_eps = 1e-6F,
               .cos = {cos.data(), c.context, half, half},
               .sin = {sin.data(), c.context, half, half},
               .spans = {&span, 1},
               .q_out = q_out.view()};
  if (c.norm) {
    args.q_norm = q_norm;
    args.k_norm = k_norm;
  }
  rig->QkvPrepare(args);
  *queries = q_out.values();
  OwnedActivations out(rig.activations(), c.context, c.heads * d);
  const KvSpan last{c.context - c.rows, c.rows, c.context - c.rows, pages.view()};
  ConstF32View gate = ViewOf(q, c.heads * q_stride).Columns(c.gate ? d : 0, c.heads * q_stride - (c.gate ? d : 0));
  if (!c.gate) gate = {};
  rig->Attention({.shape = shape,
                  .q = q_out.view(),
                  .spans = {&last, 1},
                  .gate = gate,
                  .gate_head_stride = q_stride,
                  .out = out.view()});
  const std::vector<float> all = out.values();
  return std::vector<float>(all.end() - c.rows * c.heads * d, all.end());
}

TEST_P(Conformance, QkvPrepareAndAttention) {
  const std::vector<AttentionCase> cases = {
      {4, 2, 32, 8, 0, 1, 1, true, true},          {4, 2, 32, 8, 0, 200, 200, true, true},
      {8, 2, 64, 64, 0, 1100, 3, false, false},    {2, 2, 18, 18, 0, 130, 130, false, false},
      {6, 1, 128, 32, 0, 70, 65, true, true},      {4, 4, 16, 16, 40, 300, 300, false, false},
      {4, 2, 64, 0, 1000, 2300, 60, false, false}, {100, 1, 16, 16, 0, 70, 5, false, false},
      {2, 1, 1024, 64, 0, 66, 3, true, true}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    if (rig->LimitOf({.head_dim = cases[i].head_dim}).has_value()) continue;
    std::vector<float> q_got, q_want;
    const std::vector<float> got = RunAttentionCase(rig, cases[i], &q_got);
    const std::vector<float> want = RunAttentionCase(reference, cases[i], &q_want);
    ExpectClose(q_got, q_want, stored(), bf16() ? 1e-5 : 3e-6);
    // bf16: rounded q, k (2^-9 each, scores up to ~10), weights and output (2^-9 each); values up to 1.
    ExpectClose(got, want, stored(), bf16() ? 0.03 : 2e-5);
  }
}

TEST_P(Conformance, CausalConvWithCarriedState) {
  const int64_t channels = 150;
  const std::vector<float> x = RandomFloats(9 * channels, 30, 2.0F);
  const std::vector<float> w = RandomFloats(channels * 4, 31);
  std::vector<float> state = RandomFloats(2 * 3 * channels, 32);
  std::vector<float> state_want = state;
  std::vector<float> got(9 * channels), want(9 * channels);
  const auto run = [&](const Rig& r, std::vector<float>& s, std::vector<float>& out) {
    const std::vector<StateSpan> spans = {{0, 2, s.data(), nullptr}, {2, 7, s.data() + 3 * channels, nullptr}};
    r->CausalConv({ViewOf(x, channels), w, 4, spans, ViewOf(out, channels)});
  };
  run(rig, state, got);
  run(reference, state_want, want);
  ExpectClose(got, want, 1e-6, 2e-6);
  EXPECT_EQ(BitsOf(state), BitsOf(state_want));
}

TEST_P(Conformance, DeltaScan) {
  for (const DeltaShape shape : {DeltaShape{2, 4, 16, 16}, DeltaShape{2, 2, 128, 128}, DeltaShape{1, 3, 24, 40}}) {
    const int64_t width = 2 * shape.heads_k * shape.dim_k + shape.heads_v * shape.dim_v;
    const int64_t state_size = shape.heads_v * shape.dim_k * shape.dim_v;
    const std::vector<float> qkv = RandomFloats(40 * width, 40);
    const std::vector<float> b = RandomFloats(40 * shape.heads_v, 41, 4.0F);
    const std::vector<float> a = RandomFloats(40 * shape.heads_v, 42, 30.0F);
    const std::vector<float> a_log = RandomFloats(shape.heads_v, 43);
    const std::vector<float> dt_bias = RandomFloats(shape.heads_v, 44);
    const auto run = [&](const Rig& r, std::vector<float>& s, std::vector<float>& out) {
      const std::vector<StateSpan> spans = {{0, 1, nullptr, s.data()}, {1, 39, nullptr, s.data() + state_size}};
      r->DeltaScan({shape, ViewOf(qkv, width), ViewOf(b, shape.heads_v), ViewOf(a, shape.heads_v), a_log, dt_bias,
                    spans, ViewOf(out, shape.heads_v * shape.dim_v)});
    };
    std::vector<float> state = RandomFloats(2 * state_size, 45, 0.3F);
    std::vector<float> state_want = state;
    std::vector<float> got(40 * shape.heads_v * shape.dim_v), want(got.size());
    run(rig, state, got);
    run(reference, state_want, want);
    ExpectClose(got, want, 1e-5, 2e-6);
    ExpectClose(state, state_want, 1e-5, 4e-6);
  }
}

TEST_P(Conformance, Experts) {
  const int64_t rows = 17, hidden = 48, inner = 24, experts = 5;
  const std::vector<float> x = RandomBf16Floats(rows * hidden, 50);
  std::vector<float> logits = RandomFloats(rows * experts, 51, 2.0F);
  for (int i = 0; i < 5; ++i) logits[i] = 0.5F;  // A row of ties: the lowest indices win.
  for (const auto& [normalize, residuals] :
       std::vector<std::pair<bool, bool>>{{true, false}, {false, false}, {true, true}}) {
    SCOPED_TRACE(testing::Message() << "normalize " << normalize << " residuals " << residuals);
    std::vector<float> got = RandomFloats(rows * hidden, 52);
    std::vector<float> want = got;
    const auto run = [&](const Rig& r, std::vector<float>& out) {
      std::vector<OwnedMatrix> owned;
      const auto matrix = [&](const int64_t n, const int64_t k, const uint32_t seed, const float scale) {
        owned.emplace_back(*r.backend, RandomBf16Floats(n * k, seed, scale), n, k);
        return owned.back().view();
      };
      std::vector<PackedMatrix> gate_up, down, gate_up_rest, down_rest;
      for (int64_t e = 0; e < experts; ++e) {
        gate_up.push_back(matrix(2 * inner, hidden, 60 + e, 0.3F));
        down.push_back(matrix(hidden, inner, 70 + e, 0.3F));
        if (!residuals) continue;
        const bool none = e == 2;  // Large enough that leaving one out shows.
        gate_up_rest.push_back(none ? PackedMatrix{} : matrix(2 * inner, hidden, 80 + e, 0.1F));
        down_rest.push_back(none ? PackedMatrix{} : matrix(hidden, inner, 90 + e, 0.1F));
      }
      r->Experts({OwnedActivations(r.activations(), rows, hidden, x).view(), ViewOf(logits, experts), 2, normalize,
                  gate_up, down, ViewOf(out, hidden), gate_up_rest, down_rest});
    };
    run(rig, got);
    run(reference, want);
    ExpectClose(got, want, 1e-5, bf16() ? 0x1p-8 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(SubjectOptions()), OptionsName);

TEST(MakeBackend, NamesWhatItKnowsWhenAskedForAnother) {
  WorkerPool pool(1);
  EXPECT_EQ(MakeBackend({.name = "tpu"}, pool).status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(MakeBackend({.name = "tpu"}, pool).status().message().find("cpu, cuda, auto, reference"),
            std::string::npos);
  EXPECT_EQ(MakeBackend({.name = "cpu", .isa = "mmx"}, pool).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SupportedIsas().back(), "scalar");
}

}  // namespace
}  // namespace invar::kernels
