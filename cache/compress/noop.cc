// noop: every row, exactly. A draft that reads it is always accepted, which catches every slip of a position.
#include "cache/compress/kinds.h"

namespace invar::cache {

CompressorKind Noop() {
  return {{}, [](const Settings& settings) {
            return std::make_unique<Compressor>(CompressorTraits{.keeps_all_tokens = true}, settings.Canonical());
          }};
}

}  // namespace invar::cache
