// Taking rope off keys and putting it on: keys of two models relate linearly only before their positions turn them.
#pragma once

#include <cstdint>
#include <span>

#include "engine/transfer/scd_rows.h"

namespace invar::engine {

// How one model turns its keys (models::AttentionLayers).
struct KeyRotation {
  std::span<const double> inverse_frequencies;  // Pairs are dims (i, i + size) of a head; dims behind them stay.
  double factor = 1.0;
  int64_t head_dim = 0;
};

// Rows of `keys` [rows, heads * head_dim] are of positions first, first + 1, ...; in place. Threads: any.
void Rotate(const KeyRotation& rotation, int64_t first, FloatRows& keys);
void Unrotate(const KeyRotation& rotation, int64_t first, FloatRows& keys);

}  // namespace invar::engine
