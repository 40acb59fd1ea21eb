// Attention of the observed queries on the slots of one KV head.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/compress/settled_slots.h"
#include "cache/compressor.h"

namespace invar::cache {

// For each slot of KV head `h` the attention it gets from the last `queries` queries observed (all, where fewer were),
// summed over them and over the query heads of `h`. A query sees slots up to its own token. [count]
// Logits in float, the softmax in double; queries ascending.
std::vector<double> ObservedAttention(const SettledSlots& slots, const Observation& observation, int64_t h,
                                      int64_t queries);

// Alike from the queries that are spread over all tokens.
std::vector<double> SpreadAttention(const SettledSlots& slots, const Observation& observation, int64_t h);

// exp(x - max) / sum of them, in place; all 0 where there is no largest number.
void SoftmaxInPlace(std::vector<double>& x);

// Of logits: the observation's, or 1 / sqrt(dim).
float ScaleOf(const Observation& observation, int64_t dim);

}  // namespace invar::cache
