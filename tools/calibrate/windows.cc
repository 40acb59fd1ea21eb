// See windows.h.
#include "tools/calibrate/windows.h"

#include <fmt/format.h>

#include <algorithm>

namespace invar::calibrate {
namespace {

std::vector<Window> Spread(const std::span<const TokenId> part, const int32_t count, const WindowCounts& counts) {
  const int64_t need = int64_t{counts.prefix_tokens} + counts.suffix_tokens;
  std::vector<Window> windows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = (std::ssize(part) - need) * i / std::max<int64_t>(1, count - 1);
    windows.push_back({.prefix = part.subspan(static_cast<size_t>(begin), static_cast<size_t>(counts.prefix_tokens)),
                       .suffix = part.subspan(static_cast<size_t>(begin + counts.prefix_tokens),
                                              static_cast<size_t>(counts.suffix_tokens))});
  }
  return windows;
}

}  // namespace

StatusOr<Windows> CutWindows(const std::span<const TokenId> tokens, const WindowCounts& counts) {
  const size_t tenth = tokens.size() / 10;
  const int64_t need = int64_t{counts.prefix_tokens} + counts.suffix_tokens;
  if (std::cmp_less(tenth, need)) {
    return InvalidArgument(fmt::format(
        "--text: {} tokens, wanted {} for --prefix-tokens and --suffix-tokens: a tenth of the text must hold a window",
        tokens.size(), 10 * need));
  }
  return Windows{.fit = Spread(tokens.first(8 * tenth), counts.fit, counts),
                 .choose = Spread(tokens.subspan(8 * tenth, tenth), counts.choose, counts),
                 .judge = Spread(tokens.subspan(9 * tenth), counts.judge, counts)};
}

}  // namespace invar::calibrate
