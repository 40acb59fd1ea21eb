// Every kernel in three orders of threads and blocks, and with each of its waits taken out: a wait that can be missed
// without a trace is either not needed or not tested.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/emulation.h"
#include "tests/kernels/bits.h"

namespace invar::kernels {
namespace {

using cuda::emulation::control;
using cuda::emulation::Order;

constexpr Order kOrders[] = {Order::kAscending, Order::kDescending, Order::kStrided};

Results RunKernels(const Rig& rig) {
  Results results = RunEverything(rig);
  // Few rows have tiles of their own; k is several steps of a product deep, and odd.
  results.push_back(
      BitsOf(Linear(rig, RandomFloats(5 * 203, 1), OwnedMatrix(*rig.backend, RandomFloats(40 * 203, 2), 40, 203), 5)));
  // Two superblocks: of one decoded token side by side, of 33 tokens one after another.
  results.push_back(AttendInCuts(rig, {2, 1, 8, 0, 0.3F}, 1040, 1075, {33, 1}));
  return results;
}

class ThreadOrders : public testing::TestWithParam<BackendOptions> {
 protected:
  ~ThreadOrders() override { control() = {}; }
};

TEST_P(ThreadOrders, GiveTheSameBits) {
  const Rig rig(GetParam());
  const Results want = RunKernels(rig);
  for (const Order order : kOrders) {
    control().order = order;
    EXPECT_EQ(RunKernels(rig), want);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ThreadOrders, testing::ValuesIn(SubjectOptions()), OptionsName);

// True: some order shows that the wait is missing, by other bits or by threads that part.
bool Shows(const cuda::Place& place, const std::vector<std::pair<const Rig*, Results>>& rigs) {
  for (const auto& [rig, want] : rigs) {
    for (const Order order : kOrders) {
      control() = {.order = order, .removed = place, .note_faults = true};
      if (RunKernels(*rig) != want || !control().faults.empty()) return true;
    }
  }
  return false;
}

// As Shows, in a process of its own: indices that were not waited for may lead anywhere.
bool IsMissed(const cuda::Place& place, const std::vector<std::pair<const Rig*, Results>>& rigs) {
  const pid_t child = fork();
  Check(child >= 0, "a process for a mutation");
  if (child == 0) {
    alarm(60);
    _exit(Shows(place, rigs) ? 1 : 0);
  }
  int status = 0;
  Check(waitpid(child, &status, 0) == child, "the mutation ends");
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

TEST(Mutation, EveryWaitThatIsTakenOutIsMissed) {
  std::vector<std::unique_ptr<Rig>> owned;
  std::vector<std::pair<const Rig*, Results>> rigs;
  std::vector<cuda::Place> places;
  for (const BackendOptions& options : SubjectOptions()) {
    owned.push_back(std::make_unique<Rig>(options));
    control() = {.record_places = true};
    rigs.emplace_back(owned.back().get(), RunKernels(*owned.back()));
    for (const cuda::Place& place : control().places) {
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
  }
  for (const cuda::Place& place : places) EXPECT_TRUE(IsMissed(place, rigs)) << cuda::emulation::NameOf(place);
  // Those of the products (four, and one for copies), attention (three), norms, heads, recurrence and experts.
  EXPECT_GE(places.size(), 14U);
  control() = {};
}

}  // namespace
}  // namespace invar::kernels
