// What layers' budgets follow: how like their neighbours keys are. A layer whose keys hardly change from token to token
// needs few centroids, one whose keys jump needs many, at equal error.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_encoding.h"

namespace invar::cache {

// Of every token and KV head of a layer, the cosine of its key to the most similar one nearby.
struct KeySimilarity {
  static constexpr int kBins = 20;
  std::array<int64_t, kBins> counts{};  // Bin i: [i / 20, (i + 1) / 20); negative ones in the first, 1 in the last.
  double mean_distance = 0.0;           // Mean of 1 - cosine, at least 0.
};

// `chunk`: how far is nearby, in tokens (centroid's setting). Keys of length 0 count as like nothing. Costs a round of
// matching. Threads: any.
KeySimilarity MeasureKeySimilarity(const kernels::PageShape& shape, const kernels::ConstKvRows& rows, int64_t chunk);

// Slots of a KV head for each layer, `slots_total` together (or all there are), none above `tokens`, none below a
// quarter of the even share. Proportional to sqrt(mean_distance): merging n tokens that walk away from each other into
// m means leaves an error near distance * n / m a layer, and the sum of these is least where m grows with the root.
std::vector<int64_t> LayerBudgets(int64_t slots_total, int64_t tokens, std::span<const KeySimilarity> layers);

}  // namespace invar::cache
