// The judgement reads products back, so it waits for the stream; it happens once a shape.
#include "kernels/cuda/judged_products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/split_mix64.h"
#include "kernels/bf16.h"

namespace invar::kernels::cuda {
namespace {

// Below, at and above the heights that kernels' tiles have. The largest is run whole, the others at its beginning and
// at its end, where a tile of another height would be cut otherwise.
constexpr int64_t kRows[] = {1, 2, 7, 16, 17, 64};
constexpr int64_t kMostRows = 80;

// Memory of a device for as long as a judgement takes.
class Borrowed {
 public:
  Borrowed(Device& device, const int64_t bytes) : device_(device), data_(device.Allocate(bytes)) {
    Check(data_ != nullptr, "memory of the device for judging products", bytes);
  }
  ~Borrowed() { device_.Free(data_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  void* data() const { return data_; }

 private:
  Device& device_;
  void* data_;
};

// In [-1, 1), the same every time.
std::vector<uint16_t> RandomRows(const int64_t count) {
  SplitMix64 random(1);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) value = Bf16FromFloat(static_cast<float>(random.Next() >> 40) * 0x1p-23F - 1.0F);
  return values;
}

bool IsNear(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  double worst = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::abs(b[i]));
    worst = std::max<double>(worst, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return worst <= 1e-2 * largest;  // Sums in another order are far nearer, of another matrix far away.
}

}  // namespace

bool JudgedProducts::Passes(const PackedMatrix& weight) {
  const int64_t stride = (weight.cols + 7) / 8 * 8;
  const int64_t out_stride = (weight.rows + 3) / 4 * 4;
  const std::vector<uint16_t> rows = RandomRows(kMostRows * stride);
  const Borrowed x(device_, kMostRows * stride * 2);
  const Borrowed out(device_, kMostRows * out_stride * 4);
  device_.CopyIn(x.data(), rows.data(), kMostRows * stride * 2);
  bool takes = true;
  const auto run = [&](const int64_t begin, const int64_t count, const bool ours) {
    const ProductArgs args{
        .x = {static_cast<uint16_t*>(x.data()) + begin * stride, DType::kBf16, count, weight.cols, stride},
        .weight = weight,
        .bias = nullptr,
        .add = false,
        .out = {static_cast<float*>(out.data()), count, weight.rows, out_stride}};
    if (ours) {
      Linear(args, device_.stream());
    } else {
      takes = takes && library_->Multiply(args, device_.stream());
    }
    std::vector<float> values(static_cast<size_t>(count * out_stride));
    device_.CopyOut(values.data(), out.data(), count * out_stride * 4);
    std::vector<float> compact;
    for (int64_t r = 0; r < count; ++r) {
      compact.insert(compact.end(), values.begin() + r * out_stride, values.begin() + r * out_stride + weight.rows);
    }
    return compact;
  };
  const std::vector<float> ours = run(0, kMostRows, true);
  const std::vector<float> whole = run(0, kMostRows, false);
  if (!takes || !IsNear(whole, ours)) return false;
  for (const int64_t count : kRows) {
    for (const int64_t begin : {int64_t{0}, kMostRows - count}) {
      const std::vector<float> part = run(begin, count, false);
      if (!takes || std::memcmp(part.data(), whole.data() + begin * weight.rows, part.size() * sizeof(float)) != 0) {
        return false;
      }
    }
  }
  return true;
}

bool JudgedProducts::MayUseLibrary(const ProductArgs& args) {
  if (library_ == nullptr || args.x.dtype != DType::kBf16 || args.weight.dtype != DType::kBf16 ||
      args.bias != nullptr || !IsAligned(args)) {
    return false;
  }
  const auto [verdict, is_new] = verdicts_.try_emplace({args.weight.rows, args.weight.cols}, false);
  if (is_new) verdict->second = Passes(args.weight);
  return verdict->second;
}

void JudgedProducts::Multiply(const ProductArgs& args) {
  if (args.x.rows == 0) return;
  if (!MayUseLibrary(args)) return Linear(args, device_.stream());
  Check(library_->Multiply(args, device_.stream()), "a library multiplies a shape that it multiplied before",
        args.weight.rows, args.weight.cols, args.x.rows);
}

}  // namespace invar::kernels::cuda
