// Unicode facts the tokenizers need: classes L, M, N, White_Space, \w, and UTF-8 that keeps invalid bytes.
// The reference tokenizer's regex engine knows Unicode 16 while Debian's utf8proc knows 15, so what 15.1 and 16 added
// stands in a short table of our own (unicode.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar::models {

// One character of a text that may be invalid UTF-8: an invalid byte is a character of its own, of no class.
struct Utf8Char {
  static constexpr int32_t kInvalidByte = -1;
  int32_t code_point;  // Or kInvalidByte.
  int32_t bytes;       // 1 to 4.
};

// The character at `offset`. Requires: offset < text.size(). Threads: any (as everything here).
Utf8Char DecodeUtf8(std::string_view text, size_t offset);
void AppendUtf8(int32_t code_point, std::string& out);
// `bytes` with every maximal invalid sequence replaced by one U+FFFD, as Python's and Rust's lossy decoders do.
std::string ReplaceInvalidUtf8(std::string_view bytes);
// Length of the longest prefix of `bytes` that more bytes cannot change: all of it but a truncated last character.
size_t WholeUtf8Prefix(std::string_view bytes);

bool IsLetter(int32_t code_point);      // \p{L}
bool IsMark(int32_t code_point);        // \p{M}
bool IsNumber(int32_t code_point);      // \p{N}
bool IsWhiteSpace(int32_t code_point);  // White_Space, which is also \s of the reference.
bool IsWord(int32_t code_point);        // \w of Rust's regex crate.

// Canonical composition (NFC) in time linear in the text up to a logarithm, also for long runs of combining marks.
// Invalid bytes stay as they are and do not combine.
std::string ToNfc(std::string_view text);

}  // namespace invar::models
