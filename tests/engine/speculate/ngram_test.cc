// Prompt lookup: what it finds, in which order of preference, and that its index stays right while texts grow.
#include <gtest/gtest.h>

#include <algorithm>

#include "config/drafter_names.h"
#include "engine/speculate/drafter.h"
#include "tools/sim/random.h"

namespace invar::engine {
namespace {

std::vector<TokenId> Ids(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.emplace_back(c);
  return ids;
}
std::string Text(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text.push_back(static_cast<char>(id.value()));
  return text;
}

class Ngram : public testing::Test {
 protected:
  void SetUp() override {
    for (const DrafterKind& kind : DrafterKinds()) {
      if (kind.name == "ngram") drafter_ = kind.make({.model = *model_, .memory = memory_});
    }
  }
  std::vector<TokenId> Propose(const std::vector<TokenId>& tokens, const int32_t most, const int64_t id = 1) {
    DraftTurn turn{.id = SequenceId(id), .tokens = tokens, .pages = {}, .state = {}, .most = most, .draft = {}};
    drafter_->Propose({&turn, 1});
    return turn.draft;
  }
  std::string Propose(const std::string& text, const int32_t most, const int64_t id = 1) {
    return Text(Propose(Ids(text), most, id));
  }
  // Of which a look-up needs nothing.
  std::unique_ptr<models::Model> model_ = models::MakeFingerprintModel({});
  cache::CacheMemory memory_{{.page_bytes = 64, .state_bytes = 64}, 1 << 12, 1, cache::Backing::kNone};
  std::unique_ptr<Drafter> drafter_;
};

// Requests and the configuration take no other names; nobody names one whose guesses come with the request.
TEST(DrafterKinds, AreNamedByTheApi) {
  for (const DrafterKind& kind : DrafterKinds()) {
    if (kind.from_outside) continue;
    EXPECT_NE(std::find(kDrafterNames.begin(), kDrafterNames.end(), kind.name), kDrafterNames.end()) << kind.name;
  }
}

TEST_F(Ngram, ContinuesAsTheTextDidBefore) {
  EXPECT_EQ(Propose("the cat sat. the c", 5), "at sa");
  EXPECT_EQ(Propose("the cat sat. the cat", 100),
            " sat. the cat sat. the cat sat. the cat sat. the cat sat. the cat"
            " sat. the cat sat. the cat sat. the");
}

TEST_F(Ngram, GivesNothingWhereTheEndIsNew) {
  EXPECT_EQ(Propose("", 4), "");
  EXPECT_EQ(Propose("a", 4, 2), "");
  EXPECT_EQ(Propose("abcab", 4, 3), "");  // Two tokens are no match.
  EXPECT_EQ(Propose("abcdefgh", 4, 4), "");
}

TEST_F(Ngram, TakesTheLongestMatchAndOfEqualOnesTheLatest) {
  EXPECT_EQ(Propose("xabcd1 yabcd2 xabcd", 1), "1");
  EXPECT_EQ(Propose("xabcd1 yabcd2 zabcd", 1, 2), "2");
}

TEST_F(Ngram, APeriodGoesOn) {
  EXPECT_EQ(Propose("aaaa", 6), "aaaaaa");
  EXPECT_EQ(Propose("abcabcabc", 7, 2), "abcabca");
}

TEST_F(Ngram, SequencesDoNotMeetAndForgottenOnesStartAgain) {
  EXPECT_EQ(Propose("hello world, hel", 2, 1), "lo");
  EXPECT_EQ(Propose("help, hel", 1, 2), "p");
  drafter_->Forget(SequenceId(1));
  EXPECT_EQ(Propose("jelly, jel", 2, 1), "ly");
  drafter_->Forget(SequenceId(99));
}

// The slowest search that is plainly right, for the rule of the longest and latest match.
std::vector<TokenId> Search(const std::vector<TokenId>& tokens, const int32_t most) {
  const auto last = static_cast<int32_t>(tokens.size()) - 1;
  int32_t best = -1;
  int32_t best_length = 2;
  for (int32_t place = last - 1; place >= 0; --place) {
    int32_t length = 0;
    while (length < 64 && place - length >= 0 && tokens[place - length] == tokens[last - length]) ++length;
    if (length > best_length) {
      best = place;
      best_length = length;
    }
  }
  std::vector<TokenId> all = tokens;
  for (int32_t i = 0; best >= 0 && i < most; ++i) all.push_back(all[static_cast<size_t>(best + 1 + i)]);
  return {all.begin() + last + 1, all.end()};
}

TEST_F(Ngram, AGrowingTextIsSearchedAsIfFromScratch) {
  sim::Random random(5);
  int32_t found = 0;
  for (int64_t id = 100; id < 160; ++id) {
    std::vector<TokenId> tokens;
    // Few letters: long matches; at most 64 places a run of three, so that none is beyond what is looked at.
    const int32_t letters = random.Between(5, 9);
    for (int32_t grown = 0; grown < 200; grown += random.Between(1, 5)) {
      while (static_cast<int32_t>(tokens.size()) <= grown) tokens.emplace_back(random.Between(1, letters));
      const int32_t most = random.Between(1, 9);
      const std::vector<TokenId> draft = Propose(tokens, most, id);
      ASSERT_EQ(draft, Search(tokens, most)) << "tokens " << tokens.size() << " letters " << letters;
      found += draft.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace invar::engine
