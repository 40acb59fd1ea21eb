// Encodings of one page of KV (64 slots of one layer) that take fewer bytes than the rows: what bodies of compressed
// views are kept in. Attention decodes a page to the dense layout and goes on as always, so an encoding is defined by
// the floats that its bytes mean: Decode() below, in scalar code; other backends must give the same bits.
//
// A page is kv_heads head blocks, head ascending, each of EncodedHeadBytes (a multiple of 64; padding is zero). In a
// head block, one after another, f16 little endian, G = ceil(dim / 32) groups of dims:
//   kDense  keys and values as bf16 or f32 (PageShape::dense), in PageShape::order: what a backend's own pages hold
//   kInt8   key codes i8 [dim][64], key scales f16 [64], value codes i8 [64][dim], value scales f16 [64]
//   kK8V4   key codes i8 [dim][64], key scales f16 [64], value codes u4 [64][dim], value ranges f16 [64][G][2]
//   kKivi4  key codes u4 [dim][64], key ranges f16 [dim][1][2], value codes u4 [64][dim], value ranges f16 [64][G][2]
//   kKivi2  key codes u2 [dim][64], key ranges f16 [dim][2][2], value codes u2 [64][dim], value ranges f16 [64][G][2]
// Codes below 8 bits: the first of a byte in its lowest bits, each row of codes ends on a byte. Keys lie channel by
// channel, values slot by slot, as both products of attention read them.
//   i8: value = scale[slot] * code, code in -127..127; one scale a slot and head.
//   u4, u2: value = zero + scale * code, with the range (zero, scale) of its group. Keys: per channel, over 64 slots
//     (u4) or 32 (u2), as keys have large fixed channels; values: per slot, over 32 dims. Source: KIVI (arXiv
//     2402.02750), with the whole page as the group of 4-bit keys.
// The product is exact in float (11 x 8 bits), so fusing it with the sum changes nothing. Where the dense layout is
// bf16, the decoded float is rounded to it, to nearest even.
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
