// int8: keys and values in 8 bits with one scale a slot and head. The safest draft: half the bytes.
#include <array>

#include "cache/compress/quantizer.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {RecentRow(64)};

}  // namespace

CompressorKind Int8() {
  return {kSettings, [](const Settings& settings) { return MakeQuantizer(settings, kernels::KvEncoding::kInt8); }};
}

}  // namespace invar::cache
