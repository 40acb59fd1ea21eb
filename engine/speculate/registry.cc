// The kinds of drafters: a row each.
#include "engine/compressed/compressed_kv.h"
#include "engine/speculate/drafter.h"
#include "engine/speculate/kinds.h"

namespace invar::engine {

std::vector<DrafterKind> DrafterKinds() {
  return {
      {"compressed_kv", MakeCompressedKvDrafter, WhyNoViews, /*compresses=*/true},
      {"ngram", MakeNgramDrafter},
      {"mtp", MakeMtpDrafter, WhyNoMtpDrafter},
      {"ngram+compressed_kv", MakeNgramCompressedKvDrafter, WhyNoViews, /*compresses=*/true},
      {.name = kOfferedDrafter, .make = MakeOfferedDrafter, .from_outside = true},
  };
}

}  // namespace invar::engine
