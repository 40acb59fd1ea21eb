// Shares are found by bisection of one factor: budget(layer) = clamp(factor * root, least, tokens) grows with it.
#include "cache/layer_budgets.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cache/compress/chunked_matching.h"
#include "cache/compress/layer_writer.h"

namespace invar::cache {
namespace {

constexpr int kBisections = 100;  // More than a double has bits.

}  // namespace

KeySimilarity MeasureKeySimilarity(const kernels::PageShape& shape, const kernels::ConstKvRows& rows,
                                   const int64_t chunk) {
  const FlushDenormals flush;
  const SettledSlots slots = LayerWriter::Gather(shape, rows);
  KeySimilarity out;
  double distance = 0.0;
  for (int64_t h = 0; h < slots.heads(); ++h) {
    for (const float best : BestSimilarities(slots, h, {.begin = 0, .end = rows.slots, .chunk = chunk})) {
      const double cosine = std::clamp(static_cast<double>(best), 0.0, 1.0);
      ++out.counts[std::min(KeySimilarity::kBins - 1, static_cast<int>(cosine * KeySimilarity::kBins))];
      distance += 1.0 - cosine;
    }
  }
  out.mean_distance = rows.slots == 0 ? 0.0 : distance / static_cast<double>(rows.slots * slots.heads());
  return out;
}

std::vector<int64_t> LayerBudgets(const int64_t slots_total, const int64_t tokens,
                                  const std::span<const KeySimilarity> layers) {
  const auto count = static_cast<int64_t>(layers.size());
  if (count == 0) return {};
  const int64_t total = std::clamp<int64_t>(slots_total, 0, tokens * count);
  const int64_t least = total / count / 4;
  std::vector<double> roots;
  // The least root keeps a layer of equal keys in proportion to the others.
  for (const KeySimilarity& layer : layers) roots.push_back(std::sqrt(std::max(layer.mean_distance, 1e-6)));
  const auto budgets = [&](const double factor) {
    std::vector<int64_t> out;
    for (const double root : roots) {
      out.push_back(
          static_cast<int64_t>(std::clamp(factor * root, static_cast<double>(least), static_cast<double>(tokens))));
    }
    return out;
  };
  const auto sum = [](const std::vector<int64_t>& of) {
    int64_t out = 0;
    for (const int64_t x : of) out += x;
    return out;
  };
  double low = 0.0;
  double high = 1e3 * static_cast<double>(tokens) + 1.0;  // Fills every layer: the least root is 1e-3.
  for (int i = 0; i < kBisections; ++i) {
    const double middle = 0.5 * (low + high);
    (sum(budgets(middle)) <= total ? low : high) = middle;
  }
  std::vector<int64_t> out = budgets(low);
  // What rounding left goes to the first layers with room.
  for (int64_t left = total - sum(out); left > 0;) {
    for (int64_t i = 0; i < count && left > 0; ++i) {
      if (out[i] < tokens) {
        ++out[i];
        --left;
      }
    }
  }
  Check(sum(out) == total, "budgets of layers add up", sum(out), total);
  return out;
}

}  // namespace invar::cache
