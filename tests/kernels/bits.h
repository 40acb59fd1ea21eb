// What tests of equal bits run: a sequence's attention and recurrence in any cuts, and every operation once.
#pragma once

#include <algorithm>

#include "tests/kernels/rig.h"

namespace invar::kernels {

// Magnitudes from denormal to large, signs and zeros: what tells rounding orders and flushing apart.
inline std::vector<float> WildFloats(const size_t count, const uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto random = static_cast<uint32_t>(engine());
    const uint32_t exponent = random % 4 == 0 ? (random >> 3) % 190 : 110 + (random >> 3) % 30;
    value = std::bit_cast<float>((static_cast<uint32_t>(engine()) & 0x807fffffU) | exponent << 23);
  }
  return values;
}

using Results = std::vector<std::vector<uint32_t>>;

inline std::vector<float> Linear(const Rig& rig, const std::vector<float>& x, const OwnedMatrix& w,
                                 const int64_t rows) {
  const int64_t k = w.view().cols;
  std::vector<float> out(rows * w.view().rows);
  rig->Linear(OwnedActivations(rig.activations(), rows, k, x).view(), w.view(), {}, LinearMode::kStore,
              ViewOf(out, w.view().rows));
  return out;
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

inline std::vector<uint32_t> AttendInCuts(const Rig& rig, const AttentionShape& shape, const int32_t first,
                                          const int32_t positions, const std::vector<int32_t>& cuts,
                                          const bool poison = false) {
  AttentionSequence sequence(rig, shape, positions, poison);
  sequence.Append(first);
  for (size_t i = 0; sequence.done_ < positions; ++i) {
    sequence.Append(std::min(cuts[i % cuts.size()], positions - sequence.done_));
  }
  return sequence.bits();
}

struct DeltaRun {
  std::vector<uint32_t> out;
  std::vector<uint32_t> conv_out;
  std::vector<uint32_t> state;
  std::vector<uint32_t> conv_state;
};

// Convolution and delta rule of 600 tokens in the given cuts.
inline DeltaRun ScanInCuts(const Rig& rig, const std::vector<int32_t>& cuts) {
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

// Several operations over a batch; the results in order. Wide inputs where the operation stays finite.
inline Results RunEverything(const Rig& rig) {
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

}  // namespace invar::kernels
