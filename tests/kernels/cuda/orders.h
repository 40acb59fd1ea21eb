// Orders of threads in which kernels must give the same bits, and the same with waits taken out of the source: one that
// can be missed without a trace is either not needed or not tested.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/emulation.h"

namespace invar::kernels::cuda::emulation {

inline constexpr Order kOrders[] = {Order::kAscending, Order::kDescending, Order::kStrided};

// What kernels gave, in bits.
using Run = std::function<std::vector<std::vector<uint32_t>>()>;
using Bits = std::vector<std::vector<uint32_t>>;

// True: some order shows that the wait is missing, by other bits or by threads that part.
inline bool Shows(const Place& place, const std::vector<Run>& runs, const std::vector<Bits>& want) {
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Order order : kOrders) {
      control() = {.order = order, .removed = place, .note_faults = true};
      if (runs[i]() != want[i] || !control().faults.empty()) return true;
    }
  }
  return false;
}

// As Shows, in a process of its own: indices that were not waited for may lead anywhere.
inline bool IsMissed(const Place& place, const std::vector<Run>& runs, const std::vector<Bits>& want) {
  const pid_t child = fork();
  Check(child >= 0, "a process for a mutation");
  if (child == 0) {
    alarm(60);
    _exit(Shows(place, runs, want) ? 1 : 0);
  }
  int status = 0;
  Check(waitpid(child, &status, 0) == child, "the mutation ends");
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

// `least`: so many waits there are at least.
inline void ExpectEveryWaitIsMissed(const std::vector<Run>& runs, const size_t least) {
  std::vector<Bits> want;
  std::vector<Place> places;
  for (const Run& run : runs) {
    control() = {.record_places = true};
    want.push_back(run());
    for (const Place& place : control().places) {
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
  }
  control() = {};
  for (const Place& place : places) EXPECT_TRUE(IsMissed(place, runs, want)) << NameOf(place);
  EXPECT_GE(places.size(), least);
}

}  // namespace invar::kernels::cuda::emulation
