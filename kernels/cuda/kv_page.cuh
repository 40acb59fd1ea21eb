// A KV head's part of one block of 64 slots, brought into shared memory as rows [64][pitch] in the pages' type: copied
// where it lies in rows, decoded as kernels/kv_encoding.h defines where it is encoded. Any bytes decode to something.
#pragma once

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/numerics.h"

namespace invar::kernels::cuda {

// 16 bytes more than a row: copies stay aligned, and eight neighbouring rows start in different banks.
template <typename T>
__host__ __device__ constexpr int64_t BlockPitch(const int64_t dim) {
  return dim + 16 / static_cast<int64_t>(sizeof(T));
}

__device__ __forceinline__ float HalfAt(const std::byte* at) {
  return FloatFromF16(*reinterpret_cast<const uint16_t*>(at));
}
__device__ __forceinline__ unsigned CodeAt(const std::byte* row, const int64_t i, const int bits) {
  const int64_t per_byte = 8 / bits;
  return (static_cast<unsigned>(row[i / per_byte]) >> (i % per_byte * bits)) & ((1U << bits) - 1);
}
__device__ __forceinline__ float SignedAt(const std::byte* scale, const std::byte code) {
  return HalfAt(scale) * static_cast<float>(static_cast<int8_t>(code));
}
__device__ __forceinline__ float RangedAt(const std::byte* range, const unsigned code) {
  return HalfAt(range) + HalfAt(range + 2) * static_cast<float>(code);
}

// Codes of a row end on a byte.
__device__ __forceinline__ int64_t CodeRowBytes(const int64_t codes, const int bits) { return (codes * bits + 7) / 8; }

__device__ __forceinline__ float DecodeKey(const DeviceKvSpan& span, const std::byte* block, const int64_t i,
                                           const int64_t slot) {
  const EncodedCodes& codes = span.codes;
  const std::byte* ranges = block + span.layout.key_ranges;
  if (codes.key_bits == 8) return SignedAt(ranges + 2 * slot, block[i * kPageTokens + slot]);
  const int64_t group = i * (kPageTokens / codes.key_group) + slot / codes.key_group;
  const std::byte* row = block + i * CodeRowBytes(kPageTokens, codes.key_bits);
  return RangedAt(ranges + 4 * group, CodeAt(row, slot, codes.key_bits));
}

__device__ __forceinline__ float DecodeValue(const DeviceKvSpan& span, const std::byte* block, const int64_t dim,
                                             const int64_t i, const int64_t slot) {
  const EncodedCodes& codes = span.codes;
  const std::byte* ranges = block + span.layout.value_ranges;
  const std::byte* row = block + span.layout.value_codes + slot * CodeRowBytes(dim, codes.value_bits);
  if (codes.value_bits == 8) return SignedAt(ranges + 2 * slot, row[i]);
  const int64_t groups = (dim + kEncodedValueGroup - 1) / kEncodedValueGroup;
  return RangedAt(ranges + 4 * (slot * groups + i / kEncodedValueGroup), CodeAt(row, i, codes.value_bits));
}

__device__ __forceinline__ void StoreElement(uint16_t* to, const float x) { *to = Bf16FromFloat(x); }
__device__ __forceinline__ void StoreElement(float* to, const float x) { *to = x; }
__device__ __forceinline__ float LoadElement(const uint16_t x) { return FloatFromBf16(x); }
__device__ __forceinline__ float LoadElement(const float x) { return x; }

// 64 rows, one after another, a piece at a time.
template <typename Piece>
__device__ __forceinline__ void CopyRows(const std::byte* from, const int64_t row_bytes, const int64_t pitch_bytes,
                                         std::byte* to) {
  const int64_t pieces = row_bytes / static_cast<int64_t>(sizeof(Piece));
  for (int64_t i = Thread(); i < kPageTokens * pieces; i += Threads()) {
    const int64_t at = i % pieces * static_cast<int64_t>(sizeof(Piece));
    *reinterpret_cast<Piece*>(to + i / pieces * pitch_bytes + at) =
        *reinterpret_cast<const Piece*>(from + i / pieces * row_bytes + at);
  }
}

struct alignas(16) SixteenBytes {
  uint32_t words[4];
};

// All threads of the block take part; none waits. keys, values [64][BlockPitch<T>(dim)].
template <typename T>
__device__ void BringBlock(const DeviceKvSpan& span, const int64_t kv_head, const int64_t index, const int64_t dim,
                           T* keys, T* values) {
  const int64_t pitch = BlockPitch<T>(dim);
  const bool in_body = index < span.body_pages;
  const std::byte* page =
      in_body ? span.body + index * span.body_page_bytes
              : span.arena + span.pages[index - span.body_pages] * span.page_stride_bytes + span.layer_offset_bytes;
  if (in_body && span.codes.key_bits != 0) {
    const std::byte* block = page + kv_head * span.layout.bytes;
    for (int64_t i = Thread(); i < kPageTokens * dim; i += Threads()) {
      // Neighbours share a row of codes: of keys a dim, of values a slot.
      StoreElement(keys + i % kPageTokens * pitch + i / kPageTokens,
                   DecodeKey(span, block, i / kPageTokens, i % kPageTokens));
      StoreElement(values + i / dim * pitch + i % dim, DecodeValue(span, block, dim, i % dim, i / dim));
    }
    return;
  }
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
  const int64_t pitch_bytes = pitch * static_cast<int64_t>(sizeof(T));
  const std::byte* from = page + 2 * kv_head * kPageTokens * row_bytes;
  const std::byte* from_values = from + kPageTokens * row_bytes;
  auto* to = reinterpret_cast<std::byte*>(keys);
  auto* to_values = reinterpret_cast<std::byte*>(values);
  // Head blocks begin at multiples of 64 bytes; where rows do not end on 16, they do on 4, since dims are even.
  if (row_bytes % 16 == 0) {
    CopyRows<SixteenBytes>(from, row_bytes, pitch_bytes, to);
    CopyRows<SixteenBytes>(from_values, row_bytes, pitch_bytes, to_values);
  } else {
    CopyRows<uint32_t>(from, row_bytes, pitch_bytes, to);
    CopyRows<uint32_t>(from_values, row_bytes, pitch_bytes, to_values);
  }
}

}  // namespace invar::kernels::cuda
