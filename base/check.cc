// Prints place and values of a broken invariant, then stops the process. Kept out of line, so that callers stay small.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace invar {

void CheckFailed(const SourcePlace& place, const char* what_holds, const std::string& values) {
  std::fprintf(stderr, "%s:%d: must hold: %s%s%s\n", place.file, place.line, what_holds, values.empty() ? "" : " |",
               values.c_str());
  std::abort();
}

}  // namespace invar
