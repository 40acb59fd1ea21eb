// Element by element through one pair of functions that say where a value lies; but bf16 pages of vector code, which
// views of long prompts are made from, are read pair by pair.
#include "kernels/dense_page.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/bf16.h"

namespace invar::kernels {
namespace {

constexpr int64_t kPlaces = kEncodedPageSlots;
constexpr int64_t kLanes = 16;

// Elements from the start of a KV head's part to a key's or a value's dim.
struct SlotOrder {
  int64_t dim;
  int64_t key(const int64_t place, const int64_t i) const { return place * dim + i; }
  int64_t value(const int64_t place, const int64_t i) const { return (kPlaces + place) * dim + i; }
};
struct LaneOrder {
  int64_t dim;
  bool pairs;
  int64_t key(const int64_t place, const int64_t i) const {
    return pairs ? (i / 2 * kPlaces + place) * 2 + i % 2 : i * kPlaces + place;
  }
  int64_t value(const int64_t place, const int64_t i) const {
    const int64_t block = kPlaces * dim + i / kLanes * kPlaces * kLanes;
    return block + (pairs ? place / 2 * 2 * kLanes + i % kLanes * 2 + place % 2 : place * kLanes + i % kLanes);
  }
};

// visit(element, head, slot, dim, is_value) for every value of the rows.
template <typename Order, typename Visit>
void ForEach(const PageShape& shape, const Order& order, const int32_t place, const int64_t slots, const Visit& visit) {
  const int64_t head_elements = DenseHeadBytes(shape) / BytesOf(shape.dense);
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    for (int64_t s = 0; s < slots; ++s) {
      for (int64_t i = 0; i < shape.head_dim; ++i) visit(h * head_elements + order.key(place + s, i), h, s, i, false);
      for (int64_t i = 0; i < shape.head_dim; ++i) visit(h * head_elements + order.value(place + s, i), h, s, i, true);
    }
  }
}

template <typename Visit>
void ForEach(const PageShape& shape, const int32_t place, const int64_t slots, const Visit& visit) {
  Check(place >= 0 && place + slots <= kPlaces, "rows lie in one page", place, slots);
  if (shape.order == DenseOrder::kSlots) {
    ForEach(shape, SlotOrder{shape.head_dim}, place, slots, visit);
  } else {
    ForEach(shape, LaneOrder{shape.head_dim, shape.dense == DType::kBf16}, place, slots, visit);
  }
}

float LowHalf(const uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float HighHalf(const uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }

// `keys` [dim / 2][64] pairs of dims, `values` [ceil(dim / 16)][32][16] pairs of places, of one head. A line of keys
// holds sixteen places: they are done together.
void ReadPairs(const uint32_t* keys, const uint32_t* values, const int64_t dim, const int64_t h, const int64_t place,
               const KvRows& rows) {
  for (int64_t begin = 0; begin < rows.slots; begin += kLanes) {
    const int64_t end = std::min(begin + kLanes, rows.slots);
    for (int64_t i = 0; i < dim; i += 2) {
      const uint32_t* pairs = keys + i / 2 * kPlaces + place;
      for (int64_t s = begin; s < end; ++s) {
        float* to = rows.key(h, s) + i;
        to[0] = LowHalf(pairs[s]);
        to[1] = HighHalf(pairs[s]);
      }
    }
  }
  for (int64_t s = 0; s < rows.slots; ++s) {
    const bool is_high = (place + s) % 2 == 1;
    for (int64_t i = 0; i < dim; i += kLanes) {
      const uint32_t* pairs = values + (i * kPlaces + (place + s) / 2 * 2 * kLanes) / 2;
      float* to = rows.value(h, s) + i;
      const int64_t count = std::min(kLanes, dim - i);
      if (is_high) {
        for (int64_t j = 0; j < count; ++j) to[j] = HighHalf(pairs[j]);
      } else {
        for (int64_t j = 0; j < count; ++j) to[j] = LowHalf(pairs[j]);
      }
    }
  }
}

}  // namespace

int64_t DenseHeadBytes(const PageShape& shape) {
  const int64_t dim = shape.head_dim;
  const int64_t value_dims = shape.order == DenseOrder::kLanes ? (dim + kLanes - 1) / kLanes * kLanes : dim;
  return kPlaces * (dim + value_dims) * BytesOf(shape.dense);
}

void ReadRows(const PageShape& shape, const std::byte* page, const int32_t place, const KvRows& rows) {
  if (shape.order == DenseOrder::kLanes && shape.dense == DType::kBf16 && shape.head_dim % 2 == 0) {
    Check(place >= 0 && place + rows.slots <= kPlaces, "rows lie in one page", place, rows.slots);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const auto* keys = reinterpret_cast<const uint32_t*>(page + h * DenseHeadBytes(shape));
      ReadPairs(keys, keys + kPlaces * shape.head_dim / 2, shape.head_dim, h, place, rows);
    }
    return;
  }
  const auto* halves = reinterpret_cast<const uint16_t*>(page);
  const auto* floats = reinterpret_cast<const float*>(page);
  ForEach(shape, place, rows.slots,
          [&](const int64_t at, const int64_t h, const int64_t s, const int64_t i, const bool is_value) {
            float& to = (is_value ? rows.value(h, s) : rows.key(h, s))[i];
            to = shape.dense == DType::kBf16 ? FloatFromBf16(halves[at]) : floats[at];
          });
}

void WriteRows(const PageShape& shape, const int32_t place, const ConstKvRows& rows, std::byte* page) {
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

}  // namespace invar::kernels
