// Encodings of one page of KV (64 slots of one layer) that take fewer bytes than the rows: what bodies of compressed
// views are kept in. Defined by the floats that bytes mean: DecodePage() below, in scalar code. Attention multiplies
// codes as they are (cpu/attend_codes_inl.h), and comes to what those floats give but for its rounding of queries and
// weights: to 16 bits where they meet codes of 8, else to 8.
//
// A page is kv_heads head blocks, head ascending, each of EncodedHeadBytes (a multiple of 64; padding is zero). In a
// head block, one after another, f16 little endian, D4 and D16 = dim rounded up to a multiple of 4 and of 16,
// G = ceil(dim / 32) groups of dims, b bits of a code, P = 8 / b codes a byte:
//   keys    codes u8 [D4 / 4][4 / P][16 slots][4 dims]: bits b t .. of byte (j, s) are of slot 16 (P j + t) + s
//           b = 8: scales [64 slots]; else [64 / slots of a range] times zeros [D4], scales [D4]
//   values  codes u8 [D16 / 16][16 / P][16 dims][4 slots]: bits b t .. of byte (j, s) are of slot 4 (P j + t) + s
//           b = 8: scales [64 slots]; else [G] times zeros [64 slots], scales [64 slots]
// So sixteen sums run side by side, each over four neighbours along the axis that its product sums over. kDense has
// keys and values as bf16 or f32 (PageShape::dense), in PageShape::order: what a backend's own pages hold.
//   bits of keys, values:  kInt8 8, 8   kK8V4 8, 4   kKivi4 4, 4 (keys' ranges of 64 slots)   kKivi2 2, 2 (of 32 slots)
//   8 bits: value = scale[slot] * (code - 128), code - 128 in -127..127; one scale a slot and head
//   else: value = zero + scale * code, with the range (zero, scale) of its group. Keys: per channel, as keys have large
//     fixed channels; values: per slot, over 32 dims. Source: KIVI (arXiv 2402.02750). The product is exact in float
//     (11 x 8 bits), so fusing it with the sum changes nothing.
// Bound: |decoded - x| <= EncodingErrorBound(). In all but kDense, NaN and anything below 2^-60 count as 0, and what
// lies beyond +-65504 as that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/tensor.h"

namespace invar::kernels {

enum class KvEncoding : uint8_t { kDense = 0, kInt8 = 1, kK8V4 = 2, kKivi4 = 3, kKivi2 = 4 };

inline constexpr int32_t kEncodedPageSlots = 64;
inline constexpr int32_t kEncodedValueGroup = 32;  // Dims that share a range.
inline constexpr int32_t kEncodings = 5;

// How the values of a head lie in a kDense page.
enum class DenseOrder : uint8_t {
  kSlots,  // Keys [64 slots][dim], values [64 slots][dim].
  kLanes,  // For vector code: keys [dim][64], values [ceil(dim / 16)][64][16]; of bf16, two neighbours along the summed
           // axis side by side: keys [dim / 2][64][2], values [ceil(dim / 16)][32][16][2].
};

// A page of one layer. kDense pages of it are what a backend reads and writes (Backend::KvPageShape).
struct PageShape {
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  DType dense = DType::kBf16;  // Of rows in kDense pages: kBf16 or kF32.
  DenseOrder order = DenseOrder::kSlots;

  bool operator==(const PageShape&) const = default;
};

// Keys and values of some slots or tokens of one layer, `dim` floats each; owns nothing. Head h at slot s begins at
// keys + h * head_stride + s * slot_stride, values alike; strides in floats.
template <typename T>
struct KvRowsView {
  T* keys = nullptr;
  T* values = nullptr;
  int64_t slots = 0;
  int64_t head_stride = 0;
  int64_t slot_stride = 0;

  T* key(const int64_t head, const int64_t slot) const { return keys + head * head_stride + slot * slot_stride; }
  T* value(const int64_t head, const int64_t slot) const { return values + head * head_stride + slot * slot_stride; }
  KvRowsView Slots(const int64_t begin, const int64_t count) const {
    return {keys + begin * slot_stride, values + begin * slot_stride, count, head_stride, slot_stride};
  }
  operator KvRowsView<const T>() const {  // NOLINT: adding const is harmless.
    return {keys, values, slots, head_stride, slot_stride};
  }
};
using KvRows = KvRowsView<float>;
using ConstKvRows = KvRowsView<const float>;

// By value of the enumerator.
inline constexpr std::array<std::string_view, kEncodings> kKvEncodingNames = {"dense", "int8", "k8v4", "kivi4",
                                                                              "kivi2"};
constexpr std::span<const std::string_view> KvEncodingNames() { return kKvEncodingNames; }
constexpr std::string_view KvEncodingName(const KvEncoding encoding) {
  return kKvEncodingNames[static_cast<size_t>(encoding)];
}

// Where the parts of a head block begin, in bytes from its start. Key scales and value scales of kInt8 stand where
// ranges stand in the others.
struct EncodedHeadLayout {
  int64_t key_ranges = 0;  // Key codes begin at 0.
  int64_t value_codes = 0;
  int64_t value_ranges = 0;
  int64_t bytes = 0;  // Of the block, padding included.
};
// Requires: not kDense (kernels/dense_page.h).
EncodedHeadLayout EncodedHead(KvEncoding encoding, int32_t head_dim);

// Bits of a code; slots that share a range of key codes below 8 bits. kDense: 0 each.
struct EncodedCodes {
  int key_bits = 0;
  int value_bits = 0;
  int64_t key_group = 0;
};
EncodedCodes CodesOf(KvEncoding encoding);

int64_t EncodedPageBytes(KvEncoding encoding, const PageShape& shape);

// Writes every byte of `page`. Requires: rows.slots == 64, page.size() == EncodedPageBytes(). Threads: any.
void EncodePage(KvEncoding encoding, const PageShape& shape, const ConstKvRows& rows, std::span<std::byte> page);

// Requires as above. Any bytes decode to something: nothing is read out of bounds. Threads: any.
void DecodePage(KvEncoding encoding, const PageShape& shape, std::span<const std::byte> page, const KvRows& rows);

// Largest |decoded - x| of a value whose group spans [low, high] (i8: the slot's row of a head), kDense excepted:
//   i8: max(|low|, |high|) / 254, u4: (high - low) / 30, u2: (high - low) / 6, each widened by what rounding zero and
// scale to f16 adds. `values`: of values, otherwise of keys.
double EncodingErrorBound(KvEncoding encoding, bool values, double low, double high);

}  // namespace invar::kernels
