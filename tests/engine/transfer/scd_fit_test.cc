// The closed forms on drawn rows, where the right answer is known.
#include <gtest/gtest.h>

#include <cmath>

#include "base/split_mix64.h"
#include "engine/transfer/scd_gram.h"
#include "engine/transfer/scd_maps.h"

namespace invar::engine {
namespace {

class Drawer {
 public:
  explicit Drawer(const uint64_t seed) : random_(seed) {}
  // About normal: the sum of four.
  float Next() {
    float sum = 0.0F;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(random_.Next() >> 40) * 0x1p-24F - 0.5F;
    return sum * 1.7320508F;
  }
  // Columns shrink, as those of activations do.
  FloatRows Rows(const int64_t rows, const int64_t cols, const float decay = 1.0F) {
    FloatRows out(rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
      float size = 1.0F;
      for (int64_t c = 0; c < cols; ++c, size *= decay) out.row(r)[c] = Next() * size;
    }
    return out;
  }

 private:
  SplitMix64 random_;
};

FloatRows Product(const FloatRows& a, const FloatRows& b) {
  FloatRows out(a.rows, b.cols);
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t c = 0; c < b.cols; ++c) out.row(r)[c] += a.row(r)[k] * b.row(k)[c];
    }
  }
  return out;
}

double RelativeError(const FloatRows& wanted, const FloatRows& found) {
  double error = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    const double difference = static_cast<double>(wanted.values[i]) - found.values[i];
    error += difference * difference;
    size += static_cast<double>(wanted.values[i]) * wanted.values[i];
  }
  return std::sqrt(error / size);
}

PairSums SumsOf(const FloatRows& x, const FloatRows& y) {
  PairSums sums(x.cols, y.cols);
  const std::vector<float> even(static_cast<size_t>(x.rows), 1.0F);
  sums.Add(x.view(), y.view(), even);
  return sums;
}

ScdLinearFit FitAll(const PairSums& sums) {
  const std::vector<float> scale(static_cast<size_t>(sums.outputs()), OutputSize(sums, 0, sums.outputs()));
  return FitReducedRank(sums, 0, sums.outputs(), scale, 1e-8);
}

TEST(ScdFit, AnEqualPairIsReproducedAtFullRank) {
  Drawer draw(1);
  FloatRows x = draw.Rows(500, 24, 0.9F);
  for (float& value : x.values) value += 3.0F;  // A mean that a map without one would spend a code on.
  const ScdLinearFit fit = FitAll(SumsOf(x, x));
  const FloatRows codes = fit.encoder.Encode(x.view(), 24);
  EXPECT_LE(RelativeError(x, fit.decoder.Decode(codes, fit.encoder.sigma)), 1e-4);
}

TEST(ScdFit, EveryRankIsAtLeastAsGoodAsTheOneBefore) {
  Drawer draw(2);
  const FloatRows x = draw.Rows(600, 20, 0.85F);
  FloatRows y = Product(x, draw.Rows(20, 12));
  for (float& value : y.values) value += 0.3F * draw.Next();
  const ScdLinearFit fit = FitAll(SumsOf(x, y));
  ASSERT_EQ(fit.errors.size(), 13U);
  double before = 1.0;
  for (int64_t rank = 1; rank <= 12; ++rank) {
    EXPECT_LE(fit.errors[static_cast<size_t>(rank)], before + 1e-12) << rank;
    before = fit.errors[static_cast<size_t>(rank)];
    // What it says is what decoding gives.
    const FloatRows made = fit.decoder.Decode(fit.encoder.Encode(x.view(), rank), fit.encoder.sigma);
    double error = 0.0;
    double variance = 0.0;
    for (int64_t r = 0; r < y.rows; ++r) {
      for (int64_t c = 0; c < y.cols; ++c) {
        error += std::pow(y.row(r)[c] - made.row(r)[c], 2);
        variance += std::pow(y.row(r)[c] - fit.decoder.mean[static_cast<size_t>(c)], 2);
      }
    }
    EXPECT_NEAR(error / variance, before, 1e-4) << rank;
  }
  EXPECT_LT(before, 0.9 * fit.errors[4]) << "the test shows something";
}

// K and V are linear in the input, so whatever a code of them can say a code of the input can.
TEST(ScdFit, CodesOfTheInputAreAtLeastAsGoodAsCodesOfKeysAndValues) {
  Drawer draw(3);
  const FloatRows input = draw.Rows(800, 32, 0.9F);
  FloatRows both = Product(input, draw.Rows(32, 16));  // The producer's [K | V].
  FloatRows wanted = Product(input, draw.Rows(32, 16));
  for (size_t i = 0; i < wanted.values.size(); ++i) wanted.values[i] = 0.7F * both.values[i] + 0.5F * wanted.values[i];
  const ScdLinearFit from_input = FitAll(SumsOf(input, wanted));
  const ScdLinearFit from_both = FitAll(SumsOf(both, wanted));
  for (size_t rank = 1; rank <= 16; ++rank) EXPECT_LE(from_input.errors[rank], from_both.errors[rank] + 1e-9) << rank;
  EXPECT_LT(from_input.errors[12], 0.9 * from_both.errors[12]) << "the test shows something";
}

TEST(ScdFit, WeightsDecideWhatIsFittedWell) {
  Drawer draw(4);
  const FloatRows x = draw.Rows(400, 6);
  FloatRows y(400, 1);
  for (int64_t r = 0; r < 400; ++r) y.row(r)[0] = x.row(r)[r % 2];  // Odd rows follow another rule.
  std::vector<float> weights(400, 1.0F);
  for (size_t r = 1; r < 400; r += 2) weights[r] = 0.001F;
  PairSums sums(6, 1);
  sums.Add(x.view(), y.view(), weights);
  const RidgeFit fit = FitRidge(sums, 1e-8);
  EXPECT_NEAR(fit.matrix.values[0], 1.0F, 0.02F);
  EXPECT_NEAR(fit.matrix.values[1], 0.0F, 0.02F);
}

TEST(ScdFit, FeaturesBeatALineWhereTheRelationIsNoLine) {
  Drawer draw(5);
  const FloatRows x = draw.Rows(3000, 4);
  FloatRows y(3000, 3);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < 3; ++c) y.row(r)[c] = std::abs(x.row(r)[c]) + 0.5F * x.row(r)[c + 1];
  }
  const std::vector<float> sigma(4, 1.0F);
  const ScdLinearFit linear = FitAll(SumsOf(x, y));
  const RidgeFit fit = FitRidge(SumsOf(ExpandFeatures(x, sigma, 128), y), 1e-3);
  const ScdDecoder decoder{.rank = 4, .features = 128, .mean = fit.mean, .matrix = fit.matrix};
  const FloatRows straight = linear.decoder.Decode(linear.encoder.Encode(x.view(), 3), linear.encoder.sigma);
  EXPECT_LT(RelativeError(y, decoder.Decode(x, sigma)), 0.5 * RelativeError(y, straight));
}

// --- Recurrent states ---
constexpr int64_t kDim = 8;

// The gated delta rule of one head: S = g S; S += beta k (v - S^T k)^T, keys of length 1.
FloatRows Scan(const FloatRows& keys, const FloatRows& values) {
  FloatRows state(kDim, kDim);
  for (int64_t t = 0; t < keys.rows; ++t) {
    const float gate = t % 7 == 0 ? 0.7F : 0.98F;
    const float beta = 0.3F + 0.1F * static_cast<float>(t % 5);
    for (float& s : state.values) s *= gate;
    for (int64_t v = 0; v < kDim; ++v) {
      float read = 0.0F;
      for (int64_t k = 0; k < kDim; ++k) read += state.row(k)[v] * keys.row(t)[k];
      const float error = beta * (values.row(t)[v] - read);
      for (int64_t k = 0; k < kDim; ++k) state.row(k)[v] += keys.row(t)[k] * error;
    }
  }
  return state;
}

void ToUnit(FloatRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    float sum = 0.0F;
    for (int64_t c = 0; c < rows.cols; ++c) sum += rows.row(r)[c] * rows.row(r)[c];
    for (int64_t c = 0; c < rows.cols; ++c) rows.row(r)[c] /= std::sqrt(sum);
  }
}

// A rotation by plane turns.
FloatRows Rotation(Drawer& draw) {
  FloatRows m(kDim, kDim);
  for (int64_t i = 0; i < kDim; ++i) m.row(i)[i] = 1.0F;
  for (int64_t i = 0; i + 1 < kDim; ++i) {
    for (int64_t j = i + 1; j < kDim; ++j) {
      const float angle = draw.Next();
      for (int64_t c = 0; c < kDim; ++c) {
        const float a = m.row(i)[c];
        const float b = m.row(j)[c];
        m.row(i)[c] = std::cos(angle) * a - std::sin(angle) * b;
        m.row(j)[c] = std::sin(angle) * a + std::cos(angle) * b;
      }
    }
  }
  return m;
}

TEST(ScdStates, OfARotatedPairAreMappedExactly) {
  Drawer draw(6);
  FloatRows keys = draw.Rows(400, kDim);
  ToUnit(keys);
  const FloatRows values = draw.Rows(400, kDim);
  const FloatRows other_keys = Product(keys, Rotation(draw));
  const FloatRows other_values = Product(values, draw.Rows(kDim, kDim));
  HeadSums key_sums(kDim);
  key_sums.Add(keys.view(), other_keys.view(), 0, /*unit=*/true);
  HeadSums value_sums(kDim);
  value_sums.Add(values.view(), other_values.view(), 0, /*unit=*/false);
  ScdStateMap map{.heads_k = 1,
                  .heads_v = 1,
                  .dim_k = kDim,
                  .dim_v = kDim,
                  .keys = FitRotation(key_sums),
                  .values = FitHeadRidge(value_sums, 1e-8),
                  .gain = {1.0F}};
  const FloatRows state = Scan(keys, values);
  const FloatRows wanted = Scan(other_keys, other_values);
  FloatRows mapped(kDim, kDim);
  map.Apply(state.values, mapped.values);
  EXPECT_LE(RelativeError(wanted, mapped), 1e-4);
  EXPECT_GT(RelativeError(wanted, state), 0.5) << "raw reuse is far off";
}

}  // namespace
}  // namespace invar::engine
