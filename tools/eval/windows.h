// Pieces of somebody's text files: a prefix that is compressed, and what follows it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/text.h"

namespace invar::eval {

struct TextWindow {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};

struct WindowSizes {
  int32_t windows = 0;
  int32_t prefix_tokens = 0;
  int32_t suffix_tokens = 0;
};

// Files in turn, windows of a file spread evenly over it. Errors: those of ReadFile; INVALID_ARGUMENT (no UTF-8, too
// short), naming the file.
StatusOr<std::vector<TextWindow>> CutWindows(const models::Tokenizer& tokenizer, std::span<const std::string> paths,
                                             const WindowSizes& sizes);

// The whole of all files, for noise. Errors: as above.
StatusOr<std::string> ReadTexts(std::span<const std::string> paths);

}  // namespace invar::eval
