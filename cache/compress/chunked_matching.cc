// Keys are scaled to length 1 once a chunk; products are float sums over dims ascending, sixteen columns at a time.
#include "cache/compress/chunked_matching.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cache/compress/dot_columns.h"

namespace invar::cache {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// 1 / length of a key; 0 for no length and for one that is no number. Four sums side by side, as one chain of additions
// would take as long as all products of the key with a chunk.
float InverseLength(const float* key, const int64_t dim) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= dim; i += 4) {
    for (int64_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(key[i + j]) * key[i + j];
  }
  for (; i < dim; ++i) sums[0] += static_cast<double>(key[i]) * key[i];
  const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return sum > 0.0 && std::isfinite(sum) ? static_cast<float>(1.0 / std::sqrt(sum)) : 0.0F;
}

// Slots first, first + step, ...
struct HalfChunk {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  std::vector<float> factors;  // 1 / length of each key.

  int64_t slot(const int64_t i) const { return first + i * step; }
};

// One chunk, cut in two. Its room is reused from chunk to chunk.
class CutChunk {
 public:
  CutChunk(const SettledSlots& slots, const int64_t h, const ChunkSplit split)
      : slots_(slots), h_(h), split_(split), block_(slots.dim() * kDotColumns) {}

  HalfChunk a;
  HalfChunk b;

  void Cut(const int64_t begin, const int64_t end) {
    const int64_t half = (end - begin + 1) / 2;
    const bool alternates = split_ == ChunkSplit::kAlternate;
    a.first = begin;
    b.first = begin + (alternates ? 1 : half);
    a.step = b.step = alternates ? 2 : 1;
    a.count = half;
    b.count = end - begin - half;
    for (HalfChunk* part : {&a, &b}) {
      part->factors.resize(part->count);
      for (int64_t i = 0; i < part->count; ++i) {
        part->factors[i] = InverseLength(slots_.key(h_, part->slot(i)), slots_.dim());
      }
    }
    products_.resize(a.count * kDotColumns);
  }

  // Calls found(index in a, index in b, cosine) for every pair; for each of a, b ascends.
  template <typename Found>
  void ForEachCosine(const Found& found) {
    const int64_t dim = slots_.dim();
    for (int64_t first = 0; first < b.count; first += kDotColumns) {
      const int64_t count = std::min(kDotColumns, b.count - first);
      FillColumns(slots_.key(h_, b.slot(first)), b.step * dim, b.factors.data() + first, count, dim, block_.data());
      DotColumns(slots_.key(h_, a.first), a.step * dim, a.count, block_.data(), dim, products_.data());
      for (int64_t r = 0; r < a.count; ++r) {
        for (int64_t j = 0; j < count; ++j) {
          const float cosine = products_[r * kDotColumns + j] * a.factors[r];
          found(r, first + j, std::isnan(cosine) ? kLeast : cosine);
        }
      }
    }
  }

 private:
  const SettledSlots& slots_;
  const int64_t h_;
  const ChunkSplit split_;
  std::vector<float> block_;     // [dim][16]
  std::vector<float> products_;  // [a.count][16]
};

// Calls work(chunk) for each, in order.
template <typename Work>
void ForEachChunk(const SettledSlots& slots, const int64_t h, const MatchRange& range, const Work& work) {
  CutChunk chunk(slots, h, range.split);
  int64_t begin = range.begin;
  int64_t end = range.begin + (range.phase > 0 ? range.phase : range.chunk);
  while (begin < range.end) {
    chunk.Cut(begin, std::min(end, range.end));
    work(chunk);
    begin = end;
    end += range.chunk;
  }
}

}  // namespace

std::vector<SlotPair> MatchChunks(const SettledSlots& slots, const int64_t h, const MatchRange& range) {
  std::vector<SlotPair> pairs;
  pairs.reserve((range.end - range.begin) / 2 + 1);
  const std::span<const SlotMark> marks = slots.marks(h);
  ForEachChunk(slots, h, range, [&](CutChunk& chunk) {
    if (chunk.b.count == 0) return;
    const size_t first = pairs.size();
    for (int64_t i = 0; i < chunk.a.count; ++i) pairs.push_back({chunk.a.slot(i), chunk.b.first, kLeast});
    chunk.ForEachCosine([&](const int64_t a, const int64_t b, const float cosine) {
      SlotPair& pair = pairs[first + a];
      if (cosine > pair.similarity) pair = {pair.a, chunk.b.slot(b), cosine};
    });
    for (size_t i = first; i < pairs.size(); ++i) {
      if (marks[pairs[i].a].is_outlier || marks[pairs[i].b].is_outlier) pairs[i].similarity = kLeast;
    }
  });
  return pairs;
}

std::vector<float> BestSimilarities(const SettledSlots& slots, const int64_t h, const MatchRange& range) {
  std::vector<float> best(range.end - range.begin, kLeast);
  ForEachChunk(slots, h, range, [&](CutChunk& chunk) {
    const auto raise = [&](const int64_t slot, const float cosine) {
      float& of_slot = best[slot - range.begin];
      of_slot = std::max(of_slot, cosine);
    };
    if (chunk.b.count == 0) return raise(chunk.a.first, 1.0F);
    chunk.ForEachCosine([&](const int64_t a, const int64_t b, const float cosine) {
      raise(chunk.a.slot(a), cosine);
      raise(chunk.b.slot(b), cosine);
    });
  });
  return best;
}

void MergePairs(SettledSlots& slots, const int64_t h, const std::span<const SlotPair> pairs,
                const std::span<uint8_t> keep) {
  const int64_t dim = slots.dim();
  const std::span<SlotMark> marks = slots.marks(h);
  // First sums weighted by degree, then one division a slot that took others in.
  const auto scale_row = [dim](float* row, const float factor) {
    for (int64_t i = 0; i < dim; ++i) row[i] *= factor;
  };
  std::vector<uint8_t> is_sum(slots.count(), 0);
  for (const SlotPair& pair : pairs) {
    if (is_sum[pair.b] == 0) {
      scale_row(slots.key(h, pair.b), static_cast<float>(marks[pair.b].degree));
      scale_row(slots.value(h, pair.b), static_cast<float>(marks[pair.b].degree));
      is_sum[pair.b] = 1;
    }
    const auto degree = static_cast<float>(marks[pair.a].degree);
    const auto add_row = [dim, degree](const float* from, float* to) {
      for (int64_t i = 0; i < dim; ++i) to[i] += degree * from[i];
    };
    add_row(slots.key(h, pair.a), slots.key(h, pair.b));
    add_row(slots.value(h, pair.a), slots.value(h, pair.b));
    marks[pair.b].degree += marks[pair.a].degree;
    keep[pair.a] = 0;
  }
  for (int64_t b = 0; b < slots.count(); ++b) {
    if (is_sum[b] == 0) continue;
    const auto degree = static_cast<float>(marks[b].degree);
    for (int64_t i = 0; i < dim; ++i) slots.key(h, b)[i] /= degree;
    for (int64_t i = 0; i < dim; ++i) slots.value(h, b)[i] /= degree;
  }
}

}  // namespace invar::cache
