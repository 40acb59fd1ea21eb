// See strings.h.
#include "models/text/jinja/strings.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <span>
#include <string>

#include "models/text/jinja/full_case.h"
#include "models/text/unicode.h"

namespace invar::models::jinja {
namespace {

// str.isspace(): White_Space and the four separators of ASCII.
bool IsPythonSpace(const int32_t c) { return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F); }

size_t PreviousChar(const std::string_view text, const size_t end) {
  for (size_t back = std::min<size_t>(4, end); back > 1; --back) {
    if (DecodeUtf8(text, end - back).bytes == static_cast<int32_t>(back)) return end - back;
  }
  return end - 1;
}

std::vector<OriginText> SplitSpace(const OriginText& text, const int64_t limit) {
  const std::string_view bytes = text.bytes();
  std::vector<OriginText> parts;
  size_t i = 0;
  const auto skip = [&](bool space) {
    while (i < bytes.size()) {
      const Utf8Char c = DecodeUtf8(bytes, i);
      if (IsPythonSpace(c.code_point) != space) break;
      i += c.bytes;
    }
  };
  for (skip(true); i < bytes.size(); skip(true)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(Strip(text.Slice(i, bytes.size()), "", Side::kRight));
      return parts;
    }
    const size_t begin = i;
    skip(false);
    parts.push_back(text.Slice(begin, i));
  }
  return parts;
}

std::vector<OriginText> SplitSpaceFromRight(const OriginText& text, const int64_t limit) {
  std::vector<OriginText> parts;
  OriginText rest = Strip(text, "", Side::kRight);
  while (!rest.empty() && (limit < 0 || static_cast<int64_t>(parts.size()) < limit)) {
    size_t begin = rest.size();
    while (begin > 0) {
      const size_t previous = PreviousChar(rest.bytes(), begin);
      if (IsPythonSpace(DecodeUtf8(rest.bytes(), previous).code_point)) break;
      begin = previous;
    }
    parts.push_back(rest.Slice(begin, rest.size()));
    rest = Strip(rest.Slice(0, begin), "", Side::kRight);
  }
  if (!rest.empty()) parts.push_back(rest);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

int64_t CharCount(const std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += DecodeUtf8(text, i).bytes;
  return count;
}

std::vector<size_t> CharOffsets(const std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += DecodeUtf8(text, i).bytes) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

size_t FindFirst(const std::string_view text, const std::string_view wanted, const size_t begin) {
  if (begin > text.size()) return std::string_view::npos;
  const void* at = memmem(text.data() + begin, text.size() - begin, wanted.data(), wanted.size());  // Two-way.
  if (at == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

// Knuth, Morris and Pratt from the right.
size_t FindLast(const std::string_view text, const std::string_view wanted) {
  if (wanted.empty()) return text.size();
  const auto from_right = [](const std::string_view s, const size_t i) { return s[s.size() - 1 - i]; };
  // border[i]: how much of `wanted` still matches where its character i, from the right, does not.
  std::vector<int32_t> border(wanted.size() + 1, 0);
  for (size_t i = 1, k = 0; i < wanted.size(); ++i) {
    while (k > 0 && from_right(wanted, i) != from_right(wanted, k)) k = static_cast<size_t>(border[k]);
    if (from_right(wanted, i) == from_right(wanted, k)) ++k;
    border[i + 1] = static_cast<int32_t>(k);
  }
  for (size_t i = 0, k = 0; i < text.size(); ++i) {
    while (k > 0 && from_right(text, i) != from_right(wanted, k)) k = static_cast<size_t>(border[k]);
    if (from_right(text, i) == from_right(wanted, k)) ++k;
    if (k == wanted.size()) return text.size() - 1 - i;
  }
  return std::string_view::npos;
}

OriginText Strip(const OriginText& text, const std::string_view chars, const Side side) {
  const std::string_view bytes = text.bytes();
  const auto stripped = [&](size_t at, size_t length) {
    if (chars.empty()) return IsPythonSpace(DecodeUtf8(bytes, at).code_point);
    for (size_t i = 0; i < chars.size();) {
      const size_t n = DecodeUtf8(chars, i).bytes;
      if (chars.substr(i, n) == bytes.substr(at, length)) return true;
      i += n;
    }
    return false;
  };
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const size_t n = DecodeUtf8(bytes, begin).bytes;
    if (!stripped(begin, n)) break;
    begin += n;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t previous = PreviousChar(bytes, end);
    if (!stripped(previous, end - previous)) break;
    end = previous;
  }
  return text.Slice(begin, end);
}

std::vector<OriginText> Split(const OriginText& text, const std::string_view separator, const int64_t limit,
                              const bool from_right) {
  if (separator.empty()) return from_right ? SplitSpaceFromRight(text, limit) : SplitSpace(text, limit);
  const std::string_view bytes = text.bytes();
  std::vector<OriginText> parts;
  const auto more = [&] { return limit < 0 || static_cast<int64_t>(parts.size()) < limit; };
  if (from_right) {
    size_t end = bytes.size();
    while (more()) {
      const size_t at = bytes.substr(0, end).rfind(separator);
      if (at == std::string_view::npos) break;
      parts.push_back(text.Slice(at + separator.size(), end));
      end = at;
    }
    parts.push_back(text.Slice(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (more()) {
    const size_t at = FindFirst(bytes, separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.Slice(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(text.Slice(begin, bytes.size()));
  return parts;
}

std::vector<OriginText> SplitLines(const OriginText& text, const bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<OriginText> lines;
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, i);
    size_t end = i + c.bytes;
    const bool boundary = (c.code_point >= '\n' && c.code_point <= '\r') ||
                          (c.code_point >= 0x1C && c.code_point <= 0x1E) || c.code_point == 0x85 ||
                          c.code_point == 0x2028 || c.code_point == 0x2029;
    if (c.code_point == '\r' && end < bytes.size() && bytes[end] == '\n') ++end;
    if (boundary) {
      lines.push_back(text.Slice(begin, keep_ends ? end : i));
      begin = end;
    }
    i = end;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

OriginText Replace(const OriginText& text, const std::string_view from, const OriginText& to, const int64_t limit) {
  const std::string_view bytes = text.bytes();
  OriginText out;
  size_t done = 0;
  int64_t count = 0;
  if (from.empty()) {  // Before every character and at the end.
    for (const size_t offset : CharOffsets(bytes)) {
      if (limit >= 0 && count++ >= limit) break;
      out.Append(text, done, offset);
      out.Append(to);
      done = offset;
    }
  } else {
    for (size_t at = FindFirst(bytes, from); at != std::string_view::npos; at = FindFirst(bytes, from, done)) {
      if (limit >= 0 && count++ >= limit) break;
      out.Append(text, done, at);
      out.Append(to);
      done = at + from.size();
    }
  }
  out.Append(text, done, bytes.size());
  return out;
}

namespace {

constexpr int32_t kSigma = 0x3A3;
constexpr int32_t kFinalSigma = 0x3C2;

// Whether one of Jinja's words ends before `c`, and the next begins behind it.
bool PartsWords(const int32_t c) {
  return IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// Whether something with a case stands nearest in `chars`, as they come.
template <typename Chars>
bool MeetsCased(const Chars& chars) {
  const auto met = std::find_if(chars.begin(), chars.end(),
                                [](const Utf8Char c) { return c.code_point < 0 || !IsCaseIgnorable(c.code_point); });
  return met != chars.end() && met->code_point >= 0 && IsCased(met->code_point);
}

// The small form of a character among those around it.
void AppendLowerOf(const std::span<const Utf8Char> chars, const size_t at, std::string& out) {
  const auto before = chars.first(at);
  const bool ends_word = chars[at].code_point == kSigma &&
                         MeetsCased(std::ranges::subrange(before.rbegin(), before.rend())) &&
                         !MeetsCased(chars.subspan(at + 1));
  if (ends_word) return AppendUtf8(kFinalSigma, out);
  AppendLower(chars[at].code_point, out);
}

std::vector<Utf8Char> CharsOf(const std::string_view text) {
  std::vector<Utf8Char> chars;
  for (size_t i = 0; i < text.size(); i += static_cast<size_t>(chars.back().bytes)) {
    chars.push_back(DecodeUtf8(text, i));
  }
  return chars;
}

}  // namespace

OriginText ChangeCase(const OriginText& text, const Case to) {
  const std::vector<Utf8Char> chars = CharsOf(text.bytes());
  // What a sigma may end: all of the text, of Jinja's words the rest behind their first.
  size_t begin = 0;
  size_t end = chars.size();
  OriginText out;
  bool start = true;  // Of a word (title) or of the text (capitalize).
  size_t offset = 0;
  for (size_t i = 0; i < chars.size(); offset += static_cast<size_t>(chars[i++].bytes)) {
    const int32_t c = chars[i].code_point;
    if (c < 0) {
      out.Append(text.bytes().substr(offset, 1), text.OriginAt(offset));
      continue;
    }
    if (to == Case::kTitleWords && start) {
      begin = i + 1;
      const auto parts = [](const Utf8Char of) { return PartsWords(of.code_point); };
      end = static_cast<size_t>(std::find_if(chars.begin() + static_cast<int64_t>(begin), chars.end(), parts) -
                                chars.begin());
    }
    std::string changed;
    if (to == Case::kUpper || (to == Case::kTitleWords && start)) {
      AppendUpper(c, changed);
    } else if (to != Case::kLower && start) {
      AppendTitle(c, changed);
    } else if (i < begin || i >= end) {
      AppendLower(c, changed);
    } else {
      AppendLowerOf(std::span(chars).subspan(begin, end - begin), i - begin, changed);
    }
    out.Append(changed, text.OriginAt(offset));
    start = to == Case::kTitle ? !IsCased(c) : to == Case::kTitleWords && PartsWords(c);
  }
  return out;
}

}  // namespace invar::models::jinja
