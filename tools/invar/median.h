// What benches print of several runs.
#pragma once

#include <algorithm>
#include <vector>

namespace invar::tools {

// The upper one of two in the middle; 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace invar::tools
