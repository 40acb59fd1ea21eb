// Stop strings over streamed text: no byte of one gets out, what did not match comes later, cuts never matter.
#include "engine/sample/stop.h"

#include <gtest/gtest.h>

#include "tools/sim/random.h"

namespace invar::engine {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.Feed("go S", true).text, "go ");
  EXPECT_EQ(matcher.Feed("TO", true).text, "");
  const StopMatcher::Fed fed = matcher.Feed("P and more", true);
  EXPECT_EQ(fed.text, "");
  EXPECT_EQ(fed.matched, "STOP");
}

TEST(StopMatcher, ReleasesWhatDidNotMatch) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.Feed("STO", true).text, "");
  EXPECT_EQ(matcher.Feed("RE", true).text, "STORE");
  EXPECT_EQ(matcher.Feed("ST", true).text, "");
  EXPECT_EQ(matcher.Flush(), "ST");
}

TEST(StopMatcher, KeepsTheStopWhereAskedFor) {
  StopMatcher matcher({"b"}, true);
  const StopMatcher::Fed fed = matcher.Feed("abc", true);
  EXPECT_EQ(fed.text, "ab");
  EXPECT_EQ(fed.matched, "b");
}

TEST(StopMatcher, TheFirstCompleteMatchWinsAndOfThoseTheLongest) {
  StopMatcher matcher({"bcd", "bc", "abc"}, false);
  const StopMatcher::Fed fed = matcher.Feed("xabcd", true);
  EXPECT_EQ(fed.text, "x");
  EXPECT_EQ(fed.matched, "abc");
}

TEST(StopMatcher, UnarmedTextPassesAndIsNoPartOfAMatch) {
  StopMatcher matcher({"ab"}, false);
  EXPECT_EQ(matcher.Feed("ab a", false).text, "ab a");
  EXPECT_EQ(matcher.Feed("b", true).text, "b");
  EXPECT_EQ(matcher.Feed("ab", true).matched, "ab");
}

TEST(StopMatcher, OverlappingBeginningsAreFound) {
  StopMatcher matcher({"aab"}, false);
  EXPECT_EQ(matcher.Feed("aa", true).text, "");
  EXPECT_EQ(matcher.Feed("a", true).text, "a");
  EXPECT_EQ(matcher.Feed("b", true).matched, "aab");
}

// Any cutting gives what feeding byte by byte gives, which is what a plain search over the whole says.
TEST(StopMatcher, CutsDoNotMatter) {
  sim::Random random(3);
  const auto word = [&](const int32_t low, const int32_t high) {
    std::string out;
    for (int32_t i = random.Between(low, high); i > 0; --i) out += random.OneOf({'a', 'b', 'c'});
    return out;
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::vector<std::string> stops = {word(1, 4), word(1, 5)};
    const std::string text = word(0, 20);
    const bool include = random.Percent(50);
    std::string expected = text;
    std::string matched;
    for (size_t end = 1; end <= text.size() && matched.empty(); ++end) {
      for (const std::string& stop : stops) {
        if (text.substr(0, end).ends_with(stop) && stop.size() > matched.size()) matched = stop;
      }
      if (!matched.empty()) expected = text.substr(0, include ? end : end - matched.size());
    }
    StopMatcher matcher(stops, include);
    std::string got;
    bool ended = false;
    for (size_t at = 0; at < text.size() && !ended;) {
      const size_t length = static_cast<size_t>(random.Between(1, 4));
      const StopMatcher::Fed fed = matcher.Feed(text.substr(at, length), true);
      got += fed.text;
      ASSERT_TRUE(expected.starts_with(got)) << text;
      at += length;
      ended = fed.matched.has_value();
      ASSERT_EQ(fed.matched.value_or(matched), matched);
    }
    if (!ended) got += matcher.Flush();
    ASSERT_EQ(got, expected) << text << " stops " << stops[0] << ' ' << stops[1];
  }
}

}  // namespace
}  // namespace invar::engine
