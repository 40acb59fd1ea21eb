// Case of letters against what Python's str gave (tools/oracle/text/make_case.py): every character that has one, and
// texts whose characters change each other.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "models/text/jinja/full_case.h"
#include "models/text/jinja/strings.h"
#include "models/text/unicode.h"
#include "tests/models/text/text_files.h"

namespace invar::models::jinja {
namespace {

nlohmann::json Golden() { return nlohmann::json::parse(ReadText(GoldenFolder() + "/case.json")); }

std::string Changed(const std::string& text, const Case to) {
  return std::string(ChangeCase(OriginText(text, ControlTokens{}), to).bytes());
}

TEST(Case, OfEveryCharacterIsPythons) {
  const nlohmann::json golden = Golden();
  std::map<int32_t, nlohmann::json> changed;
  for (const auto& row : golden["changed"]) changed[row[0]] = row;
  ASSERT_GT(changed.size(), 2900U);
  for (int32_t c = 0; c < 0x20000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, text);
    const auto found = changed.find(c);
    const auto wanted = [&](const size_t form) {
      return found == changed.end() ? text : std::string(found->second[form]);
    };
    EXPECT_EQ(Changed(text, Case::kUpper), wanted(1)) << c;
    EXPECT_EQ(Changed(text, Case::kTitle), wanted(2)) << c;
    EXPECT_EQ(Changed(text, Case::kCapitalize), wanted(2)) << c;
    EXPECT_EQ(Changed(text, Case::kLower), wanted(3)) << c;
  }
}

TEST(Case, WhatHasOneAndWhatIsLookedThroughIsPythons) {
  const nlohmann::json golden = Golden();
  int32_t wanted = 0;
  for (const auto& range : golden["cased"]) {
    for (int32_t c = range[0]; c <= range[1]; ++c, ++wanted) EXPECT_TRUE(IsCased(c)) << c;
  }
  for (const auto& range : golden["ignorable"]) {
    for (int32_t c = range[0]; c <= range[1]; ++c) EXPECT_TRUE(IsCaseIgnorable(c) && !IsCased(c)) << c;
  }
  // Newer characters that utf8proc knows beyond Python's are not among them.
  int32_t cased = 0;
  for (int32_t c = 0; c < 0x1DF00; ++c) cased += IsCased(c) ? 1 : 0;
  EXPECT_LE(cased, wanted);
}

TEST(Case, OfTextsIsPythons) {
  const nlohmann::json golden = Golden();
  ASSERT_GT(golden["texts"].size(), 600U);
  for (const auto& row : golden["texts"]) {
    const std::string text = row[0];
    EXPECT_EQ(Changed(text, Case::kUpper), row[1]) << text;
    EXPECT_EQ(Changed(text, Case::kLower), row[2]) << text;
    EXPECT_EQ(Changed(text, Case::kTitle), row[3]) << text;
    EXPECT_EQ(Changed(text, Case::kCapitalize), row[4]) << text;
    EXPECT_EQ(Changed(text, Case::kTitleWords), row[5]) << text;
  }
}

TEST(Case, LeavesBytesThatAreNoCharacterAlone) {
  EXPECT_EQ(Changed("a\xff\x80z", Case::kUpper), "A\xff\x80Z");
  EXPECT_EQ(Changed("A\xffZ", Case::kLower), "a\xffz");
}

}  // namespace
}  // namespace invar::models::jinja
