// Every kernel in three orders of threads and blocks, and with each of its waits taken out: a wait that can be missed
// without a trace is either not needed or not tested.
#include <gtest/gtest.h>

#include "tests/kernels/bits.h"
#include "tests/kernels/cuda/orders.h"

namespace invar::kernels {
namespace {

using cuda::emulation::control;
using cuda::emulation::kOrders;
using cuda::emulation::Order;

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

TEST(Mutation, EveryWaitThatIsTakenOutIsMissed) {
  std::vector<std::unique_ptr<Rig>> rigs;
  std::vector<cuda::emulation::Run> runs;
  for (const BackendOptions& options : SubjectOptions()) {
    rigs.push_back(std::make_unique<Rig>(options));
    runs.emplace_back([rig = rigs.back().get()] { return RunKernels(*rig); });
  }
  // Those of the products (four, and one for copies), attention (three), norms, heads, recurrence and experts.
  cuda::emulation::ExpectEveryWaitIsMissed(runs, 14);
}

}  // namespace
}  // namespace invar::kernels
