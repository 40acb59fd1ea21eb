// Text together with who wrote each byte of it: the template (control tokens count) or a user (they stay text).
// The mask travels with the text through added-token matching and normalization.
#pragma once

#include <string>
#include <string_view>

#include "models/text.h"

namespace invar::models {

struct MaskedText {
  std::string text;
  // Per byte of `text`: kParseByte or kTextByte.
  std::string mask;

  static constexpr char kParseByte = 1;
  static constexpr char kTextByte = 0;

  void Append(std::string_view bytes, ControlTokens control) {
    text.append(bytes);
    mask.append(bytes.size(), control == ControlTokens::kParse ? kParseByte : kTextByte);
  }
  MaskedText Slice(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), mask.substr(begin, end - begin)};
  }
  // Whether every byte of [begin, end) may be part of a control token.
  bool MayBeControl(size_t begin, size_t end) const {
    return std::string_view(mask).substr(begin, end - begin).find(kTextByte) == std::string_view::npos;
  }
};

}  // namespace invar::models
