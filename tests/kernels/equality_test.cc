// Equal bits of the cpu backend on every instruction set and any number of threads, and what else is its own.
#include <gtest/gtest.h>
#include <immintrin.h>

#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/bits.h"

namespace invar::kernels {
namespace {

[[gnu::target("fma")]] float FmaInstruction(const float a, const float b, const float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

class Equality : public testing::TestWithParam<BackendOptions> {};

// A tile of 60 rows is what prefill wants; one query row a head must not pay for it, eight superblocks over.
TEST_P(Equality, DecodeAttentionHoldsPartialsOfItsOwnRowsOnly) {
  const Rig rig(GetParam());
  AttentionSequence sequence(rig, AttentionShape{4, 2, 32, 0, 0.2F}, 8 * 1024, false);
  sequence.done_ = 8 * 1024 - 1;  // What the pages hold is of no interest here.
  sequence.Append(1);
  constexpr int64_t kPartialFloats = 2 * 16 + 2 * 32;  // Two vectors of row sums, two rows of values.
  EXPECT_LE(rig->scratch_bytes(), 2 * 8 * kPartialFloats * 4 * 3 / 2 + 64);
}

TEST_P(Equality, ThreadsAndInstructionSetsGiveTheSameBits) {
  BackendOptions scalar = GetParam();
  scalar.isa = "scalar";
  const Results want = RunEverything(Rig(scalar, 1));
  for (const int threads : {1, 2, 3}) {
    const Results got = RunEverything(Rig(GetParam(), threads));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], want[i]) << "result " << i << ", " << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Equality, testing::ValuesIn(SubjectOptions()), OptionsName);

TEST(ExactFma, EqualsTheInstruction) {
  if (SupportedIsas().front() == "scalar") GTEST_SKIP() << "no fma instruction here";
  const FlushDenormals flush;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const std::vector<float> a = WildFloats(16, 3 * seed);
    const std::vector<float> b = WildFloats(16, 3 * seed + 1);
    std::vector<float> c = WildFloats(16, 3 * seed + 2);
    for (size_t i = 0; i < 16; i += 2) c[i] = -a[i] * b[i] * (1.0F + 0x1p-23F * static_cast<float>(i % 3));  // Cancels.
    std::vector<float> got(16), want(16);
    cpu::ExactFma16(a.data(), b.data(), c.data(), got.data());
    for (size_t i = 0; i < 16; ++i) want[i] = FmaInstruction(a[i], b[i], c[i]);
    ASSERT_EQ(BitsOf(got), BitsOf(want));
  }
}

TEST(PackMatrix, GivesTheSameBytesOnEveryInstructionSet) {
  const std::vector<float> w = RandomFloats(100 * 33, 1);
  const Rig scalar({"cpu", "scalar", DType::kBf16});
  const OwnedMatrix want(*scalar.backend, w, 100, 33);
  for (const std::string& isa : SupportedIsas()) {
    const Rig rig({"cpu", isa, DType::kBf16});
    const OwnedMatrix got(*rig.backend, w, 100, 33);
    EXPECT_EQ(std::memcmp(got.memory(), want.memory(), rig->PackedBytes(100, 33, DType::kBf16)), 0);
  }
}

}  // namespace
}  // namespace invar::kernels
