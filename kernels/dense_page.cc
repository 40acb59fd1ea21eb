// Element by element through one pair of functions that say where a value lies.
#include "kernels/dense_page.h"

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

}  // namespace

int64_t DenseHeadBytes(const PageShape& shape) {
  const int64_t dim = shape.head_dim;
  const int64_t value_dims = shape.order == DenseOrder::kLanes ? (dim + kLanes - 1) / kLanes * kLanes : dim;
  return kPlaces * (dim + value_dims) * BytesOf(shape.dense);
}

void ReadRows(const PageShape& shape, const std::byte* page, const int32_t place, const KvRows& rows) {
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
