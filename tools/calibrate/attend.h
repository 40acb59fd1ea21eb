// Softmax attention by hand, outside the model: how much each token of a prefix is looked at, and what looking gives.
#pragma once

#include <span>
#include <vector>

#include "engine/transfer/scd_prefix.h"
#include "kernels/backend.h"

namespace invar::calibrate {

// Outputs [rows, heads * head_dim] of `queries` (rotated, after the whole prefix) over the prefix `kv` (rope on).
// `mass`: where given, each token's share of attention, summed over rows and heads, is added. Requires: mass has a
// value for every token.
engine::FloatRows Attend(const kernels::AttentionShape& shape, const engine::FloatRows& queries,
                         const engine::ScdKv& kv, std::span<double> mass = {});

// Mean cosine of the heads of `a` and `b`, rows alike.
double MeanCosine(const kernels::AttentionShape& shape, const engine::FloatRows& a, const engine::FloatRows& b);

}  // namespace invar::calibrate
