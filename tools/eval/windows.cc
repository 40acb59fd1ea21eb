// See windows.h.
#include "tools/eval/windows.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "base/file.h"

namespace invar::eval {
namespace {

constexpr int64_t kFileBytesMax = 8 << 20;  // Two million tokens: more than all windows together.

StatusOr<std::string> ReadText(const std::string& path) {
  StatusOr<std::string> text = ReadFile(path, kFileBytesMax);
  if (!text.ok()) return Status(text.status().code(), "--text: " + text.status().message());
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text->data());
  for (auto at = utf8proc_ssize_t{0}; at < std::ssize(*text);) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(bytes + at, std::ssize(*text) - at, &character);
    if (length <= 0) return InvalidArgument(fmt::format("--text: {}: byte {} is no UTF-8", path, at));
    at += length;
  }
  return text;
}

}  // namespace

StatusOr<std::string> ReadTexts(const std::span<const std::string> paths) {
  std::string all;
  for (const std::string& path : paths) {
    StatusOr<std::string> text = ReadText(path);
    if (!text.ok()) return text.status();
    all += *text + "\n";
  }
  return all;
}

StatusOr<std::vector<TextWindow>> CutWindows(const models::Tokenizer& tokenizer,
                                             const std::span<const std::string> paths, const WindowSizes& sizes) {
  const int64_t need = int64_t{sizes.prefix_tokens} + sizes.suffix_tokens;
  const int64_t files = std::ssize(paths);
  std::vector<std::vector<TokenId>> texts;
  for (const std::string& path : paths) {
    StatusOr<std::string> text = ReadText(path);
    if (!text.ok()) return text.status();
    StatusOr<std::vector<TokenId>> tokens =
        tokenizer.Encode(*text, models::ControlTokens::kStayText, /*add_special=*/true, {});
    if (!tokens.ok()) return Status(tokens.status().code(), "--text: " + path + ": " + tokens.status().message());
    if (std::ssize(*tokens) < need) {
      return InvalidArgument(
          fmt::format("--text: {} has {} tokens, wanted {} for a window of --context-tokens and --suffix-tokens; give "
                      "a longer text or fewer tokens",
                      path, tokens->size(), need));
    }
    texts.push_back(*std::move(tokens));
  }
  std::vector<TextWindow> windows;
  for (int64_t i = 0; i < sizes.windows; ++i) {
    const std::vector<TokenId>& tokens = texts[i % files];
    const int64_t of_file = (sizes.windows - i % files + files - 1) / files;
    const int64_t begin = (std::ssize(tokens) - need) * (i / files) / std::max<int64_t>(1, of_file - 1);
    const auto first = tokens.begin() + begin;
    windows.push_back(
        {.prefix = {first, first + sizes.prefix_tokens}, .suffix = {first + sizes.prefix_tokens, first + need}});
  }
  return windows;
}

}  // namespace invar::eval
