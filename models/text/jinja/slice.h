// Python's slices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/text/jinja/origin_text.h"
#include "models/text/jinja/strings.h"

namespace invar::models::jinja {

// Indices that [start:stop:step] takes from a sequence of `length`. Requires: the step, where given, is not 0.
inline std::vector<int64_t> SliceIndices(const std::optional<int64_t> (&parts)[3], const int64_t length) {
  const int64_t step = parts[2].value_or(1);
  const auto clamp = [&](int64_t index, int64_t low, int64_t high) {
    if (index < 0) index += length;  // Cannot overflow: length >= 0.
    return std::clamp(index, low, high);
  };
  std::vector<int64_t> indices;
  if (step > 0) {
    const int64_t start = parts[0] ? clamp(*parts[0], 0, length) : 0;
    const int64_t stop = parts[1] ? clamp(*parts[1], 0, length) : length;
    for (int64_t i = start; i < stop; i += step) {
      indices.push_back(i);
      if (step >= length) break;
    }
  } else {
    const int64_t start = parts[0] ? clamp(*parts[0], -1, length - 1) : length - 1;
    const int64_t stop = parts[1] ? clamp(*parts[1], -1, length - 1) : -1;
    for (int64_t i = start; i > stop; i += step) {
      indices.push_back(i);
      if (step <= -length) break;
    }
  }
  return indices;
}

inline OriginText SliceText(const OriginText& text, const std::optional<int64_t> (&parts)[3]) {
  const std::vector<size_t> offsets = CharOffsets(text.bytes());
  const std::vector<int64_t> indices = SliceIndices(parts, static_cast<int64_t>(offsets.size()) - 1);
  if (indices.empty()) return {};
  if (parts[2].value_or(1) == 1) return text.Slice(offsets[indices.front()], offsets[indices.back() + 1]);
  OriginText out;
  for (const int64_t i : indices) out.Append(text, offsets[i], offsets[i + 1]);
  return out;
}

}  // namespace invar::models::jinja
