// What is kept of codes, for whom, and for how long.
#include "engine/code_shelf.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace invar::engine {
namespace {

CodeShelf::Codes Codes(const size_t bytes, const int mark) {
  return {std::vector<std::byte>(bytes, static_cast<std::byte>(mark)), {}};
}

Digest Key(const std::string& name) { return Sha256(name); }

TEST(CodeShelf, GivesWhatWasPutUntilTheCacheIsFlushed) {
  CodeShelf shelf(1000);
  shelf.Put(Key("a"), 3, Codes(10, 7));
  ASSERT_NE(shelf.Find(Key("a"), 3), nullptr);
  EXPECT_EQ(*shelf.Find(Key("a"), 3), Codes(10, 7));
  EXPECT_EQ(shelf.Find(Key("b"), 3), nullptr);
  EXPECT_FALSE(shelf.Has(Key("a"), 4));
  EXPECT_EQ(shelf.Find(Key("a"), 4), nullptr);
  EXPECT_EQ(shelf.bytes(), 0) << "and it is gone";
}

// The engine's thread asks: it must not copy what lies there, and whoever sends it keeps it.
TEST(CodeShelf, GivesWhatLiesThereAndNoCopyOfIt) {
  CodeShelf shelf(100);
  shelf.Put(Key("a"), 0, Codes(80, 7));
  const std::shared_ptr<const CodeShelf::Codes> first = shelf.Find(Key("a"), 0);
  EXPECT_EQ(shelf.Find(Key("a"), 0), first);
  shelf.Put(Key("b"), 0, Codes(80, 8));
  EXPECT_EQ(shelf.Find(Key("a"), 0), nullptr);
  EXPECT_EQ(*first, Codes(80, 7));
}

TEST(CodeShelf, TheLeastRecentlyUsedGoFirst) {
  CodeShelf shelf(100);
  for (const char* const name : {"a", "b", "c"}) shelf.Put(Key(name), 0, Codes(30, name[0]));
  EXPECT_NE(shelf.Find(Key("a"), 0), nullptr);
  shelf.Put(Key("d"), 0, Codes(50, 'd'));
  EXPECT_TRUE(shelf.Has(Key("a"), 0));
  EXPECT_FALSE(shelf.Has(Key("b"), 0));
  EXPECT_FALSE(shelf.Has(Key("c"), 0));
  EXPECT_EQ(shelf.bytes(), 80);
  shelf.Put(Key("e"), 0, Codes(101, 'e'));
  EXPECT_FALSE(shelf.Has(Key("e"), 0)) << "more than there is room for";
  EXPECT_EQ(shelf.bytes(), 80);
  shelf.Put(Key("a"), 0, Codes(10, 'A'));
  EXPECT_EQ(shelf.bytes(), 60);
}

TEST(CodeShelf, NobodySharesWhatIsAnothers) {
  const auto held = std::make_shared<HeldProfile>();
  held->digest = "abc";
  held->profile.points.resize(2);
  held->profile.points[1].name = "other";
  const CodedExport coded{.held = held, .point = 0};
  const std::vector<TokenId> tokens = {TokenId(1), TokenId(2)};
  const auto of = [&](const CodedExport& by, const std::string& tenant, const std::string& salt, const size_t count) {
    return CodeShelf::KeyOf(by, {.tenant = tenant, .salt = salt, .provenance = {}}, std::span(tokens).first(count));
  };
  const Digest key = of(coded, "t", "", 2);
  EXPECT_EQ(of(coded, "t", "", 2), key);
  EXPECT_NE(of(coded, "u", "", 2), key);
  EXPECT_NE(of(coded, "t", "s", 2), key);
  EXPECT_NE(of({.held = held, .point = 1}, "t", "", 2), key);
  EXPECT_NE(of(coded, "t", "", 1), key);
}

}  // namespace
}  // namespace invar::engine
