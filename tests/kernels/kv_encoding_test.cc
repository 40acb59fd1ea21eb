// Encodings of pages: what they cost, how far a decoded row may lie from what was encoded, and that the bytes are those
// of the layout in the header.
#include "kernels/kv_encoding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "base/split_mix64.h"
#include "kernels/bf16.h"

namespace invar::kernels {
namespace {

constexpr int64_t kSlots = kEncodedPageSlots;

struct Page {
  Page(const PageShape& page_shape) : shape(page_shape) {  // NOLINT: implicit.
    keys.resize(kSlots * shape.kv_heads * shape.head_dim);
    values.resize(keys.size());
  }
  // Slot by slot, the heads of a slot beside each other.
  KvRows rows() {
    return {keys.data(), values.data(), kSlots, shape.head_dim, int64_t{shape.kv_heads} * shape.head_dim};
  }
  PageShape shape;
  std::vector<float> keys, values;
};

float Uniform(SplitMix64& random) { return static_cast<float>(random.Next() >> 40) * 0x1p-23F - 1.0F; }

// Keys with large fixed channels, as models have them; values small. All exact in bf16.
Page RandomPage(const PageShape& shape, const uint64_t seed) {
  Page page(shape);
  SplitMix64 random(seed);
  std::vector<float> offset(shape.kv_heads * shape.head_dim);
  for (float& x : offset) x = random.Next() % 8 == 0 ? 40.0F * Uniform(random) : 0.0F;
  for (size_t i = 0; i < page.keys.size(); ++i) {
    page.keys[i] = FloatFromBf16(Bf16FromFloat(offset[i % offset.size()] + 2.0F * Uniform(random)));
    page.values[i] = FloatFromBf16(Bf16FromFloat(0.3F * Uniform(random)));
  }
  return page;
}

std::vector<std::byte> Encoded(const KvEncoding encoding, Page& page) {
  std::vector<std::byte> bytes(EncodedPageBytes(encoding, page.shape), std::byte{0xA5});
  EncodePage(encoding, page.shape, page.rows(), bytes);
  return bytes;
}

Page Decoded(const KvEncoding encoding, const PageShape& shape, const std::vector<std::byte>& bytes) {
  Page page(shape);
  DecodePage(encoding, shape, bytes, page.rows());
  return page;
}

struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(const double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

// The group that value (h, s, i) shares its range with, by the header.
Span GroupOf(const KvEncoding encoding, const bool values, Page& page, const int64_t h, const int64_t s,
             const int64_t i) {
  const KvRows rows = page.rows();
  const auto at = [&](const int64_t slot, const int64_t dim) {
    return values ? rows.value(h, slot)[dim] : rows.key(h, slot)[dim];
  };
  Span span;
  const bool by_slot =
      encoding == KvEncoding::kInt8 || (encoding == KvEncoding::kK8V4 && !values);  // One scale a slot.
  if (by_slot || values) {
    const int64_t group = by_slot ? page.shape.head_dim : kEncodedValueGroup;
    const int64_t first = i / group * group;
    for (int64_t d = first; d < std::min<int64_t>(first + group, page.shape.head_dim); ++d) span.Add(at(s, d));
  } else {
    const int64_t group = encoding == KvEncoding::kKivi4 ? 64 : 32;
    for (int64_t t = s / group * group; t < (s / group + 1) * group; ++t) span.Add(at(t, i));
  }
  return span;
}

void ExpectWithinBounds(const KvEncoding encoding, Page& page, Page& back) {
  for (int64_t h = 0; h < page.shape.kv_heads; ++h) {
    for (int64_t s = 0; s < kSlots; ++s) {
      for (int64_t i = 0; i < page.shape.head_dim; ++i) {
        for (const bool values : {false, true}) {
          const Span group = GroupOf(encoding, values, page, h, s, i);
          const double bound = EncodingErrorBound(encoding, values, group.low, group.high);
          const double was = values ? page.rows().value(h, s)[i] : page.rows().key(h, s)[i];
          const double is = values ? back.rows().value(h, s)[i] : back.rows().key(h, s)[i];
          ASSERT_LE(std::abs(was - is), bound) << KvEncodingName(encoding) << (values ? " value " : " key ") << h << ' '
                                               << s << ' ' << i << " in " << group.low << ".." << group.high;
        }
      }
    }
  }
}

class Encodings : public testing::TestWithParam<std::tuple<KvEncoding, int32_t, int32_t>> {
 protected:
  KvEncoding encoding() const { return std::get<0>(GetParam()); }
  PageShape shape() const { return {.kv_heads = std::get<1>(GetParam()), .head_dim = std::get<2>(GetParam())}; }
};

TEST_P(Encodings, ComeBackWithinTheStatedBound) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Page page = RandomPage(shape(), seed);
    Page back = Decoded(encoding(), shape(), Encoded(encoding(), page));
    if (encoding() == KvEncoding::kDense) {
      EXPECT_EQ(page.keys, back.keys);
      EXPECT_EQ(page.values, back.values);
    } else {
      ExpectWithinBounds(encoding(), page, back);
    }
  }
}

TEST_P(Encodings, WriteEveryByteAndNothingThatDependsOnStrides) {
  Page page = RandomPage(shape(), 7);
  // The same rows head by head instead of slot by slot.
  Page other(shape());
  const KvRows by_head = {other.keys.data(), other.values.data(), kSlots, kSlots * shape().head_dim, shape().head_dim};
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    for (int64_t s = 0; s < kSlots; ++s) {
      std::copy_n(page.rows().key(h, s), shape().head_dim, by_head.key(h, s));
      std::copy_n(page.rows().value(h, s), shape().head_dim, by_head.value(h, s));
    }
  }
  std::vector<std::byte> bytes(EncodedPageBytes(encoding(), shape()), std::byte{0x5A});
  EncodePage(encoding(), shape(), by_head, bytes);
  EXPECT_EQ(bytes, Encoded(encoding(), page));
}

TEST_P(Encodings, TakeGarbageAndAnyBytes) {
  Page page = RandomPage(shape(), 9);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       3e38F,
                       1e-42F,
                       -1e-42F,
                       -0.0F};
  for (size_t i = 0; i < page.keys.size(); i += 5) {
    page.keys[i] = bad[i / 5 % std::size(bad)];
    page.values[page.values.size() - 1 - i] = bad[i / 5 % std::size(bad)];
  }
  const std::vector<std::byte> bytes = Encoded(encoding(), page);
  EXPECT_EQ(bytes, Encoded(encoding(), page));
  Page back = Decoded(encoding(), shape(), bytes);
  if (encoding() != KvEncoding::kDense) {
    for (const float x : back.keys) ASSERT_LE(std::abs(x), 66000.0F);
    for (const float x : back.values) ASSERT_LE(std::abs(x), 66000.0F);
  }
  SplitMix64 random(3);
  std::vector<std::byte> noise(bytes.size());
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random.Next());
  Decoded(encoding(), shape(), noise);  // The sanitizers watch.
}

TEST_P(Encodings, KeepAPageOfEqualRowsToOnePartIn1000) {
  Page page(shape());
  for (size_t i = 0; i < page.keys.size(); ++i) page.keys[i] = page.values[i] = 3.0F;
  Page back = Decoded(encoding(), shape(), Encoded(encoding(), page));
  for (const float x : back.keys) ASSERT_NEAR(x, 3.0F, 3e-3F);
  for (const float x : back.values) ASSERT_NEAR(x, 3.0F, 3e-3F);
}

INSTANTIATE_TEST_SUITE_P(All, Encodings,
                         testing::Combine(testing::Values(KvEncoding::kDense, KvEncoding::kInt8, KvEncoding::kK8V4,
                                                          KvEncoding::kKivi4, KvEncoding::kKivi2),
                                          testing::Values(1, 3), testing::Values(2, 31, 64, 80)),
                         [](const auto& info) {
                           return std::string(KvEncodingName(std::get<0>(info.param))) + "_heads" +
                                  std::to_string(std::get<1>(info.param)) + "_dim" +
                                  std::to_string(std::get<2>(info.param));
                         });

TEST(KvEncoding, TakesTheBytesThatItsHeaderSays) {
  const PageShape shape = {.kv_heads = 2, .head_dim = 128};
  EXPECT_EQ(EncodedPageBytes(KvEncoding::kDense, shape), 2 * 64 * 128 * 4);
  EXPECT_EQ(EncodedPageBytes(KvEncoding::kDense, {2, 128, DType::kF32}), 2 * 64 * 128 * 8);
  EXPECT_EQ(EncodedPageBytes(KvEncoding::kInt8, shape), 2 * (2 * 64 * 128 + 2 * 128));
  EXPECT_EQ(EncodedPageBytes(KvEncoding::kK8V4, shape), 2 * (64 * 128 + 128 + 64 * 64 + 64 * 4 * 4));
  EXPECT_EQ(EncodedPageBytes(KvEncoding::kKivi4, shape), 2 * (2 * 64 * 64 + 128 * 4 + 64 * 4 * 4));
  EXPECT_EQ(EncodedPageBytes(KvEncoding::kKivi2, shape), 2 * (2 * 64 * 32 + 128 * 8 + 64 * 4 * 4));
}

// Two channels by hand: 0, 1, .. 15, 0, 1, ..: zero 0, scale 1, so that codes are the values.
TEST(KvEncoding, LaysCodesAsTheHeaderSays) {
  Page page({.kv_heads = 1, .head_dim = 2});
  for (int64_t s = 0; s < kSlots; ++s) {
    page.rows().key(0, s)[0] = static_cast<float>((s + s / 16) % 16);
    page.rows().key(0, s)[1] = static_cast<float>(s % 16) - 8.0F;
    page.rows().value(0, s)[0] = 1.0F;
    page.rows().value(0, s)[1] = s < 4 ? 16.0F : 1.0F;
  }
  const std::vector<std::byte> bytes = Encoded(KvEncoding::kKivi4, page);
  const EncodedHeadLayout layout = EncodedHead(KvEncoding::kKivi4, 2);
  EXPECT_EQ(layout.key_ranges, 2 * 64);
  EXPECT_EQ(bytes[0], std::byte{0x10}) << "dim 0 of slots 0 and 16";
  EXPECT_EQ(bytes[1], std::byte{0x00}) << "dim 1 of slots 0 and 16";
  EXPECT_EQ(bytes[2], std::byte{0}) << "dims 2 and 3 are padding";
  EXPECT_EQ(bytes[4 * 5], std::byte{0x65}) << "dim 0 of slots 5 and 21";
  EXPECT_EQ(bytes[64 + 4 * 5 + 1], std::byte{0x55}) << "dim 1 of slots 37 and 53";
  const auto f16 = [&](const int64_t at) {
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[at], 2);
    return FloatFromF16(bits);
  };
  EXPECT_EQ(f16(layout.key_ranges), 0.0F);
  EXPECT_EQ(f16(layout.key_ranges + 2), -8.0F);
  EXPECT_EQ(f16(layout.key_ranges + 2 * 4), 1.0F) << "zeros of four dims, then their scales";
  EXPECT_EQ(bytes[layout.value_codes], std::byte{0x00}) << "dim 0 of slots 0 and 4";
  EXPECT_EQ(bytes[layout.value_codes + 4], std::byte{0x0F}) << "dim 1 of slots 0 and 4";
  EXPECT_EQ(bytes[layout.value_codes + 4 + 3], std::byte{0x0F}) << "dim 1 of slots 3 and 7";
  EXPECT_EQ(f16(layout.value_ranges + 2 * 3), 1.0F);
  EXPECT_EQ(f16(layout.value_ranges + 2 * (64 + 3)), 1.0F);
  EXPECT_EQ(f16(layout.value_ranges + 2 * (64 + 4)), 0.0F);
}

// Of any size, down to where f16 has steps of 2^-24: a range spans what it is of.
TEST(KvEncoding, RoundsRangesOutwards) {
  SplitMix64 random(11);
  for (int round = 0; round < 400; ++round) {
    Page page({.kv_heads = 1, .head_dim = 32});
    const float size = std::ldexp(1.0F, static_cast<int>(random.Next() % 42) - 26);
    const float shift = 0.5F * static_cast<float>(round % 3);
    for (float& x : page.values) x = std::clamp(size * (Uniform(random) + shift), -65504.0F, 65504.0F);
    const std::vector<std::byte> bytes = Encoded(KvEncoding::kKivi4, page);
    const EncodedHeadLayout layout = EncodedHead(KvEncoding::kKivi4, 32);
    for (int64_t s = 0; s < kSlots; ++s) {
      uint16_t bits[2] = {};
      std::memcpy(&bits[0], &bytes[layout.value_ranges + 2 * s], 2);
      std::memcpy(&bits[1], &bytes[layout.value_ranges + 2 * (64 + s)], 2);
      const float zero = FloatFromF16(bits[0]);
      const float scale = FloatFromF16(bits[1]);
      const auto [low, high] = std::minmax_element(page.values.begin() + s * 32, page.values.begin() + (s + 1) * 32);
      ASSERT_LE(zero, *low);
      ASSERT_GE(zero + 15.0 * scale, *high * (1.0 - 1e-6 * (*high > 0 ? 1 : -1)));
      ASSERT_GT(zero + std::max(std::abs(zero) * 0x1p-10F, 0x1p-24F), *low) << "the nearest f16 below";
    }
  }
}

TEST(KvEncoding, ErrsLessWithMoreBits) {
  Page page = RandomPage({.kv_heads = 2, .head_dim = 64}, 5);
  const auto worst_key = [&](const KvEncoding encoding) {
    Page back = Decoded(encoding, page.shape, Encoded(encoding, page));
    float worst = 0.0F;
    for (size_t i = 0; i < page.keys.size(); ++i) worst = std::max(worst, std::abs(page.keys[i] - back.keys[i]));
    return worst;
  };
  // Channels span 4: half a step is 4 / 30 and 4 / 6, and an int8 step is set by the largest channel, at most 42 / 127.
  EXPECT_LT(worst_key(KvEncoding::kKivi4), 0.14F);
  EXPECT_GT(worst_key(KvEncoding::kKivi4), 0.10F);
  EXPECT_LT(worst_key(KvEncoding::kKivi2), 0.70F);
  EXPECT_GT(worst_key(KvEncoding::kKivi2), 0.50F);
  EXPECT_LT(worst_key(KvEncoding::kInt8), 0.17F);
}

}  // namespace
}  // namespace invar::kernels
