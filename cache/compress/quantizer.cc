// Nothing is ever dropped, so Reduce is never asked for: rows move from the tail into encoded pages once they are old.
#include "cache/compress/quantizer.h"

namespace invar::cache {

std::unique_ptr<Compressor> MakeQuantizer(const Settings& settings, const kernels::KvEncoding encoding) {
  return std::make_unique<Compressor>(CompressorTraits{.family = CompressorFamily::kQuantise,
                                                       .keeps_all_tokens = true,
                                                       .recent = static_cast<int32_t>(settings.Integer("recent")),
                                                       .encoding = encoding},
                                      settings.Canonical());
}

}  // namespace invar::cache
