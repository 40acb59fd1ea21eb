// Check: what only a bug can break. A failed check stops the process with the place, what must hold, and the values.
// A function instead of a macro: the place arrives through default arguments (g++, clang and nvcc all have the
// builtins; std::source_location fails on clang 14). Operands are evaluated eagerly, so keep them cheap.
#pragma once

#include <sstream>
#include <string>

namespace invar {

struct SourcePlace {
  const char* file;
  int line;
};

// Prints and aborts. Cold and out of line, so that a passing check costs one branch.
[[noreturn, gnu::cold, gnu::noinline]] void CheckFailed(const SourcePlace& place, const char* what_holds,
                                                        const std::string& values);

// What must hold, carrying its place: lets Check take values after it.
struct Holds {
  Holds(const char* text, const char* file = __builtin_FILE(), int line = __builtin_LINE())  // NOLINT: implicit.
      : text(text), place{file, line} {}
  const char* text;
  SourcePlace place;
};

template <typename... Values>
inline void Check(const bool condition, const Holds holds, const Values&... values) {
  if (condition) [[likely]]
    return;
  std::ostringstream out;
  ((out << ' ' << values), ...);
  CheckFailed(holds.place, holds.text, out.str());
}

// As Check, but only in debug builds: for hot loops.
template <typename... Values>
inline void DebugCheck([[maybe_unused]] const bool condition, [[maybe_unused]] const Holds holds,
                       [[maybe_unused]] const Values&... values) {
#ifndef NDEBUG
  Check(condition, holds, values...);
#endif
}

}  // namespace invar
