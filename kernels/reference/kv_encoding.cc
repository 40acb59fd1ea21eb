// The definition of kernels/kv_encoding.h. Ranges are rounded outwards to f16, zero down and scale up, so that codes
// never have to be cut at their ends:
//   8 bits:  scale = up(max |x| / 127), code = 128 + nearest(x / scale)
//   else:    zero = down(min x), scale = up((max x - zero) / levels), code = nearest((x - zero) / scale)
// Divisions in float; nearest is to even. A scale of 0 has code 0, or 128.
// Views of long prompts are made here, so the loops are over dims, which lie side by side, and become vectors.
#include "kernels/kv_encoding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/bf16.h"
#include "kernels/dense_page.h"

namespace invar::kernels {
namespace {

constexpr int64_t kSlots = kEncodedPageSlots;
constexpr float kF16Max = 65504.0F;
constexpr int64_t kLanes = 16;      // Slots or dims whose codes lie side by side.
constexpr int64_t kNeighbours = 4;  // Codes of one of them, along the other axis.
constexpr int64_t kTileBytes = kLanes * kNeighbours;
// A row of the largest head.
constexpr int64_t kDimMax = 1024;
using Row = std::array<float, kDimMax>;
using CodeRow = std::array<uint8_t, kDimMax>;

int64_t RoundUp(const int64_t a, const int64_t to) { return (a + to - 1) / to * to; }
int64_t ValueGroups(const int64_t dim) { return RoundUp(dim, kEncodedValueGroup) / kEncodedValueGroup; }

// What is too small to matter counts as zero, so that bytes do not depend on whether the thread flushes denormals.
float Finite(const float x) {
  const float magnitude = x < 0.0F ? -x : x;
  const float most = x > kF16Max ? kF16Max : x;
  const float within = most < -kF16Max ? -kF16Max : most;
  return magnitude >= 0x1p-60F ? within : 0.0F;  // Not of NaN.
}

// The nearest whole number, on ties the even one. Requires: |x| < 2^22.
float Nearest(const float x) {
  constexpr float kMagic = 0x1.8p23F;  // The sum has no bits below 1.
  return (x + kMagic) - kMagic;
}

// From the bits of a float to those of the f16 of equal exponent.
constexpr uint32_t kRebias = uint32_t{127 - 15} << 10;
constexpr float kLeastNormal = 0x1p-14F;

// The smallest f16 >= x as bits, for x in [0, 65504].
uint16_t F16Up(const float x) {
  const uint32_t normal = ((std::bit_cast<uint32_t>(x) + 0x1fffU) >> 13) - kRebias;
  const float steps = x * 0x1p24F;  // Exact, of 2^-24: what numbers below the least normal one are multiples of.
  const auto whole = static_cast<int32_t>(x < kLeastNormal ? steps : 0.0F);
  const uint32_t small = static_cast<uint32_t>(whole) + (static_cast<float>(whole) < steps ? 1U : 0U);
  return static_cast<uint16_t>(x < kLeastNormal ? small : normal);
}

// The largest f16 <= x as bits, for |x| <= 65504.
uint16_t F16Down(const float x) {
  if (x < 0.0F) return static_cast<uint16_t>(0x8000U | F16Up(-x));
  if (x < kLeastNormal) return static_cast<uint16_t>(static_cast<int32_t>(x * 0x1p24F));
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) >> 13) - kRebias);
}

void Put16(std::byte* at, const int64_t index, const uint16_t bits) { std::memcpy(at + 2 * index, &bits, 2); }
float Get16(const std::byte* at, const int64_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, at + 2 * index, 2);
  return FloatFromF16(bits);
}

// A range, rounded as it is stored.
struct Range {
  uint16_t zero_bits = 0;
  uint16_t scale_bits = 0;
  float zero = 0.0F;
  float divisor = 1.0F;  // The scale; 1 where that is 0, as all of the range is `zero` then.
};
Range RangeOf(const float low, const float high, const int levels) {
  Range range;
  range.zero_bits = F16Down(low);
  range.zero = FloatFromF16(range.zero_bits);
  range.scale_bits = F16Up((high - range.zero) / static_cast<float>(levels));
  const float scale = FloatFromF16(range.scale_bits);
  range.divisor = scale == 0.0F ? 1.0F : scale;
  return range;
}

float CodeIn(const float x, const float zero, const float divisor, const float levels) {
  const float code = Nearest((x - zero) / divisor);
  const float above = code < 0.0F ? 0.0F : code;
  return above > levels ? levels : above;
}

// Smallest and largest of a row's values, sixteen chains side by side.
struct Ends {
  float low = 0.0F;
  float high = 0.0F;
};
Ends EndsOf(const float* x, const int64_t count) {
  std::array<float, kLanes> low;
  std::array<float, kLanes> high;
  low.fill(x[0]);
  high.fill(x[0]);
  const auto take = [&](const int64_t lane, const float value) {
    low[lane] = value < low[lane] ? value : low[lane];
    high[lane] = value > high[lane] ? value : high[lane];
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) take(j, x[i + j]);
  }
  for (int64_t j = 0; i + j < count; ++j) take(j, x[i + j]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) {
      low[j] = low[j + half] < low[j] ? low[j + half] : low[j];
      high[j] = high[j + half] > high[j] ? high[j + half] : high[j];
    }
  }
  return {low[0], high[0]};
}

// Codes of a row with one scale; returns the scale's bits.
uint16_t SignedCodes(const float* row, const int64_t dim, CodeRow& codes) {
  Row x;
  for (int64_t i = 0; i < dim; ++i) x[i] = Finite(row[i]);
  const Ends ends = EndsOf(x.data(), dim);
  const float largest = -ends.low > ends.high ? -ends.low : ends.high;
  const uint16_t scale_bits = F16Up((largest > 0.0F ? largest : 0.0F) / 127.0F);
  const float scale = FloatFromF16(scale_bits);
  const float divisor = scale == 0.0F ? 1.0F : scale;
  const float keep = scale == 0.0F ? 0.0F : 1.0F;
  for (int64_t i = 0; i < dim; ++i) {
    const float code = Nearest(x[i] / divisor) * keep;
    const float above = code < -127.0F ? -127.0F : code;
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>((above > 127.0F ? 127.0F : above) + 128.0F));
  }
  return scale_bits;
}

// Adds a slot's key codes, of 4 dims at a time, to those of the slots that share its bytes.
void AddKeyCodes(const int bits, const int64_t slot, const int64_t dim, const CodeRow& codes, std::byte* keys) {
  const int64_t per_byte = 8 / bits;
  const int64_t tile = slot / kLanes;
  std::byte* to = keys + tile / per_byte * kTileBytes + slot % kLanes * kNeighbours;
  for (int64_t i = 0; i < dim; i += kNeighbours) {
    uint32_t word = 0;
    uint32_t more = 0;
    std::memcpy(&word, to, sizeof(word));
    std::memcpy(&more, codes.data() + i, sizeof(more));
    word |= more << (tile % per_byte * bits);
    std::memcpy(to, &word, sizeof(word));
    to += kTileBytes * 4 / per_byte;
  }
}

// The same of the value codes of slots 4 g .. 4 g + 3.
void AddValueCodes(const int bits, const int64_t g, const int64_t dim, const std::array<CodeRow, 4>& codes,
                   std::byte* values) {
  const int64_t per_byte = 8 / bits;
  const auto shift = static_cast<int>(g % per_byte * bits);
  std::byte* to = values + g / per_byte * kTileBytes;
  for (int64_t i = 0; i < dim; i += kLanes) {
    std::array<uint32_t, kLanes> words;
    std::memcpy(words.data(), to, kTileBytes);
    for (int64_t j = 0; j < kLanes; ++j) {
      const uint32_t word = codes[0][i + j] | uint32_t{codes[1][i + j]} << 8 | uint32_t{codes[2][i + j]} << 16 |
                            uint32_t{codes[3][i + j]} << 24;
      words[j] |= word << shift;
    }
    std::memcpy(to, words.data(), kTileBytes);
    to += kTileBytes * 16 / per_byte;
  }
}

void EncodeSignedKeys(const EncodedHeadLayout& layout, const ConstKvRows& rows, const int64_t h, const int64_t dim,
                      std::byte* block) {
  CodeRow codes{};
  for (int64_t s = 0; s < kSlots; ++s) {
    Put16(block + layout.key_ranges, s, SignedCodes(rows.key(h, s), dim, codes));
    AddKeyCodes(8, s, dim, codes, block);
  }
}

void EncodeRangedKeys(const EncodedCodes& format, const EncodedHeadLayout& layout, const ConstKvRows& rows,
                      const int64_t h, const int64_t dim, std::byte* block) {
  const int64_t padded = RoundUp(dim, kNeighbours);
  const int levels = (1 << format.key_bits) - 1;
  Row low;
  Row high;
  Row zeros;
  Row divisors;
  CodeRow codes{};
  for (int64_t first = 0; first < kSlots; first += format.key_group) {
    for (int64_t i = 0; i < dim; ++i) low[i] = high[i] = Finite(rows.key(h, first)[i]);
    for (int64_t s = first + 1; s < first + format.key_group; ++s) {
      const float* k = rows.key(h, s);
      for (int64_t i = 0; i < dim; ++i) {
        const float x = Finite(k[i]);
        low[i] = x < low[i] ? x : low[i];
        high[i] = x > high[i] ? x : high[i];
      }
    }
    std::byte* ranges = block + layout.key_ranges + first / format.key_group * 4 * padded;
    for (int64_t i = 0; i < dim; ++i) {
      const Range range = RangeOf(low[i], high[i], levels);
      Put16(ranges, i, range.zero_bits);
      Put16(ranges, padded + i, range.scale_bits);
      zeros[i] = range.zero;
      divisors[i] = range.divisor;
    }
    for (int64_t s = first; s < first + format.key_group; ++s) {
      const float* k = rows.key(h, s);
      for (int64_t i = 0; i < dim; ++i) {
        codes[i] = static_cast<uint8_t>(
            static_cast<int32_t>(CodeIn(Finite(k[i]), zeros[i], divisors[i], static_cast<float>(levels))));
      }
      AddKeyCodes(format.key_bits, s, dim, codes, block);
    }
  }
}

// Codes of one slot's values in ranges of 32 dims, which are written.
void RangedCodes(const EncodedCodes& format, const float* row, const int64_t slot, const int64_t dim, std::byte* ranges,
                 CodeRow& codes) {
  const int levels = (1 << format.value_bits) - 1;
  for (int64_t g = 0; g < ValueGroups(dim); ++g) {
    const int64_t first = g * kEncodedValueGroup;
    const int64_t count = std::min<int64_t>(kEncodedValueGroup, dim - first);
    std::array<float, kEncodedValueGroup> x{};
    for (int64_t i = 0; i < count; ++i) x[i] = Finite(row[first + i]);
    const Ends ends = EndsOf(x.data(), count);
    const Range range = RangeOf(ends.low, ends.high, levels);
    Put16(ranges, 2 * g * kSlots + slot, range.zero_bits);
    Put16(ranges, (2 * g + 1) * kSlots + slot, range.scale_bits);
    for (int64_t i = 0; i < count; ++i) {
      codes[first + i] = static_cast<uint8_t>(
          static_cast<int32_t>(CodeIn(x[i], range.zero, range.divisor, static_cast<float>(levels))));
    }
  }
}

void EncodeValues(const EncodedCodes& format, const EncodedHeadLayout& layout, const ConstKvRows& rows, const int64_t h,
                  const int64_t dim, std::byte* block) {
  std::array<CodeRow, kNeighbours> codes{};
  std::byte* ranges = block + layout.value_ranges;
  for (int64_t s = 0; s < kSlots; s += kNeighbours) {
    for (int64_t k = 0; k < kNeighbours; ++k) {
      if (format.value_bits == 8) {
        Put16(ranges, s + k, SignedCodes(rows.value(h, s + k), dim, codes[k]));
      } else {
        RangedCodes(format, rows.value(h, s + k), s + k, dim, ranges, codes[k]);
      }
    }
    AddValueCodes(format.value_bits, s / kNeighbours, dim, codes, block + layout.value_codes);
  }
}

// The code of a tile's lane and neighbour; `part`: which of those that share a byte.
unsigned CodeAt(const int bits, const std::byte* tile, const int64_t lane, const int64_t neighbour,
                const int64_t part) {
  return (std::to_integer<unsigned>(tile[lane * kNeighbours + neighbour]) >> (part * bits)) & ((1U << bits) - 1);
}
float Signed(const float scale, const unsigned code) {
  return scale * static_cast<float>(static_cast<int32_t>(code) - 128);
}

void DecodeKeys(const EncodedCodes& format, const EncodedHeadLayout& layout, const std::byte* block, const int64_t h,
                const int64_t dim, const KvRows& rows) {
  const int bits = format.key_bits;
  const int64_t per_byte = 8 / bits;
  const int64_t padded = RoundUp(dim, kNeighbours);
  Row zeros{};
  Row scales{};
  for (int64_t s = 0; s < kSlots; ++s) {
    const std::byte* ranges = block + layout.key_ranges;
    if (bits < 8 && s % format.key_group == 0) {
      ranges += s / format.key_group * 4 * padded;
      for (int64_t i = 0; i < dim; ++i) {
        zeros[i] = Get16(ranges, i);
        scales[i] = Get16(ranges, padded + i);
      }
    }
    const int64_t tile = s / kLanes;
    float* k = rows.key(h, s);
    for (int64_t i = 0; i < dim; ++i) {
      const std::byte* codes = block + (i / kNeighbours * 4 + tile) / per_byte * kTileBytes;
      const unsigned code = CodeAt(bits, codes, s % kLanes, i % kNeighbours, tile % per_byte);
      k[i] = bits == 8 ? Signed(Get16(ranges, s), code) : zeros[i] + scales[i] * static_cast<float>(code);
    }
  }
}

void DecodeValues(const EncodedCodes& format, const EncodedHeadLayout& layout, const std::byte* block, const int64_t h,
                  const int64_t dim, const KvRows& rows) {
  const int bits = format.value_bits;
  const int64_t per_byte = 8 / bits;
  const std::byte* ranges = block + layout.value_ranges;
  for (int64_t s = 0; s < kSlots; ++s) {
    const int64_t group = s / kNeighbours;
    float* v = rows.value(h, s);
    for (int64_t first = 0; first < dim; first += kEncodedValueGroup) {
      const int64_t g = first / kEncodedValueGroup;
      const float zero = bits == 8 ? 0.0F : Get16(ranges, 2 * g * kSlots + s);
      const float scale = bits == 8 ? Get16(ranges, s) : Get16(ranges, (2 * g + 1) * kSlots + s);
      for (int64_t i = first; i < std::min<int64_t>(first + kEncodedValueGroup, dim); ++i) {
        const std::byte* codes = block + layout.value_codes + (i / kLanes * 16 + group) / per_byte * kTileBytes;
        const unsigned code = CodeAt(bits, codes, i % kLanes, s % kNeighbours, group % per_byte);
        v[i] = bits == 8 ? Signed(scale, code) : zero + scale * static_cast<float>(code);
      }
    }
  }
}

void CheckPage(const KvEncoding encoding, const PageShape& shape, const int64_t slots, const int64_t bytes) {
  Check(shape.kv_heads > 0 && shape.head_dim > 0, "a page has heads and dims", shape.kv_heads, shape.head_dim);
  Check(shape.dense == DType::kBf16 || shape.dense == DType::kF32, "dense rows are bf16 or f32");
  Check(slots == kSlots, "a page has 64 slots", slots);
  Check(bytes == EncodedPageBytes(encoding, shape), "the page has the size of its encoding", bytes);
}

}  // namespace

EncodedCodes CodesOf(const KvEncoding encoding) {
  switch (encoding) {
    case KvEncoding::kInt8:
      return {8, 8, 0};
    case KvEncoding::kK8V4:
      return {8, 4, 0};
    case KvEncoding::kKivi4:
      return {4, 4, kSlots};
    case KvEncoding::kKivi2:
      return {2, 2, kSlots / 2};
    case KvEncoding::kDense:
      break;
  }
  return {};
}

EncodedHeadLayout EncodedHead(const KvEncoding encoding, const int32_t head_dim) {
  Check(encoding != KvEncoding::kDense, "dense heads have no codes");
  const int64_t dim = head_dim;
  EncodedHeadLayout layout;
  const EncodedCodes format = CodesOf(encoding);
  const int64_t key_dims = RoundUp(dim, kNeighbours);
  layout.key_ranges = key_dims * kSlots * format.key_bits / 8;
  layout.value_codes =
      layout.key_ranges + (format.key_bits == 8 ? 2 * kSlots : 4 * key_dims * (kSlots / format.key_group));
  layout.value_ranges = layout.value_codes + RoundUp(dim, kLanes) * kSlots * format.value_bits / 8;
  const int64_t value_range_bytes = format.value_bits == 8 ? 2 * kSlots : 4 * kSlots * ValueGroups(dim);
  layout.bytes = RoundUp(layout.value_ranges + value_range_bytes, 64);
  return layout;
}

int64_t EncodedPageBytes(const KvEncoding encoding, const PageShape& shape) {
  return shape.kv_heads *
         (encoding == KvEncoding::kDense ? DenseHeadBytes(shape) : EncodedHead(encoding, shape.head_dim).bytes);
}

// Compiled for wider vectors too, with all that it calls: half the time. Floats of every width are the same, as no
// operation is fused. Not under sanitizers, whose instrumentation cannot run when the loader chooses one.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::target_clones("default", "avx2", "arch=x86-64-v4"), gnu::flatten]]
#endif
void EncodePage(const KvEncoding encoding, const PageShape& shape, const ConstKvRows& rows,
                const std::span<std::byte> page) {
  CheckPage(encoding, shape, rows.slots, static_cast<int64_t>(page.size()));
  std::fill(page.begin(), page.end(), std::byte{0});
  if (encoding == KvEncoding::kDense) {
    WriteRows(shape, 0, rows, page.data());
    return;
  }
  const EncodedCodes format = CodesOf(encoding);
  const EncodedHeadLayout layout = EncodedHead(encoding, shape.head_dim);
  const int64_t dim = shape.head_dim;
  Check(dim <= kDimMax, "a head of this size can be encoded", dim);
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    std::byte* block = page.data() + h * layout.bytes;
    if (format.key_bits == 8) {
      EncodeSignedKeys(layout, rows, h, dim, block);
    } else {
      EncodeRangedKeys(format, layout, rows, h, dim, block);
    }
    EncodeValues(format, layout, rows, h, dim, block);
  }
}

void DecodePage(const KvEncoding encoding, const PageShape& shape, const std::span<const std::byte> page,
                const KvRows& rows) {
  CheckPage(encoding, shape, rows.slots, static_cast<int64_t>(page.size()));
  if (encoding == KvEncoding::kDense) return ReadRows(shape, page.data(), 0, rows);
  Check(shape.head_dim <= kDimMax, "a head of this size can be decoded", shape.head_dim);
  const EncodedHeadLayout layout = EncodedHead(encoding, shape.head_dim);
  const int64_t dim = shape.head_dim;
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    const std::byte* block = page.data() + h * layout.bytes;
    DecodeKeys(CodesOf(encoding), layout, block, h, dim, rows);
    DecodeValues(CodesOf(encoding), layout, block, h, dim, rows);
  }
}

double EncodingErrorBound(const KvEncoding encoding, const bool values, const double low, const double high) {
  const EncodedCodes format = CodesOf(encoding);
  const int bits = values ? format.value_bits : format.key_bits;
  // An f16 step: 2^-10 of the number, at least 2^-24.
  const auto step = [](const double x) { return std::max(std::abs(x) * 0x1p-10, 0x1p-24); };
  if (bits == 8) {
    const double scale = std::max(std::abs(low), std::abs(high)) / 127.0;
    return 0.5 * (scale + step(scale)) * (1.0 + 1e-5);
  }
  const double scale = (high - low + step(low)) / ((1 << bits) - 1);
  // The second term: float roundings of the quotient and of the sum.
  return 0.5 * (scale + step(scale)) * (1.0 + 1e-5) + std::max(std::abs(low), std::abs(high)) * 0x1p-23;
}

}  // namespace invar::kernels
