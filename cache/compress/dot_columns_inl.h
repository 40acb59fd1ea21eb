// The inner loops for one width of vectors: compiled once for each, in files of their own. Before it is included, in an
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

using Ints = int32_t __attribute__((vector_size(kBytes)));
using IntsInMemory = int32_t __attribute__((vector_size(kBytes), aligned(4), may_alias));

template <bool kByDistance>
static inline void RaiseBy(const ColumnLikeness& likeness, const int32_t block, const BestSoFar& best) {
  constexpr float kLeast = -__builtin_inff();
  Lanes lengths[kParts] = {};
  Lanes column_best[kParts];
  Ints valid[kParts];
  for (int p = 0; p < kParts; ++p) {
    for (int j = 0; j < kLanes; ++j) {
      const int64_t column = p * kLanes + j;
      valid[p][j] = column < likeness.columns ? -1 : 0;
      if (kByDistance && column < likeness.columns) lengths[p][j] = likeness.column_lengths[column];
    }
    column_best[p] = *reinterpret_cast<const LanesInMemory*>(best.columns + p * kLanes);
  }
  const Lanes least = Lanes{} + kLeast;
  const Ints own = Ints{} + block;
  for (int64_t r = 0; r < likeness.count; ++r) {
    const float length = likeness.row_lengths[r];
    for (int p = 0; p < kParts; ++p) {
      const int64_t at = r * 16 + p * kLanes;
      const Lanes product = *reinterpret_cast<const LanesInMemory*>(likeness.products + at);
      const Lanes any =
          kByDistance ? 1.0F - (length + lengths[p] - 2.0F * product) * likeness.factor : product * length;
      const Lanes similarity = ((any == any) & valid[p]) ? any : least;
      column_best[p] = similarity > column_best[p] ? similarity : column_best[p];
      auto* row_best = reinterpret_cast<LanesInMemory*>(best.rows + at);
      auto* blocks = reinterpret_cast<IntsInMemory*>(best.blocks + at);
      const Lanes before = *row_best;
      const Ints block_before = *blocks;
      *row_best = similarity > before ? similarity : before;
      *blocks = similarity > before ? own : block_before;
    }
  }
  for (int p = 0; p < kParts; ++p) {
    *reinterpret_cast<LanesInMemory*>(best.columns + p * kLanes) = column_best[p];
  }
}

static inline void RaiseAll(const ColumnLikeness& likeness, const int32_t block, const BestSoFar& best) {
  if (likeness.by_distance) {
    RaiseBy<true>(likeness, block, best);
  } else {
    RaiseBy<false>(likeness, block, best);
  }
}
