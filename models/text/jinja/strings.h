// String operations of Python on texts with origins: indices count characters, bytes stay with whoever wrote them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/text/jinja/origin_text.h"

namespace invar::models::jinja {

enum class Side { kBoth, kLeft, kRight };

// Number of characters; an invalid byte counts as one.
int64_t CharCount(std::string_view text);
// Byte offset of every character, and the end.
std::vector<size_t> CharOffsets(std::string_view text);
// First and last place of `wanted` in `text`, npos where there is none. Time linear in both, whatever they hold: the
// standard library's searches take the product of the two lengths on texts that a request can send.
size_t FindFirst(std::string_view text, std::string_view wanted, size_t begin = 0);
size_t FindLast(std::string_view text, std::string_view wanted);
// str.strip(chars); `chars` empty means white space.
OriginText Strip(const OriginText& text, std::string_view chars, Side side);
// str.split(separator, limit) from the left or (`from_right`) the right; an empty separator splits at white space.
// A negative limit is none.
std::vector<OriginText> Split(const OriginText& text, std::string_view separator, int64_t limit, bool from_right);
std::vector<OriginText> SplitLines(const OriginText& text, bool keep_ends);
// str.replace(from, to, limit); a negative limit is none.
OriginText Replace(const OriginText& text, std::string_view from, const OriginText& to, int64_t limit);
// As str's (full_case.h). kTitle is str.title(): a word starts behind anything without a case. kTitleWords is Jinja's
// filter: a word starts behind white space, '-' or an opening bracket, and with a capital as of str.upper().
enum class Case { kUpper, kLower, kTitle, kTitleWords, kCapitalize };
OriginText ChangeCase(const OriginText& text, Case to);

}  // namespace invar::models::jinja
