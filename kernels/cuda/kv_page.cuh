// A KV head's part of one block of 64 slots, brought into shared memory as rows
// [64][pitch] in the pages' type: copied where it lies in rows, decoded as
// kernels/kv_encoding.h defines where it is encoded. Any bytes decode to
// something.
#pragma once

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/numerics.h"

namespace invar::kernels::cuda {

// Of a row that tensor cores take in steps of 16.
__host__ __device__ constexpr int64_t PaddedDim(const int64_t dim) { return (dim + 15) / 16 * 16; }
// 16 bytes more than a row: copies stay aligned, and eight neighbouring rows
// start in different banks.
template <typename T>
__host__ __device__ constexpr int64_t BlockPitch(const int64_t dim) {
  return sizeof(T) == 2 ? PaddedDim(dim) + 8 : dim + 4;
}

// Slots [first, last] of a block.
struct SlotRange {
  int64_t first = 0;
  int64_t last = 0;

  __device__ bool Has(const int64_t slot) const { return slot >= first && slot <= last; }
};

__device__ __forceinline__ float HalfAt(const std::byte* at) {
  return FloatFromF16(*reinterpret_cast<const uint16_t*>(at));
}
// A tile holds sixteen lanes of four neighbours, each byte the codes of as many
// tiles as go into it.
__device__ __forceinline__ unsigned CodeAt(const std::byte* tile, const int64_t lane, const int64_t neighbour,
                                           const int64_t part, const int bits) {
  return (static_cast<unsigned>(tile[4 * lane + neighbour]) >> (part * bits)) & ((1U << bits) - 1);
}
__device__ __forceinline__ float SignedAt(const std::byte* scale, const unsigned code) {
  return HalfAt(scale) * static_cast<float>(static_cast<int32_t>(code) - 128);
}
__device__ __forceinline__ float RangedAt(const std::byte* zero, const std::byte* scale, const unsigned code) {
  return HalfAt(zero) + HalfAt(scale) * static_cast<float>(code);
}

__device__ __forceinline__ float DecodeKey(const DeviceKvSpan& span, const std::byte* block, const int64_t dim,
                                           const int64_t i, const int64_t slot) {
  const EncodedCodes& codes = span.codes;
  const int64_t per_byte = 8 / codes.key_bits;
  const int64_t tile = slot / 16;
  const unsigned code =
      CodeAt(block + (i / 4 * 4 + tile) / per_byte * 64, slot % 16, i % 4, tile % per_byte, codes.key_bits);
  const std::byte* ranges = block + span.layout.key_ranges;
  if (codes.key_bits == 8) return SignedAt(ranges + 2 * slot, code);
  const int64_t dims = (dim + 3) / 4 * 4;
  const std::byte* zeros = ranges + slot / codes.key_group * 4 * dims;
  return RangedAt(zeros + 2 * i, zeros + 2 * (dims + i), code);
}

__device__ __forceinline__ float DecodeValue(const DeviceKvSpan& span, const std::byte* block, const int64_t i,
                                             const int64_t slot) {
  const EncodedCodes& codes = span.codes;
  const int64_t per_byte = 8 / codes.value_bits;
  const int64_t group = slot / 4;
  const unsigned code = CodeAt(block + span.layout.value_codes + (i / 16 * 16 + group) / per_byte * 64, i % 16,
                               slot % 4, group % per_byte, codes.value_bits);
  const std::byte* ranges = block + span.layout.value_ranges;
  if (codes.value_bits == 8) return SignedAt(ranges + 2 * slot, code);
  const std::byte* zeros = ranges + i / kEncodedValueGroup * 4 * kPageTokens;
  return RangedAt(zeros + 2 * slot, zeros + 2 * (kPageTokens + slot), code);
}

__device__ __forceinline__ void StoreElement(uint16_t* to, const float x) { *to = Bf16FromFloat(x); }
__device__ __forceinline__ void StoreElement(float* to, const float x) { *to = x; }
__device__ __forceinline__ float LoadElement(const uint16_t x) { return FloatFromBf16(x); }
__device__ __forceinline__ float LoadElement(const float x) { return x; }

// 64 rows, one after another, a piece at a time; zeros for those out of
// `slots`.
template <typename Piece>
__device__ __forceinline__ void CopyRows(const std::byte* from, const int64_t row_bytes, const int64_t pitch_bytes,
                                         const SlotRange& slots, std::byte* to) {
  const int64_t pieces = row_bytes / static_cast<int64_t>(sizeof(Piece));
  for (int64_t i = Thread(); i < kPageTokens * pieces; i += Threads()) {
    const int64_t at = i % pieces * static_cast<int64_t>(sizeof(Piece));
    *reinterpret_cast<Piece*>(to + i / pieces * pitch_bytes + at) =
        slots.Has(i / pieces) ? *reinterpret_cast<const Piece*>(from + i / pieces * row_bytes + at) : Piece{};
  }
}

// All threads of the block take part; none waits. keys, values
// [64][BlockPitch<T>(dim)], zeros for slots that are not among `slots`.
template <typename T>
__device__ void BringBlock(const DeviceKvSpan& span, const int64_t kv_head, const int64_t index, const int64_t dim,
                           const SlotRange& slots, T* keys, T* values) {
  const int64_t pitch = BlockPitch<T>(dim);
  const bool in_body = index < span.body_pages;
  const std::byte* page =
      in_body ? span.body + index * span.body_page_bytes
              : span.arena + span.pages[index - span.body_pages] * span.page_stride_bytes + span.layer_offset_bytes;
  if (in_body && span.codes.key_bits != 0) {
    const std::byte* block = page + kv_head * span.layout.bytes;
    for (int64_t i = Thread(); i < kPageTokens * dim; i += Threads()) {
      // Neighbours share tiles of codes: of keys slots, of values dims. Pages
      // of codes are full, and seen as a whole.
      StoreElement(keys + i % kPageTokens * pitch + i / kPageTokens,
                   DecodeKey(span, block, dim, i / kPageTokens, i % kPageTokens));
      StoreElement(values + i / dim * pitch + i % dim, DecodeValue(span, block, i % dim, i / dim));
    }
    return;
  }
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
  const int64_t pitch_bytes = pitch * static_cast<int64_t>(sizeof(T));
  const std::byte* from = page + 2 * kv_head * kPageTokens * row_bytes;
  const std::byte* from_values = from + kPageTokens * row_bytes;
  auto* to = reinterpret_cast<std::byte*>(keys);
  auto* to_values = reinterpret_cast<std::byte*>(values);
  // Head blocks begin at multiples of 64 bytes; where rows do not end on 16,
  // they do on 4, since dims are even.
  if (row_bytes % 16 == 0) {
    CopyRows<SixteenBytes>(from, row_bytes, pitch_bytes, slots, to);
    CopyRows<SixteenBytes>(from_values, row_bytes, pitch_bytes, slots, to_values);
  } else {
    CopyRows<uint32_t>(from, row_bytes, pitch_bytes, slots, to);
    CopyRows<uint32_t>(from_values, row_bytes, pitch_bytes, slots, to_values);
  }
}

}  // namespace invar::kernels::cuda
