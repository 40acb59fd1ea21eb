// kivi2: as kivi4 in 2 bits, with the paper's groups of 32 and 128 exact latest tokens (KIVI, arXiv 2402.02750).
#include <array>

#include "cache/compress/quantizer.h"

namespace invar::cache {
namespace {

constexpr std::array kSettings = {RecentRow(128)};

}  // namespace

CompressorKind Kivi2() {
  return {kSettings, [](const Settings& settings) { return MakeQuantizer(settings, kernels::KvEncoding::kKivi2); }};
}

}  // namespace invar::cache
