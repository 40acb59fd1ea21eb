// Products of keys are float sums over dims ascending, sixteen columns at a time; cosines and distances follow from
// them.
#include "cache/compress/chunked_matching.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "cache/compress/dot_columns.h"

namespace invar::cache {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// Four sums side by side, as one chain of additions would take as long as all products of the key with a chunk.
double SquaredLength(const float* key, const int64_t dim) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= dim; i += 4) {
    for (int64_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(key[i + j]) * key[i + j];
  }
  for (; i < dim; ++i) sums[0] += static_cast<double>(key[i]) * key[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// 0 for no length and for one that is no number.
float InverseLength(const double squared) {
  return squared > 0.0 && std::isfinite(squared) ? static_cast<float>(1.0 / std::sqrt(squared)) : 0.0F;
}

// 1 / (2 s^2) of the keys of a range; 0 where they are all equal, or no numbers.
float DistanceFactor(const SettledSlots& slots, const int64_t h, const int64_t begin, const int64_t end) {
  std::vector<double> mean(slots.dim());
  double squares = 0.0;
  for (int64_t s = begin; s < end; ++s) {
    const float* key = slots.key(h, s);
    for (int64_t i = 0; i < slots.dim(); ++i) mean[i] += key[i];
    squares += SquaredLength(key, slots.dim());
  }
  const auto count = static_cast<double>(end - begin);
  double spread = squares / count;
  for (const double sum : mean) spread -= sum / count * (sum / count);
  return spread > 0.0 && std::isfinite(spread) ? static_cast<float>(0.5 / spread) : 0.0F;
}

// Slots first, first + step, ...
struct HalfChunk {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  // Of each key 1 / length; for distances its squared length.
  std::vector<float> lengths;

  int64_t slot(const int64_t i) const { return first + i * step; }
};

// One chunk, cut in two. Its room is reused from chunk to chunk.
class CutChunk {
 public:
  CutChunk(const SettledSlots& slots, const int64_t h, const MatchRange& range)
      : slots_(slots), h_(h), split_(range.split), block_(slots.dim() * kDotColumns) {
    if (range.likeness == KeyLikeness::kDistance) factor_ = DistanceFactor(slots, h, range.begin, range.end);
  }

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
      part->lengths.resize(part->count);
      for (int64_t i = 0; i < part->count; ++i) {
        const double squared = SquaredLength(slots_.key(h_, part->slot(i)), slots_.dim());
        part->lengths[i] = factor_.has_value() ? static_cast<float>(squared) : InverseLength(squared);
      }
    }
    products_.resize(a.count * kDotColumns);
  }

  // Calls found(index in a, index in b, similarity) for every pair; for each of a, b ascends.
  template <typename Found>
  void ForEachPair(const Found& found) {
    const int64_t dim = slots_.dim();
    constexpr std::array<float, kDotColumns> kOnes = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int64_t first = 0; first < b.count; first += kDotColumns) {
      const int64_t count = std::min(kDotColumns, b.count - first);
      const float* scales = factor_.has_value() ? kOnes.data() : b.lengths.data() + first;
      FillColumns(slots_.key(h_, b.slot(first)), b.step * dim, scales, count, dim, block_.data());
      DotColumns(slots_.key(h_, a.first), a.step * dim, a.count, block_.data(), dim, products_.data());
      for (int64_t r = 0; r < a.count; ++r) {
        for (int64_t j = 0; j < count; ++j) {
          const float product = products_[r * kDotColumns + j];
          const float similarity = factor_.has_value()
                                       ? 1.0F - (a.lengths[r] + b.lengths[first + j] - 2.0F * product) * *factor_
                                       : product * a.lengths[r];
          found(r, first + j, std::isnan(similarity) ? kLeast : similarity);
        }
      }
    }
  }

 private:
  const SettledSlots& slots_;
  const int64_t h_;
  const ChunkSplit split_;
  std::optional<float> factor_;  // Of squared distances; none: cosines.
  std::vector<float> block_;     // [dim][16]
  std::vector<float> products_;  // [a.count][16]
};

// Calls work(chunk) for each, in order.
template <typename Work>
void ForEachChunk(const SettledSlots& slots, const int64_t h, const MatchRange& range, const Work& work) {
  CutChunk chunk(slots, h, range);
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
    chunk.ForEachPair([&](const int64_t a, const int64_t b, const float similarity) {
      SlotPair& pair = pairs[first + a];
      if (similarity > pair.similarity) pair = {pair.a, chunk.b.slot(b), similarity};
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
    const auto raise = [&](const int64_t slot, const float similarity) {
      float& of_slot = best[slot - range.begin];
      of_slot = std::max(of_slot, similarity);
    };
    if (chunk.b.count == 0) return raise(chunk.a.first, 1.0F);
    chunk.ForEachPair([&](const int64_t a, const int64_t b, const float similarity) {
      raise(chunk.a.slot(a), similarity);
      raise(chunk.b.slot(b), similarity);
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
