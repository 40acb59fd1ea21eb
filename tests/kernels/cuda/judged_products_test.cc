// A library that keeps the law multiplies; one whose rows see each other, that computes something else or that does not
// take a shape is left out for that shape. Libraries are fakes on the emulation.
#include "kernels/cuda/judged_products.h"

#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulation.h"
#include "tests/kernels/bits.h"

namespace invar::kernels::cuda {
namespace {

enum class Kind {
  kKeepsTheLaw,
  kSeesTheBatch,   // Another order of sums where there are many rows.
  kSeesThePlace,   // Another order in the last rows of a batch.
  kSeesNeighbour,  // A row's sum takes something of the row before it.
  kComputesElse,   // With the weight's rows in another order.
  kTakesNoShape,
};

// Multiplies in an order of its own, k descending: who multiplied is seen in the bits.
class FakeLibrary final : public ProductLibrary {
 public:
  explicit FakeLibrary(const Kind kind) : kind_(kind) {}
  std::string name() const override { return "fake"; }
  bool Multiply(const ProductArgs& args, const Stream stream) override {
    if (kind_ == Kind::kTakesNoShape) return false;
    static_cast<emulation::Queue*>(stream)->Add([this, args] { Compute(args); });
    return true;
  }

 private:
  void Compute(const ProductArgs& args) const {
    for (int64_t t = 0; t < args.x.rows; ++t) {
      const bool ascending = (kind_ == Kind::kSeesTheBatch && args.x.rows > 16) ||
                             (kind_ == Kind::kSeesThePlace && args.x.rows > 16 && t >= args.x.rows / 16 * 16);
      for (int64_t n = 0; n < args.weight.rows; ++n) {
        const int64_t row = kind_ == Kind::kComputesElse ? args.weight.rows - 1 - n : n;
        float sum = kind_ == Kind::kSeesNeighbour && t > 0 ? 1e-6F * At(args.x, t - 1, 0) : 0.0F;
        for (int64_t i = 0; i < args.x.cols; ++i) {
          const int64_t k = ascending ? i : args.x.cols - 1 - i;
          const auto* w = static_cast<const uint16_t*>(args.weight.data) + row * PackedStride(args.x.cols) + k;
          sum += At(args.x, t, k) * FloatFromBf16(*w);
        }
        float& to = args.out.row(t)[n];
        to = args.add ? to + sum : sum;
      }
    }
  }
  static float At(const Activations& x, const int64_t t, const int64_t k) {
    return FloatFromBf16(static_cast<const uint16_t*>(x.data)[t * x.stride + k]);
  }
  const Kind kind_;
};

// The bits of five rows; `library` null: of our own kernel.
std::vector<uint32_t> Product(std::unique_ptr<ProductLibrary> library, const std::vector<float>& bias = {}) {
  constexpr int64_t kN = 24;
  constexpr int64_t kK = 104;
  const std::unique_ptr<Device> device = MakeEmulatedDevice();
  JudgedProducts products(*device, std::move(library));
  const Rig rig({"cuda", "", DType::kBf16}, 1);
  const OwnedMatrix weight(*rig.backend, RandomBf16Floats(kN * kK, 1), kN, kK);
  alignas(16) uint16_t x[5 * kK];
  const std::vector<uint16_t> values = Rounded(RandomBf16Floats(5 * kK, 2));
  std::copy(values.begin(), values.end(), x);
  alignas(16) float out[5 * kN] = {};
  for (int call = 0; call < 2; ++call) {
    products.Multiply({.x = {x, DType::kBf16, 5, kK, kK},
                       .weight = weight.view(),
                       .bias = bias.empty() ? nullptr : bias.data(),
                       .add = call == 1,
                       .out = {out, 5, kN, kN}});
  }
  device->Finish();
  return BitsOf({out, out + 5 * kN});
}

TEST(JudgedProducts, ALibraryThatKeepsTheLawMultiplies) {
  EXPECT_NE(Product(std::make_unique<FakeLibrary>(Kind::kKeepsTheLaw)), Product(nullptr));
}

TEST(JudgedProducts, OneThatDoesNotIsLeftOut) {
  const std::vector<uint32_t> ours = Product(nullptr);
  for (const Kind kind :
       {Kind::kSeesTheBatch, Kind::kSeesThePlace, Kind::kSeesNeighbour, Kind::kComputesElse, Kind::kTakesNoShape}) {
    EXPECT_EQ(Product(std::make_unique<FakeLibrary>(kind)), ours) << static_cast<int>(kind);
  }
}

TEST(JudgedProducts, WithABiasOurOwnKernelMultiplies) {
  const std::vector<float> bias = RandomFloats(24, 3);
  EXPECT_EQ(Product(std::make_unique<FakeLibrary>(Kind::kKeepsTheLaw), bias), Product(nullptr, bias));
}

}  // namespace
}  // namespace invar::kernels::cuda
