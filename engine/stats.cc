// Names of stats.h, as metrics and reports say them.
#include "engine/stats.h"

namespace invar::engine {

std::string_view NameOf(const FallbackReason reason) {
  switch (reason) {
    case FallbackReason::kUnprofitable:
      return "unprofitable";
    case FallbackReason::kNothingDrafted:
      return "nothing_drafted";
    case FallbackReason::kNoRoom:
      return "no_room";
    case FallbackReason::kNoDraftMemory:
      return "no_draft_memory";
  }
  return "";
}

}  // namespace invar::engine
