// Opening the CUDA module: everything that can be missing is one sentence, an error where cuda was demanded, and the
// cpu backend where it was not. Modules are stubs (stub_module.cc); the real one is tested in module_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kernels/cuda/module.h"
#include "tests/support/tiny_model.h"

namespace invar::kernels {
namespace {

using ::testing::HasSubstr;

class OpenModule : public ::testing::Test {
 protected:
  StatusOr<std::unique_ptr<Backend>> Make(const std::string& name, const std::string& folder) {
    return MakeBackend({.name = name, .module_folder = folder}, pool);
  }
  static std::string Stub(const std::string& kind) { return std::string(INVAR_STUB_MODULES) + "/" + kind; }

  // The sentence where cuda was demanded; with `auto`, the cpu backend instead.
  std::string Refusal(const std::string& folder) {
    const StatusOr<std::unique_ptr<Backend>> demanded = Make("cuda", folder);
    EXPECT_EQ(demanded.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(demanded.status().field(), "backend");
    const StatusOr<std::unique_ptr<Backend>> instead = Make("auto", folder);
    EXPECT_EQ(instead.ok() ? (*instead)->name() : instead.status().message(), "cpu");
    EXPECT_THAT(demanded.status().message(), HasSubstr("no CUDA backend: "));
    EXPECT_EQ(demanded.status().message().find('\n'), std::string::npos);
    return demanded.status().message();
  }

  WorkerPool pool{1};
};

TEST_F(OpenModule, AMissingOneIsNamedWithItsPlace) {
  EXPECT_THAT(Refusal("/nowhere"), HasSubstr("/nowhere/libinvar_cuda.so is not there"));
}

TEST_F(OpenModule, OneThatIsNoLibraryIsNamed) {
  const invar::testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/libinvar_cuda.so") << "not a library";
  EXPECT_THAT(Refusal(folder.path()), HasSubstr(folder.path() + "/libinvar_cuda.so"));
}

TEST_F(OpenModule, OneWithoutTheEntryIsRefused) {
  EXPECT_THAT(Refusal(Stub("no_entry")), HasSubstr("libinvar_cuda.so has no entry invar_cuda_open"));
}

TEST_F(OpenModule, WhatItSaysIsPassedOn) {
  EXPECT_THAT(Refusal(Stub("refuses")), HasSubstr("the stub sees no device"));
  EXPECT_THAT(Refusal(Stub("silent")), HasSubstr("libinvar_cuda.so gave no reason"));
}

TEST_F(OpenModule, SettingsItCannotComputeWithStayAnInvalidArgument) {
  const Status status = Make("cuda", Stub("no_f16")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "activations");
}

TEST_F(OpenModule, ItsBackendComputes) {
  for (const std::string name : {"cuda", "auto"}) {
    StatusOr<std::unique_ptr<Backend>> backend = Make(name, Stub("works"));
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    std::vector<float> row = {0.0F, 0.0F};
    const std::vector<float> gate_up = {1.0F, 2.0F, 3.0F, 4.0F};
    (*backend)->SwiGlu({gate_up.data(), 1, 4, 4}, {row.data(), DType::kF32, 1, 2, 2});
    EXPECT_GT(row[0], 2.0F);
  }
}

}  // namespace
}  // namespace invar::kernels
