// The scalar definition of kernels/kv_encoding.h. Ranges are rounded outwards to f16, zero down and scale up, so that
// codes never have to be cut at their ends:
//   i8:      scale = up(max |x| / 127), code = nearest(x / scale)
//   u4, u2:  zero = down(min x), scale = up((max x - zero) / levels), code = nearest((x - zero) / scale)
// Divisions in float; nearest is to even. A scale of 0 has code 0.
// Upkeep of views encodes a page a round and layer, so a group is gathered once and then worked on by loops that become
// vectors.
#include "kernels/kv_encoding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/bf16.h"
#include "kernels/dense_page.h"

namespace invar::kernels {
namespace {

constexpr int64_t kSlots = kEncodedPageSlots;
constexpr float kF16Max = 65504.0F;

int64_t CeilDiv(const int64_t a, const int64_t b) { return (a + b - 1) / b; }
int64_t RowBytes(const int64_t codes, const int bits) { return CeilDiv(codes * bits, 8); }
int64_t ValueGroups(const int64_t dim) { return CeilDiv(dim, kEncodedValueGroup); }

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

// Values that share a scale or a range: at most a row of the largest head.
constexpr int64_t kGroupMax = 1024;

// The smallest f16 >= x as bits, for x in [0, 65504].
uint16_t F16Up(const float x) {
  if (x == 0.0F) return 0;
  int exponent = std::max(std::ilogb(x), -14);
  // All exact: the quotient by a power of two, and its ceiling of at most 2048.
  auto mantissa = static_cast<int>(std::ceil(std::ldexp(x, 10 - exponent)));
  if (mantissa == 2048) {
    mantissa = 1024;
    ++exponent;
  }
  // Below 1024 the number is subnormal, and its exponent bits are 0.
  return static_cast<uint16_t>((exponent + 14) * 1024 + mantissa);
}

// The largest f16 <= x as bits, for |x| <= 65504.
uint16_t F16Down(const float x) {
  if (x < 0.0F) return static_cast<uint16_t>(0x8000U | F16Up(-x));
  const uint16_t up = F16Up(x);
  return FloatFromF16(up) > x ? static_cast<uint16_t>(up - 1) : up;
}

void Put16(std::byte* at, const uint16_t bits) { std::memcpy(at, &bits, 2); }
float Get16(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  return FloatFromF16(bits);
}

void PutCode(std::byte* row, const int64_t i, const int bits, const unsigned code) {
  const int64_t per_byte = 8 / bits;
  row[i / per_byte] |= static_cast<std::byte>(code << (i % per_byte * bits));
}
unsigned GetCode(const std::byte* row, const int64_t i, const int bits) {
  const int64_t per_byte = 8 / bits;
  return (std::to_integer<unsigned>(row[i / per_byte]) >> (i % per_byte * bits)) & ((1U << bits) - 1);
}

// The values at(0) .. at(count - 1) share one range of unsigned codes, written at `range`; put(i, code) takes the
// codes.
template <typename At, typename Put>
void EncodeRange(const int64_t count, const int bits, const At& at, std::byte* range, const Put& put) {
  alignas(64) std::array<float, kEncodedPageSlots> x{};
  for (int64_t i = 0; i < count; ++i) x[i] = Finite(at(i));
  float low = x[0];
  float high = x[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const int levels = (1 << bits) - 1;
  const uint16_t zero_bits = F16Down(low);
  const float zero = FloatFromF16(zero_bits);
  const uint16_t scale_bits = F16Up((high - zero) / static_cast<float>(levels));
  const float scale = FloatFromF16(scale_bits);
  Put16(range, zero_bits);
  Put16(range + 2, scale_bits);
  std::array<int32_t, kEncodedPageSlots> codes{};
  const auto most = static_cast<float>(levels);
  if (scale != 0.0F) {
    for (int64_t i = 0; i < count; ++i) {
      const float code = Nearest((x[i] - zero) / scale);
      const float above = code < 0.0F ? 0.0F : code;
      codes[i] = static_cast<int32_t>(above > most ? most : above);
    }
  }
  for (int64_t i = 0; i < count; ++i) put(i, static_cast<unsigned>(codes[i]));
}

// One scale of signed codes, written at `scale_at`.
template <typename At, typename Put>
void EncodeSigned(const int64_t count, const At& at, std::byte* scale_at, const Put& put) {
  Check(count <= kGroupMax, "a head of this size can be encoded", count);
  alignas(64) std::array<float, kGroupMax> x;
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    x[i] = Finite(at(i));
    largest = std::max(largest, std::abs(x[i]));
  }
  const uint16_t scale_bits = F16Up(largest / 127.0F);
  const float scale = FloatFromF16(scale_bits);
  Put16(scale_at, scale_bits);
  for (int64_t i = 0; i < count; ++i) {
    const float code = scale == 0.0F ? 0.0F : Nearest(x[i] / scale);
    const float above = code < -127.0F ? -127.0F : code;
    put(i, static_cast<int8_t>(above > 127.0F ? 127.0F : above));
  }
}

void EncodeKeys(const EncodedCodes& format, const EncodedHeadLayout& layout, const ConstKvRows& rows, const int64_t h,
                const int64_t dim, std::byte* block) {
  if (format.key_bits == 8) {
    for (int64_t s = 0; s < kSlots; ++s) {
      const float* k = rows.key(h, s);
      EncodeSigned(
          dim, [&](const int64_t i) { return k[i]; }, block + layout.key_ranges + 2 * s,
          [&](const int64_t i, const int8_t code) { block[i * kSlots + s] = static_cast<std::byte>(code); });
    }
    return;
  }
  const int64_t groups = kSlots / format.key_group;
  const int64_t row_bytes = RowBytes(kSlots, format.key_bits);
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * format.key_group;
      EncodeRange(
          format.key_group, format.key_bits, [&](const int64_t s) { return rows.key(h, first + s)[i]; },
          block + layout.key_ranges + 4 * (i * groups + g),
          [&](const int64_t s, const unsigned code) {
            PutCode(block + i * row_bytes, first + s, format.key_bits, code);
          });
    }
  }
}

void EncodeValues(const EncodedCodes& format, const EncodedHeadLayout& layout, const ConstKvRows& rows, const int64_t h,
                  const int64_t dim, std::byte* block) {
  const int64_t row_bytes = RowBytes(dim, format.value_bits);
  for (int64_t s = 0; s < kSlots; ++s) {
    const float* v = rows.value(h, s);
    std::byte* codes = block + layout.value_codes + s * row_bytes;
    if (format.value_bits == 8) {
      EncodeSigned(
          dim, [&](const int64_t i) { return v[i]; }, block + layout.value_ranges + 2 * s,
          [&](const int64_t i, const int8_t code) { codes[i] = static_cast<std::byte>(code); });
      continue;
    }
    for (int64_t first = 0; first < dim; first += kEncodedValueGroup) {
      const int64_t count = std::min<int64_t>(kEncodedValueGroup, dim - first);
      const int64_t group = s * ValueGroups(dim) + first / kEncodedValueGroup;
      EncodeRange(
          count, format.value_bits, [&](const int64_t i) { return v[first + i]; },
          block + layout.value_ranges + 4 * group,
          [&](const int64_t i, const unsigned code) { PutCode(codes, first + i, format.value_bits, code); });
    }
  }
}

float DecodeRange(const std::byte* range, const unsigned code) {
  return Get16(range) + Get16(range + 2) * static_cast<float>(code);
}
float DecodeSigned(const std::byte* scale, const std::byte code) {
  return Get16(scale) * static_cast<float>(static_cast<int8_t>(code));
}

void DecodeKeys(const EncodedCodes& format, const EncodedHeadLayout& layout, const std::byte* block, const int64_t h,
                const int64_t dim, const KvRows& rows) {
  const int64_t row_bytes = RowBytes(kSlots, format.key_bits);
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t s = 0; s < kSlots; ++s) {
      if (format.key_bits == 8) {
        rows.key(h, s)[i] = DecodeSigned(block + layout.key_ranges + 2 * s, block[i * kSlots + s]);
        continue;
      }
      const int64_t group = i * (kSlots / format.key_group) + s / format.key_group;
      rows.key(h, s)[i] =
          DecodeRange(block + layout.key_ranges + 4 * group, GetCode(block + i * row_bytes, s, format.key_bits));
    }
  }
}

void DecodeValues(const EncodedCodes& format, const EncodedHeadLayout& layout, const std::byte* block, const int64_t h,
                  const int64_t dim, const KvRows& rows) {
  const int64_t row_bytes = RowBytes(dim, format.value_bits);
  for (int64_t s = 0; s < kSlots; ++s) {
    const std::byte* codes = block + layout.value_codes + s * row_bytes;
    for (int64_t i = 0; i < dim; ++i) {
      if (format.value_bits == 8) {
        rows.value(h, s)[i] = DecodeSigned(block + layout.value_ranges + 2 * s, codes[i]);
        continue;
      }
      const int64_t group = s * ValueGroups(dim) + i / kEncodedValueGroup;
      rows.value(h, s)[i] = DecodeRange(block + layout.value_ranges + 4 * group, GetCode(codes, i, format.value_bits));
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
  layout.key_ranges = dim * RowBytes(kSlots, format.key_bits);
  const int64_t key_range_bytes = format.key_bits == 8 ? 2 * kSlots : 4 * dim * (kSlots / format.key_group);
  layout.value_codes = layout.key_ranges + key_range_bytes;
  layout.value_ranges = layout.value_codes + kSlots * RowBytes(dim, format.value_bits);
  const int64_t value_range_bytes = format.value_bits == 8 ? 2 * kSlots : 4 * kSlots * ValueGroups(dim);
  layout.bytes = CeilDiv(layout.value_ranges + value_range_bytes, 64) * 64;
  return layout;
}

int64_t EncodedPageBytes(const KvEncoding encoding, const PageShape& shape) {
  return shape.kv_heads *
         (encoding == KvEncoding::kDense ? DenseHeadBytes(shape) : EncodedHead(encoding, shape.head_dim).bytes);
}

void EncodePage(const KvEncoding encoding, const PageShape& shape, const ConstKvRows& rows,
                const std::span<std::byte> page) {
  CheckPage(encoding, shape, rows.slots, static_cast<int64_t>(page.size()));
  std::fill(page.begin(), page.end(), std::byte{0});
  if (encoding == KvEncoding::kDense) {
    WriteRows(shape, 0, rows, page.data());
    return;
  }
  const EncodedHeadLayout layout = EncodedHead(encoding, shape.head_dim);
  const int64_t dim = shape.head_dim;
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    std::byte* block = page.data() + h * layout.bytes;
    EncodeKeys(CodesOf(encoding), layout, rows, h, dim, block);
    EncodeValues(CodesOf(encoding), layout, rows, h, dim, block);
  }
}

void DecodePage(const KvEncoding encoding, const PageShape& shape, const std::span<const std::byte> page,
                const KvRows& rows) {
  CheckPage(encoding, shape, rows.slots, static_cast<int64_t>(page.size()));
  if (encoding == KvEncoding::kDense) return ReadRows(shape, page.data(), 0, rows);
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
