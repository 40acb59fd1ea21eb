// See scd_choose.h.
#include "engine/transfer/scd_choose.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace invar::engine {
namespace {

struct Totals {
  int64_t bytes = 0;
  double flops = 0.0;
  int32_t patched = 0;

  Totals With(const ScdOption& from, const ScdOption& to) const {
    return {bytes - from.bytes + to.bytes, flops - from.flops + to.flops,
            patched - (from.patch ? 1 : 0) + (to.patch ? 1 : 0)};
  }
  bool Fits(const ScdLimits& limits) const {
    return bytes <= limits.bytes && flops <= limits.flops && patched <= limits.patch_layers;
  }
};

}  // namespace

std::vector<size_t> ChooseScdOptions(const std::span<const std::vector<ScdOption>> layers, const ScdLimits& limits) {
  std::vector<size_t> chosen;
  Totals totals;
  for (const std::vector<ScdOption>& options : layers) {
    Check(!options.empty(), "every layer can cross somehow");
    const auto least = std::ranges::min_element(options, {}, [&](const ScdOption& option) {
      return std::tuple(option.flops > limits.flops, option.patch, option.bytes, option.flops, option.loss);
    });
    chosen.push_back(static_cast<size_t>(least - options.begin()));
    totals = totals.With({}, *least);
  }
  while (true) {
    double best_worth = 0.0;
    size_t best_layer = 0;
    size_t best_option = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const ScdOption& now = layers[layer][chosen[layer]];
      for (size_t i = 0; i < layers[layer].size(); ++i) {
        const ScdOption& then = layers[layer][i];
        if (then.loss >= now.loss || !totals.With(now, then).Fits(limits)) continue;
        const double gain = now.loss - then.loss;
        const int64_t more = then.bytes - now.bytes;
        const double worth = more > 0 ? gain / static_cast<double>(more) : gain * std::numeric_limits<float>::max();
        if (worth <= best_worth) continue;
        best_worth = worth;
        best_layer = layer;
        best_option = i;
      }
    }
    if (best_worth <= 0.0) return chosen;
    totals = totals.With(layers[best_layer][chosen[best_layer]], layers[best_layer][best_option]);
    chosen[best_layer] = best_option;
  }
}

}  // namespace invar::engine
