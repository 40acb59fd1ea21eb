// Products of keys are float sums over dims ascending, sixteen columns at a time; cosines and distances follow from
// them. Lengths of keys are taken once a pass.
#include "cache/compress/chunked_matching.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cache/compress/dot_columns.h"

namespace invar::cache {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();
// Keys that spread less than this share of their mean square, by which products in float err, are equal.
constexpr double kLeastSpread = 1e-6;

// Sixteen sums side by side, as one chain of additions would take as long as all products of the key with a chunk.
float SquaredLength(const float* key, const int64_t dim) {
  float sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    for (int64_t j = 0; j < 16; ++j) sums[j] += key[i + j] * key[i + j];
  }
  for (int64_t j = 0; i + j < dim; ++j) sums[j] += key[i + j] * key[i + j];
  for (int64_t half = 8; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// 0 for no length and for one that is no number.
float InverseLength(const double squared) {
  return squared > 0.0 && std::isfinite(squared) ? static_cast<float>(1.0 / std::sqrt(squared)) : 0.0F;
}

// 1 / (2 s^2) of the keys of a range, whose squared lengths are given; 0 where they are all equal, or no numbers.
float DistanceFactor(const SettledSlots& slots, const int64_t h, const int64_t begin,
                     const std::span<const float> lengths) {
  constexpr int64_t kTogether = 64;  // In float.
  const auto count = std::ssize(lengths);
  std::vector<double> mean(slots.dim());
  std::vector<float> sums(slots.dim());
  double squares = 0.0;
  for (int64_t first = 0; first < count; first += kTogether) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int64_t s = first; s < std::min(first + kTogether, count); ++s) {
      const float* key = slots.key(h, begin + s);
      for (int64_t i = 0; i < slots.dim(); ++i) sums[i] += key[i];
      squares += lengths[s];
    }
    for (int64_t i = 0; i < slots.dim(); ++i) mean[i] += sums[i];
  }
  const double square = squares / static_cast<double>(count);
  double spread = square;
  for (const double sum : mean) spread -= sum / static_cast<double>(count) * (sum / static_cast<double>(count));
  return spread > kLeastSpread * square && std::isfinite(spread) ? static_cast<float>(0.5 / spread) : 0.0F;
}

// Slots first, first + step, ...
struct HalfChunk {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  std::vector<float> lengths = {};  // Of each key 1 / length; for distances its squared length.

  int64_t slot(const int64_t i) const { return first + i * step; }
};

// The chunks of a range, one after another. Its room is reused from chunk to chunk.
class ChunkMatcher {
 public:
  ChunkMatcher(const SettledSlots& slots, const int64_t h, const MatchRange& range)
      : slots_(slots),
        h_(h),
        range_(range),
        by_distance_(range.likeness == KeyLikeness::kDistance),
        lengths_(range.end - range.begin),
        block_(slots.dim() * kDotColumns) {
    for (int64_t s = range.begin; s < range.end; ++s) {
      lengths_[s - range.begin] = SquaredLength(slots.key(h, s), slots.dim());
    }
    if (by_distance_) {
      factor_ = DistanceFactor(slots, h, range.begin, lengths_);
    } else {
      for (float& length : lengths_) length = InverseLength(length);
    }
  }

  // Appends a pair for each slot of A, and raises best[slot - range.begin] to the best of each slot's similarities.
  void Match(const int64_t begin, const int64_t end, std::vector<SlotPair>& pairs, const std::span<float> best) {
    Cut(begin, end);
    if (b_.count == 0) {
      best[a_.first - range_.begin] = 1.0F;
      return;
    }
    row_best_.assign(a_.count * kDotColumns, kLeast);
    row_block_.assign(a_.count * kDotColumns, 0);
    for (int64_t first = 0; first < b_.count; first += kDotColumns) MatchColumns(first, best);
    for (int64_t r = 0; r < a_.count; ++r) {
      const SlotPair pair = FirstOfLargest(r);
      best[pair.a - range_.begin] = pair.similarity;
      pairs.push_back(pair);
    }
  }

 private:
  void Cut(const int64_t begin, const int64_t end) {
    const int64_t half = (end - begin + 1) / 2;
    const bool alternates = range_.split == ChunkSplit::kAlternate;
    a_.first = begin;
    b_.first = begin + (alternates ? 1 : half);
    a_.step = b_.step = alternates ? 2 : 1;
    a_.count = half;
    b_.count = end - begin - half;
    for (HalfChunk* part : {&a_, &b_}) {
      part->lengths.resize(part->count);
      for (int64_t i = 0; i < part->count; ++i) part->lengths[i] = lengths_[part->slot(i) - range_.begin];
    }
    products_.resize(a_.count * kDotColumns);
  }

  void MatchColumns(const int64_t first, const std::span<float> best) {
    const int64_t dim = slots_.dim();
    constexpr std::array<float, kDotColumns> kOnes = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t count = std::min(kDotColumns, b_.count - first);
    const float* lengths = b_.lengths.data() + first;
    FillColumns(slots_.key(h_, b_.slot(first)), b_.step * dim, by_distance_ ? kOnes.data() : lengths, count, dim,
                block_.data());
    DotColumns(slots_.key(h_, a_.first), a_.step * dim, a_.count, block_.data(), dim, products_.data());
    std::array<float, kDotColumns> column_best;
    column_best.fill(kLeast);
    RaiseBest({.by_distance = by_distance_,
               .factor = factor_,
               .row_lengths = a_.lengths.data(),
               .column_lengths = lengths,
               .count = a_.count,
               .columns = count,
               .products = products_.data()},
              static_cast<int32_t>(first / kDotColumns),
              {.rows = row_best_.data(), .blocks = row_block_.data(), .columns = column_best.data()});
    for (int64_t j = 0; j < count; ++j) best[b_.slot(first + j) - range_.begin] = column_best[j];
  }

  SlotPair FirstOfLargest(const int64_t row) const {
    const float* similarities = row_best_.data() + row * kDotColumns;
    const int32_t* blocks = row_block_.data() + row * kDotColumns;
    float largest = similarities[0];
    for (int64_t j = 1; j < kDotColumns; ++j) largest = std::max(largest, similarities[j]);
    int64_t first = std::numeric_limits<int64_t>::max();
    for (int64_t j = 0; j < kDotColumns; ++j) {
      if (similarities[j] == largest) first = std::min(first, blocks[j] * kDotColumns + j);
    }
    return {a_.slot(row), b_.slot(first), largest};
  }

  const SettledSlots& slots_;
  const int64_t h_;
  const MatchRange range_;
  const bool by_distance_;
  float factor_ = 0.0F;
  std::vector<float> lengths_;  // By slot - range.begin, as in HalfChunk.
  HalfChunk a_;
  HalfChunk b_;
  std::vector<float> block_;     // [dim][16]
  std::vector<float> products_;  // [a.count][16]
  std::vector<float> row_best_;
  std::vector<int32_t> row_block_;
};

}  // namespace

ChunkMatches MatchChunks(const SettledSlots& slots, const int64_t h, const MatchRange& range) {
  ChunkMatches matches;
  matches.pairs.reserve((range.end - range.begin) / 2 + 1);
  matches.best.resize(range.end - range.begin, kLeast);
  ChunkMatcher matcher(slots, h, range);
  int64_t begin = range.begin;
  int64_t end = range.begin + (range.phase > 0 ? range.phase : range.chunk);
  while (begin < range.end) {
    matcher.Match(begin, std::min(end, range.end), matches.pairs, matches.best);
    begin = end;
    end += range.chunk;
  }
  return matches;
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
