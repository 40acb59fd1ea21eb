// Where the pair is shown what: pieces of the operator's text, of three parts that share no token: what is fitted on,
// what layers' modes are chosen on, and what the report is of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace invar::calibrate {

struct Window {
  std::span<const TokenId> prefix;
  std::span<const TokenId> suffix;
};

struct WindowCounts {
  int32_t fit = 0;
  int32_t choose = 0;
  int32_t judge = 0;
  int32_t prefix_tokens = 0;
  int32_t suffix_tokens = 0;
};

struct Windows {
  std::vector<Window> fit;
  std::vector<Window> choose;
  std::vector<Window> judge;
};

// The first 8 tenths of `tokens` are for fitting, a tenth each for choosing and judging; windows of a part are spread
// evenly over it and overlap where it is short. Errors: INVALID_ARGUMENT (a part is shorter than a window).
StatusOr<Windows> CutWindows(std::span<const TokenId> tokens, const WindowCounts& counts);

}  // namespace invar::calibrate
