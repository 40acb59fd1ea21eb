// The kinds of drafters: a row each.
#include "engine/speculate/drafter.h"
#include "engine/speculate/kinds.h"

namespace invar::engine {

std::vector<DrafterKind> DrafterKinds() {
  return {
      {"ngram", MakeNgramDrafter},
      {"mtp", MakeMtpDrafter, WhyNoMtpDrafter},
  };
}

}  // namespace invar::engine
