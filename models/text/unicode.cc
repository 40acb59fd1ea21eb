// Classes and NFC over utf8proc, with the additions of Unicode 15.1 and 16. See unicode.h.
#include "models/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace invar::models {
namespace {

struct Range {
  int32_t first;
  int32_t last;
};

// Assigned after Unicode 15.0, by general category; ascending.
constexpr Range kNewLetters[] = {{0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
                                 {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389},
                                 {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
                                 {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA},
                                 {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
                                 {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D}};
constexpr Range kNewMarks[] = {{0x897, 0x897},     {0x10D69, 0x10D6D}, {0x10EFC, 0x10EFC}, {0x113B8, 0x113C0},
                               {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0},
                               {0x113D2, 0x113D2}, {0x113E1, 0x113E2}, {0x11F5A, 0x11F5A}, {0x1611E, 0x1612F},
                               {0x1E5EE, 0x1E5EF}};
constexpr Range kNewNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
                                 {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};
// Marks that came after Unicode 9, which is what the reference's NFC knows: it neither reorders them nor composes
// across them, and neither may we, or ids would differ. (kNewMarks are later still.)
constexpr Range kMarksUnknownToNfc[] = {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
                                        {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
                                        {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
                                        {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
                                        {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
                                        {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
                                        {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
                                        {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
                                        {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};
// The one canonical composition added since: DIVES AKURU VOWEL SIGN O.
constexpr int32_t kCompositionUnknownToNfc = 0x11938;
// Symbols that count as alphabetic (circled and squared letters), hence as \w.
constexpr Range kAlphabeticSymbols[] = {{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

template <size_t n>
bool InRanges(const Range (&ranges)[n], const int32_t c) {
  return std::any_of(ranges, ranges + n, [c](const Range& r) { return r.first <= c && c <= r.last; });
}

utf8proc_category_t Category(const int32_t c) { return utf8proc_category(c); }

bool InCategories(const int32_t c, const utf8proc_category_t first, const utf8proc_category_t last) {
  const utf8proc_category_t category = Category(c);
  return first <= category && category <= last;
}

bool IsUnassigned(const int32_t c) { return Category(c) == UTF8PROC_CATEGORY_CN; }

// Length of the well-formed sequence at `offset` (0 where there is none), and in `possible` how many bytes of a
// truncated or broken one belong together (the maximal subpart that lossy decoders replace by one U+FFFD).
int32_t SequenceLength(const std::string_view text, const size_t offset, int32_t& possible) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const size_t left = text.size() - offset;
  const unsigned char lead = byte(0);
  possible = 1;
  if (lead < 0x80) return 1;
  const int32_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                         : (lead & 0xF0) == 0xE0        ? 3
                         : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                        : 0;
  if (length == 0) return 0;
  for (int32_t i = 1; i < length; ++i, ++possible) {
    if (i >= left) return 0;
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1 && lead == 0xE0) low = 0xA0;   // No overlong forms,
    if (i == 1 && lead == 0xED) high = 0x9F;  // no surrogates,
    if (i == 1 && lead == 0xF0) low = 0x90;
    if (i == 1 && lead == 0xF4) high = 0x8F;  // nothing above U+10FFFF.
    if (byte(i) < low || byte(i) > high) return 0;
  }
  return length;
}

bool IsAscii(const std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Canonical combining class as the reference's NFC knows it.
int CombiningClass(const int32_t c) {
  const int combining_class = utf8proc_get_property(c)->combining_class;
  if (combining_class == 0 || InRanges(kMarksUnknownToNfc, c) || InRanges(kNewMarks, c)) return 0;
  return combining_class;
}

// A character of decomposed text with its combining class.
struct Decomposed {
  int32_t code_point;
  int combining_class;
};

// Canonical decomposition of `code_point`, appended.
void Decompose(const int32_t code_point, std::vector<Decomposed>& out) {
  if (code_point == kCompositionUnknownToNfc) {
    out.push_back({code_point, 0});
    return;
  }
  utf8proc_int32_t buffer[8];  // The longest canonical decomposition has 4 characters.
  int boundary = 0;
  const utf8proc_ssize_t n = utf8proc_decompose_char(
      code_point, buffer, 8, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  Check(n > 0 && n <= 8, "a character has a canonical decomposition of 1 to 8 characters", code_point, n);
  for (utf8proc_ssize_t i = 0; i < n; ++i) out.push_back({buffer[i], CombiningClass(buffer[i])});
}

// Canonical ordering. utf8proc's own is quadratic in runs of marks, which a hostile text can make a megabyte long.
void OrderMarks(std::vector<Decomposed>& chars) {
  const auto is_mark = [](const Decomposed& c) { return c.combining_class != 0; };
  for (auto begin = chars.begin(); begin != chars.end();) {
    begin = std::find_if(begin, chars.end(), is_mark);
    const auto end = std::find_if_not(begin, chars.end(), is_mark);
    std::stable_sort(begin, end,
                     [](const Decomposed& a, const Decomposed& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
}

// The character that `first` and `second` compose to, or 0.
int32_t Composition(const int32_t first, const int32_t second) {
  utf8proc_int32_t pair[2] = {first, second};
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return n == 1 && pair[0] != kCompositionUnknownToNfc ? pair[0] : 0;
}

// Canonical composition of the decomposed `chars`, appended to `out` as UTF-8 (Unicode standard, section 3.11, D117).
void ComposeInto(std::vector<Decomposed>& chars, std::string& out) {
  OrderMarks(chars);
  std::vector<int32_t> composed;
  size_t starter = 0;        // Index in `composed` of the last character of class 0,
  bool has_starter = false;  // where there is one.
  int last_class = 0;        // Of the last character kept after it.
  for (const auto& [c, combining_class] : chars) {
    const bool adjacent = has_starter && starter + 1 == composed.size();
    if (has_starter && (adjacent || (last_class != 0 && last_class < combining_class))) {
      if (const int32_t whole = Composition(composed[starter], c); whole != 0) {
        composed[starter] = whole;
        continue;
      }
    }
    if (combining_class == 0) {
      starter = composed.size();
      has_starter = true;
    }
    last_class = combining_class;
    composed.push_back(c);
  }
  for (const int32_t c : composed) AppendUtf8(c, out);
  chars.clear();
}

}  // namespace

Utf8Char DecodeUtf8(const std::string_view text, const size_t offset) {
  int32_t possible = 0;
  const int32_t length = SequenceLength(text, offset, possible);
  if (length == 0) return {Utf8Char::kInvalidByte, 1};
  const auto byte = [&](size_t i) { return static_cast<int32_t>(static_cast<unsigned char>(text[offset + i])); };
  if (length == 1) return {byte(0), 1};
  int32_t c = byte(0) & (0xFF >> (length + 1));
  for (int32_t i = 1; i < length; ++i) c = (c << 6) | (byte(i) & 0x3F);
  return {c, length};
}

void AppendUtf8(const int32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string ReplaceInvalidUtf8(const std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    int32_t possible = 0;
    const int32_t length = SequenceLength(bytes, i, possible);
    if (length > 0) {
      out.append(bytes, i, length);
      i += length;
    } else {
      out += "\xEF\xBF\xBD";
      i += possible;
    }
  }
  return out;
}

size_t WholeUtf8Prefix(const std::string_view bytes) {
  // A truncated character is at most 3 bytes long, so only starts in the last three matter.
  for (size_t back = std::min<size_t>(3, bytes.size()); back > 0; --back) {
    const size_t start = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[start]) & 0xC0) == 0x80) continue;  // Not a start.
    int32_t possible = 0;
    const bool broken = SequenceLength(bytes, start, possible) == 0;
    const bool could_grow =
        static_cast<unsigned char>(bytes[start]) >= 0xC2 && static_cast<unsigned char>(bytes[start]) <= 0xF4;
    if (broken && could_grow && possible == static_cast<int32_t>(back)) return start;
  }
  return bytes.size();
}

bool IsLetter(const int32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  return InCategories(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO) || (IsUnassigned(c) && InRanges(kNewLetters, c));
}

bool IsMark(const int32_t c) {
  if (c < 0x300) return false;
  return InCategories(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) || (IsUnassigned(c) && InRanges(kNewMarks, c));
}

bool IsNumber(const int32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return InCategories(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) || (IsUnassigned(c) && InRanges(kNewNumbers, c));
}

bool IsWhiteSpace(const int32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsWord(const int32_t c) {
  if (c < 0) return false;
  const utf8proc_category_t category = Category(c);
  return IsLetter(c) || IsMark(c) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || InRanges(kAlphabeticSymbols, c);
}

std::string ToNfc(const std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::vector<Decomposed> chars;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    if (c.code_point == Utf8Char::kInvalidByte) {
      ComposeInto(chars, out);
      out += text[i];
    } else {
      Decompose(c.code_point, chars);
    }
    i += c.bytes;
  }
  ComposeInto(chars, out);
  return out;
}

}  // namespace invar::models
