// Without tensor cores a device does what the emulation does, operation by operation: equal bits. With them, its
// products are its own; then at least each of its runs must give the same.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/row_chooser.h"
#include "tests/kernels/awaited_backend.h"
#include "tests/kernels/bits.h"

namespace invar::kernels {
namespace {

TEST(DeviceBits, OfFloatsAreThoseOfTheEmulation) {
  const Rig device({"cuda", "", DType::kF32});
  Rig emulated({"cuda", "", DType::kF32}, 1);
  emulated.backend =
      Awaited(cuda::MakeCudaBackend(cuda::MakeEmulatedDevice(), nullptr, DType::kF32, emulated.pool)).value();
  const Results got = RunEverything(device);
  const Results want = RunEverything(emulated);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << "result " << i;
}

TEST(DeviceBits, AreTheSameInEveryRun) {
  const Rig device({"cuda", "", DType::kBf16});
  const Results want = RunEverything(device);
  for (int run = 0; run < 5; ++run) EXPECT_EQ(RunEverything(device), want);
}

TEST(DeviceBits, OfChosenTokensAreThoseOfTheHost) {
  constexpr int32_t kIds = 151936;  // A vocabulary of Qwen.
  const Rig device({"cuda", "", DType::kF32});
  const RowSampler host = RowSampler::Create({}).value();
  std::vector<std::vector<float>> rows;
  std::vector<RowChoice> choices;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    for (const SampleSettings& settings :
         {SampleSettings{0.0F, 0, 1.0F, 0.0F}, {1.0F, 0, 1.0F, 0.0F}, {0.7F, 50, 0.9F, 0.0F}, {1.3F, 0, 0.8F, 0.01F}}) {
      rows.push_back(RandomFloats(kIds, seed, 12.0F));
      choices.push_back({.settings = settings, .key = {.seed = seed}, .scores = true, .alternatives = 20});
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) choices[i].logits = rows[i].data();
  std::vector<ChosenRow> chosen(rows.size());
  device->chooser()->Choose(kIds, kIds, choices, chosen);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(chosen[i].token, host.Sample(rows[i], choices[i].settings, choices[i].key)) << i;
    EXPECT_EQ(BitsOf({chosen[i].log_sum}), BitsOf({host.LogSumExp(rows[i])})) << i;
    std::vector<int32_t> top;
    host.Top(rows[i], choices[i].alternatives, &top);
    ASSERT_EQ(chosen[i].top.size(), top.size()) << i;
    for (size_t j = 0; j < top.size(); ++j) EXPECT_EQ(chosen[i].top[j].token, top[j]) << i << " " << j;
  }
}

}  // namespace
}  // namespace invar::kernels
