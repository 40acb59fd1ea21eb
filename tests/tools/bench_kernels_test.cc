// `invar bench kernels` and `bench model` with a backend that is not there: one line that says what is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "tests/tools/ran_command.h"

namespace invar::tools {
namespace {

TEST(BenchKernels, SaysInOneLineWhatADeviceLacks) {
  WorkerPool pool(1);
  if (kernels::MakeBackend({.name = "cuda"}, pool).ok()) GTEST_SKIP() << "a device is there";
  for (const std::string command : {"bench kernels", "bench model --shape qwen3.5-11m"}) {
    const Ran ran = RunInvar(command + " --backend cuda");
    EXPECT_NE(ran.exit_code, 0);
    EXPECT_NE(ran.output.find("no CUDA backend: "), std::string::npos) << ran.output;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
}

TEST(BenchKernels, StatesSharesOfTheLimitsOfCores) {
  const Ran ran = RunInvar("bench kernels --threads 1 --rounds 1 --filter '^swiglu'");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_NE(ran.output.find("limits (1 threads, "), std::string::npos) << ran.output;
  EXPECT_NE(ran.output.find("% of read"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace invar::tools
