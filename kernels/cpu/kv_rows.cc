// Element by element through one pair of functions that say where a value lies.
#include "kernels/cpu/kv_rows.h"

#include "kernels/bf16.h"
#include "kernels/cpu/attention.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kPlaces = 64;

// Elements from the start of a KV head's part to a key's or a value's dim.
int64_t KeyAt(const bool pairs, const int64_t place, const int64_t i) {
  return pairs ? (i / 2 * kPlaces + place) * 2 + i % 2 : i * kPlaces + place;
}
int64_t ValueAt(const bool pairs, const int64_t place, const int64_t i) {
  return pairs ? i / 16 * 1024 + place / 2 * 32 + i % 16 * 2 + place % 2 : (i / 16 * kPlaces + place) * 16 + i % 16;
}

// visit(element, head, slot, dim, is_value) for every value of the rows.
template <typename Visit>
void ForEach(const PageShape& shape, const int32_t place, const int64_t slots, const Visit& visit) {
  const bool pairs = shape.dense == DType::kBf16;
  const int64_t head_elements = KvHeadBytes(shape.head_dim, shape.dense) / BytesOf(shape.dense);
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    for (int64_t s = 0; s < slots; ++s) {
      for (int64_t i = 0; i < shape.head_dim; ++i) {
        visit(h * head_elements + KeyAt(pairs, place + s, i), h, s, i, false);
        visit(h * head_elements + kPlaces * shape.head_dim + ValueAt(pairs, place + s, i), h, s, i, true);
      }
    }
  }
}

}  // namespace

void ReadKvRows(const PageShape& shape, const std::byte* page, const int32_t place, const KvRows& rows) {
  const auto* halves = reinterpret_cast<const uint16_t*>(page);
  const auto* floats = reinterpret_cast<const float*>(page);
  ForEach(shape, place, rows.slots,
          [&](const int64_t at, const int64_t h, const int64_t s, const int64_t i, const bool is_value) {
            float& to = (is_value ? rows.value(h, s) : rows.key(h, s))[i];
            to = shape.dense == DType::kBf16 ? FloatFromBf16(halves[at]) : floats[at];
          });
}

void WriteKvRows(const PageShape& shape, const int32_t place, const ConstKvRows& rows, std::byte* page) {
  auto* halves = reinterpret_cast<uint16_t*>(page);
  auto* floats = reinterpret_cast<float*>(page);
  ForEach(shape, place, rows.slots,
          [&](const int64_t at, const int64_t h, const int64_t s, const int64_t i, const bool is_value) {
            const float from = (is_value ? rows.value(h, s) : rows.key(h, s))[i];
            if (shape.dense == DType::kBf16) {
              halves[at] = Bf16FromFloat(from);
            } else {
              floats[at] = from;
            }
          });
}

}  // namespace invar::kernels::cpu
