// What is done to rows without fitting anything: codes on the wire, rope off and on, the choice under a budget.
#include "engine/transfer/scd_codes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/split_mix64.h"
#include "engine/transfer/scd_choose.h"
#include "engine/transfer/scd_rotation.h"

namespace invar::engine {
namespace {

FloatRows Drawn(const int64_t rows, const int64_t cols, const uint64_t seed) {
  SplitMix64 random(seed);
  FloatRows out(rows, cols);
  for (float& value : out.values) value = static_cast<float>(random.Next() >> 40) * 0x1p-23F - 1.0F;
  return out;
}

TEST(ScdCodes, ComeBackWithinHalfAStep) {
  FloatRows rows = Drawn(9, 7, 1);
  rows.row(4)[3] = 40.0F;  // Not cut off: its row's scale grows.
  std::fill(rows.row(5), rows.row(6), 0.0F);
  std::vector<float> sigma(7);
  for (size_t j = 0; j < 7; ++j) sigma[j] = 0.1F * static_cast<float>(j + 1);
  for (const CodeBits bits : {CodeBits::kInt8, CodeBits::kInt4}) {
    std::vector<std::byte> bytes;
    PackCodes(bits, rows.view(), sigma, bytes);
    ASSERT_EQ(std::ssize(bytes), 9 * CodeRowBytes(bits, 7));
    const FloatRows back = UnpackCodes(bits, bytes, 9, 7, sigma);
    const float steps = bits == CodeBits::kInt8 ? 127.0F : 7.0F;
    for (int64_t r = 0; r < 9; ++r) {
      float largest = 0.0F;
      for (size_t j = 0; j < 7; ++j) largest = std::max(largest, std::abs(rows.row(r)[j]) / sigma[j]);
      for (size_t j = 0; j < 7; ++j) {
        // A scale is rounded up to 8 bits of mantissa: at most 1/128 more.
        const float bound = 0.5F * largest * sigma[j] / steps * (1.0F + 1.0F / 128.0F) * 1.001F;
        EXPECT_NEAR(back.row(r)[j], rows.row(r)[j], bound) << CodeBitsName(bits) << " row " << r << " code " << j;
      }
    }
  }
  std::vector<std::byte> plain;
  PackCodes(CodeBits::kF32, rows.view(), {}, plain);
  EXPECT_EQ(UnpackCodes(CodeBits::kF32, plain, 9, 7, {}).values, rows.values);
}

TEST(ScdRotation, OffAndOnAgainIsTheSame) {
  const std::vector<double> frequencies = {1.0, 0.1, 0.01};
  const KeyRotation rotation{.inverse_frequencies = frequencies, .factor = 1.25, .head_dim = 8};
  const FloatRows keys = Drawn(50, 16, 2);
  FloatRows turned = keys;
  Rotate(rotation, 4000, turned);
  double moved = 0.0;
  for (size_t i = 0; i < keys.values.size(); ++i)
    moved = std::max<double>(moved, std::abs(turned.values[i] - keys.values[i]));
  EXPECT_GT(moved, 0.5);
  Unrotate(rotation, 4000, turned);
  for (size_t i = 0; i < keys.values.size(); ++i) ASSERT_NEAR(turned.values[i], keys.values[i], 1e-5) << i;
}

TEST(ScdRotation, TurnsPairsByTheirPosition) {
  const std::vector<double> frequencies = {0.5};
  const KeyRotation rotation{.inverse_frequencies = frequencies, .factor = 1.0, .head_dim = 3};
  FloatRows keys(2, 3);
  keys.row(1)[0] = 1.0F;
  keys.row(1)[2] = 7.0F;
  Rotate(rotation, 10, keys);  // The second row stands at position 11.
  EXPECT_NEAR(keys.row(1)[0], std::cos(5.5), 1e-6);
  EXPECT_NEAR(keys.row(1)[1], std::sin(5.5), 1e-6);
  EXPECT_EQ(keys.row(1)[2], 7.0F);
}

// Two layers: `a` is cheap to better, `b` dear.
std::vector<std::vector<ScdOption>> TwoLayers() {
  return {{{.bytes = 10, .loss = 1.0}, {.bytes = 20, .loss = 0.2}, {.bytes = 100, .loss = 0.1}},
          {{.bytes = 10, .loss = 0.5},
           {.bytes = 60, .loss = 0.3},
           {.bytes = 60, .loss = 0.1, .flops = 5.0, .patch = true}}};
}

TEST(ScdChoice, TakesWhatGainsMostPerByteThatFits) {
  const auto layers = TwoLayers();
  const auto choose = [&](const int64_t bytes, const double flops, const int32_t patches) {
    return ChooseScdOptions(layers, {.bytes = bytes, .flops = flops, .patch_layers = patches});
  };
  EXPECT_EQ(choose(5, 9.0, 9), (std::vector<size_t>{0, 0})) << "nothing fits: the fewest bytes";
  EXPECT_EQ(choose(30, 9.0, 9), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(choose(80, 9.0, 9), (std::vector<size_t>{1, 2}));
  EXPECT_EQ(choose(80, 4.0, 9), (std::vector<size_t>{1, 1})) << "no work for the patch";
  EXPECT_EQ(choose(80, 9.0, 0), (std::vector<size_t>{1, 1})) << "no patches";
  EXPECT_EQ(choose(160, 9.0, 9), (std::vector<size_t>{2, 2}));
}

}  // namespace
}  // namespace invar::engine
