// kivi4: 4 bits, keys in groups along the tokens of a channel, values along the dims of a token (KIVI, arXiv
// 2402.02750).
#include <array>

#include "cache/compress/quantizer.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {RecentRow(128)};

}  // namespace

CompressorKind Kivi4() {
  return {kSettings, [](const Settings& settings) { return MakeQuantizer(settings, kernels::KvEncoding::kKivi4); }};
}

}  // namespace invar::cache
