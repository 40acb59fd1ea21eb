// Which layer crosses how under a budget of bytes: greedy by gain per byte, from measured losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace invar::engine {

// One way for one layer.
struct ScdOption {
  int64_t bytes = 0;
  double loss = 0.0;  // With this layer alone sent so and all others exact.
  double flops = 0.0;
  bool patch = false;  // Counts against the limit of patched layers.
};

struct ScdLimits {
  int64_t bytes = 0;
  double flops = 0.0;
  int32_t patch_layers = 0;
};

// The index of an option for every layer. Begins with each layer's fewest bytes, then takes, as long as one fits, the
// change of one layer that lowers its loss most per byte more (changes that cost none first; ties: the earlier layer,
// the earlier option). Losses add up here; what they come to together is measured afterwards. A budget that the fewest
// bytes exceed gives these. Requires: every layer has an option.
std::vector<size_t> ChooseScdOptions(std::span<const std::vector<ScdOption>> layers, const ScdLimits& limits);

}  // namespace invar::engine
