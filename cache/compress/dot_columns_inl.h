// DotColumns for one width of vectors: compiled once for each, in files of their own. Before it is included, in an
// anonymous namespace: kBytes of a vector and kRows that go side by side, chosen so that kRows * 64 / kBytes sums stay
// in registers. Only plain products and sums, so all widths give the same bits.

using Lanes = float __attribute__((vector_size(kBytes)));
// The same anywhere in memory. (Through memcpy the sums would live there.)
using LanesInMemory = float __attribute__((vector_size(kBytes), aligned(4), may_alias));
constexpr int kParts = 64 / kBytes;
constexpr int kLanes = kBytes / 4;

template <int kCount>
static inline void DotRows(const float* rows, const int64_t stride, const float* columns, const int64_t dim,
                           float* out) {
  Lanes sums[kCount][kParts] = {};
  for (int64_t i = 0; i < dim; ++i) {
    Lanes column[kParts];
    for (int p = 0; p < kParts; ++p) {
      column[p] = *reinterpret_cast<const LanesInMemory*>(columns + i * 16 + p * kLanes);
    }
    for (int r = 0; r < kCount; ++r) {
      const float x = rows[r * stride + i];
      for (int p = 0; p < kParts; ++p) sums[r][p] += x * column[p];
    }
  }
  for (int r = 0; r < kCount; ++r) {
    for (int p = 0; p < kParts; ++p) *reinterpret_cast<LanesInMemory*>(out + r * 16 + p * kLanes) = sums[r][p];
  }
}

static inline void DotAll(const float* rows, const int64_t stride, const int64_t count, const float* columns,
                          const int64_t dim, float* out) {
  int64_t r = 0;
  for (; r + kRows <= count; r += kRows) DotRows<kRows>(rows + r * stride, stride, columns, dim, out + r * 16);
  for (; r < count; ++r) DotRows<1>(rows + r * stride, stride, columns, dim, out + r * 16);
}
