// How long something takes where nothing disturbs it: the best of several runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

namespace invar::bench {

inline double BestSeconds(const int runs, const std::function<void()>& run) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace invar::bench
