// k8v4: keys in 8 bits, values in 4. Keys are the fragile half, since their errors pass through the softmax.
#include <array>

#include "cache/compress/quantizer.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {RecentRow(64)};

}  // namespace

CompressorKind K8V4() {
  return {kSettings, [](const Settings& settings) { return MakeQuantizer(settings, kernels::KvEncoding::kK8V4); }};
}

}  // namespace invar::cache
