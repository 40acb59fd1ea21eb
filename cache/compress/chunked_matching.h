// Chunked soft matching: within chunks of consecutive slots, each slot of the first half A finds the slot of the second
// half B whose key is most like its own. Similarity in text falls with distance, so a chunk holds the best partners,
// and the cost is count x chunk x dim / 4 multiply-adds instead of count^2 x dim. Source: CentroidKV (arXiv
// 2506.11418); the matching of sets is ToMe's (arXiv 2210.09461).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/compress/settled_slots.h"

namespace invar::cache {

// How a chunk is cut into A and B: every other slot, or first and last half (worse; for comparison).
enum class ChunkSplit { kAlternate, kHalves };

// How alike two keys are, at most 1. The cosine is the paper's. The distance is what a logit errs by when a key takes
// the other's place, and is free of what all keys share: 1 - |a - b|^2 / (2 s^2), where s^2 is the mean square of keys
// from their mean in the range; so 0 is as unlike as any two. Of keys that share a large mean every cosine is near 1.
enum class KeyLikeness { kDistance, kCosine };

// Slots [begin, end) of a head, cut into chunks of `chunk` from begin + phase on; the first and the last may be short.
struct MatchRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t chunk = 64;
  int64_t phase = 0;  // Of 0..chunk - 1. Shifted from round to round, so that no seam stays.
  ChunkSplit split = ChunkSplit::kAlternate;
  KeyLikeness likeness = KeyLikeness::kDistance;
};

struct SlotPair {
  int64_t a = 0;            // Slot that would go.
  int64_t b = 0;            // Slot that would take it in.
  float similarity = 0.0F;  // KeyLikeness; never NaN.
};

struct ChunkMatches {
  // One for each slot of A that has a B in its chunk, by ascending a. Ties go to the smallest b. To cosine, keys of
  // length 0 are like nothing: similarity 0.
  std::vector<SlotPair> pairs;
  // For every slot from range.begin on the largest similarity to one of the other half of its chunk; 1 where there is
  // none. Outliers are those with the smallest.
  std::vector<float> best;
};
ChunkMatches MatchChunks(const SettledSlots& slots, int64_t h, const MatchRange& range);

// Merges pairs of one head, in ascending order of a: key and value of b become the means of all tokens that a and b
// stand for, in float, and a is marked 0 in `keep` ([count]). Requires: no slot is an `a` twice, nor both an `a` and a
// `b`.
void MergePairs(SettledSlots& slots, int64_t h, std::span<const SlotPair> pairs, std::span<uint8_t> keep);

}  // namespace invar::cache
