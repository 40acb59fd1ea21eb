// Simple mappings and categories are utf8proc's; the rest is case_table.h.
#include "models/text/jinja/full_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "models/text/jinja/case_table.h"
#include "models/text/unicode.h"

namespace invar::models::jinja {
namespace {

const FullCase* Find(const int32_t c) {
  const auto* const found = std::lower_bound(std::begin(kFullCases), std::end(kFullCases), c,
                                             [](const FullCase& of, const int32_t to) { return of.from < to; });
  return found == std::end(kFullCases) || found->from != c ? nullptr : found;
}

// MidLetter, MidNumLet and Single_Quote of Word_Break, which are Case_Ignorable beside whole categories.
constexpr int32_t kInsideWords[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                    0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};

}  // namespace

void AppendUpper(const int32_t code_point, std::string& out) {
  if (const FullCase* const full = Find(code_point); full != nullptr) {
    out += full->upper;
  } else {
    AppendUtf8(utf8proc_toupper(code_point), out);
  }
}

void AppendTitle(const int32_t code_point, std::string& out) {
  if (const FullCase* const full = Find(code_point); full != nullptr) {
    out += full->title;
  } else {
    AppendUtf8(utf8proc_totitle(code_point), out);
  }
}

void AppendLower(const int32_t code_point, std::string& out) {
  constexpr int32_t kCapitalIWithDot = 0x130;  // The only one whose small form is two: the dot stays.
  AppendUtf8(code_point == kCapitalIWithDot ? 'i' : utf8proc_tolower(code_point), out);
  if (code_point == kCapitalIWithDot) AppendUtf8(0x307, out);
}

bool IsCased(const int32_t code_point) {
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      break;
  }
  const auto* const found = std::lower_bound(std::begin(kOtherCased), std::end(kOtherCased), code_point,
                                             [](const CodeRange& of, const int32_t c) { return of.last < c; });
  return found != std::end(kOtherCased) && found->first <= code_point;
}

bool IsCaseIgnorable(const int32_t code_point) {
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::binary_search(std::begin(kInsideWords), std::end(kInsideWords), code_point);
  }
}

}  // namespace invar::models::jinja
