// The real module where something is missing beneath it. Which of these runs is decided by the library path that ctest
// sets: none, or that of a stub driver (stub_driver.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/backend.h"

namespace invar::kernels {
namespace {

using testing::HasSubstr;

std::string DriverHere() {
  const char* driver = std::getenv("INVAR_TEST_DRIVER");
  return driver != nullptr ? driver : "";
}

Status Refusal() {
  WorkerPool pool(1);
  StatusOr<std::unique_ptr<Backend>> backend = MakeBackend({.name = "cuda"}, pool);
  StatusOr<std::unique_ptr<Backend>> instead = MakeBackend({.name = "auto"}, pool);
  EXPECT_TRUE(instead.ok());
  if (backend.ok()) return OkStatus();
  EXPECT_EQ((*instead)->name(), "cpu");
  return backend.status();
}

TEST(CudaModule, SaysWhatIsMissing) {
  const Status status = Refusal();
  if (status.ok()) GTEST_SKIP() << "nothing is missing here";
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("no CUDA backend: "));
  std::string wanted;
  if (DriverHere() == "none") wanted = "no NVIDIA driver (libcuda.so.1) is on this machine";
  if (DriverHere() == "old") wanted = "the NVIDIA driver knows CUDA 11.0, this build wants ";
  if (DriverHere() == "no_device") wanted = "the NVIDIA driver sees no device";
  EXPECT_THAT(status.message(), HasSubstr(wanted));
  RecordProperty("message", status.message());
  std::printf("%s\n", status.message().c_str());
}

}  // namespace
}  // namespace invar::kernels
