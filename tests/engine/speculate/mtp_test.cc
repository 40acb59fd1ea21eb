// The drafter of the multi-token head: what it asks the model, and where its drafts end.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "engine/speculate/kinds.h"

namespace invar::engine {
namespace {

constexpr int32_t kVocabulary = 50;
constexpr int32_t kStop = 49;

// A head that guesses 3 * token + 1, and notes what it was asked.
class HeadOnly final : public models::Model {
 public:
  explicit HeadOnly(const int32_t rows_max) {
    spec_.vocabulary_size = kVocabulary;
    spec_.mtp = {.why_not = "", .rows_max = rows_max};
  }
  const models::ModelSpec& spec() const override { return spec_; }
  kernels::ConstF32View Forward(const models::SequenceMemory&, std::span<const models::ForwardSpan>) override {
    ADD_FAILURE() << "a drafter runs no forward";
    return {};
  }
  void Advance(const models::SequenceMemory&, std::span<const models::StateAdvance>) override {}
  kernels::ConstF32View Guess(const models::SequenceMemory&, const std::span<const models::GuessRow> rows) override {
    EXPECT_LE(static_cast<int32_t>(rows.size()), spec_.mtp.rows_max);
    calls.emplace_back(rows.begin(), rows.end());
    logits_.assign(rows.size() * kVocabulary, 0.0F);
    for (size_t i = 0; i < rows.size(); ++i) {
      logits_[i * kVocabulary + static_cast<size_t>((3 * rows[i].token.value() + 1) % kVocabulary)] = 1.0F;
    }
    return {logits_.data(), static_cast<int64_t>(rows.size()), kVocabulary, kVocabulary};
  }

  std::vector<std::vector<models::GuessRow>> calls;

 private:
  models::ModelSpec spec_;
  std::vector<float> logits_;
};

class Mtp : public testing::Test {
 protected:
  // A turn of `tokens` tokens that end with `last`, holding so many pages.
  DraftTurn Turn(const int64_t id, const int32_t tokens, const int32_t last, const size_t pages, const int32_t most) {
    texts_.emplace_back(static_cast<size_t>(tokens), TokenId(last));
    return {.id = SequenceId(id),
            .tokens = texts_.back(),
            .pages = std::span(pages_).first(pages),
            .state = SlotId(static_cast<int32_t>(id)),
            .most = most,
            .sampler = &samplers_.emplace_back(DraftSampler::Start{.rows = rows_,
                                                                   .sampling = greedy_,
                                                                   .stopping = stopping_,
                                                                   .counts = counts_,
                                                                   .position = Position(tokens),
                                                                   .usable_ids = kVocabulary,
                                                                   .scratch = scratch_}),
            .draft = {}};
  }
  static std::vector<int32_t> DraftOf(const DraftTurn& turn) {
    std::vector<int32_t> ids;
    for (const TokenId id : turn.draft) ids.push_back(id.value());
    return ids;
  }
  void Propose(HeadOnly& head, std::vector<DraftTurn>& turns) {
    MakeMtpDrafter({.model = head, .memory = memory_})->Propose(turns);
  }

  cache::CacheMemory memory_{{.page_bytes = 64, .state_bytes = 64}, 1 << 12, 1, cache::Backing::kNone};
  const kernels::RowSampler rows_ = kernels::RowSampler::Create("").value();
  std::vector<PageId> pages_ = {PageId(5), PageId(2), PageId(9)};
  std::vector<std::vector<TokenId>> texts_;
  const SamplingParams greedy_{.temperature = 0.0F, .logit_bias = {}, .allowed_token_ids = {}};
  const StoppingParams stopping_{.max_tokens = 100, .stop = {}, .stop_token_ids = {TokenId(kStop)}};
  const TokenCounts counts_;
  std::vector<float> scratch_;
  std::deque<DraftSampler> samplers_;
};

TEST_F(Mtp, GoesOnFromItsOwnGuesses) {
  HeadOnly head(8);
  std::vector<DraftTurn> turns = {Turn(7, 10, 2, 1, 3)};
  Propose(head, turns);
  EXPECT_EQ(DraftOf(turns[0]), (std::vector<int32_t>{7, 22, 17}));
  ASSERT_EQ(head.calls.size(), 3);
  for (int32_t i = 0; i < 3; ++i) {
    const models::GuessRow& row = head.calls[static_cast<size_t>(i)][0];
    EXPECT_EQ(row.position.value(), 9 + i);
    EXPECT_EQ(row.from_row, i == 0 ? -1 : 0);
    EXPECT_EQ(row.token.value(), (std::vector<int32_t>{2, 7, 22})[static_cast<size_t>(i)]);
    EXPECT_EQ(row.state, SlotId(7));
    EXPECT_EQ(row.pages[0], PageId(5));
  }
}

// Drafts of one call shrink away one by one; who is left finds its row of the call before.
TEST_F(Mtp, DraftsForAllTurnsTogether) {
  HeadOnly head(8);
  std::vector<DraftTurn> turns = {Turn(1, 10, 2, 1, 1), Turn(2, 20, 3, 1, 4), Turn(3, 30, 4, 1, 2)};
  Propose(head, turns);
  EXPECT_EQ(DraftOf(turns[0]), (std::vector<int32_t>{7}));
  EXPECT_EQ(DraftOf(turns[1]), (std::vector<int32_t>{10, 31, 44, 33}));
  EXPECT_EQ(DraftOf(turns[2]), (std::vector<int32_t>{13, 40}));
  ASSERT_EQ(head.calls.size(), 4);
  EXPECT_EQ(head.calls[1].size(), 2);
  EXPECT_EQ(head.calls[1][0].from_row, 1);
  EXPECT_EQ(head.calls[1][1].from_row, 2);
  EXPECT_EQ(head.calls[2][0].from_row, 0);
  EXPECT_EQ(head.calls[3][0].position.value(), 22);
}

TEST_F(Mtp, TakesNoMoreRowsTogetherThanTheModel) {
  HeadOnly head(2);
  std::vector<DraftTurn> turns = {Turn(1, 10, 2, 1, 2), Turn(2, 20, 3, 1, 1), Turn(3, 30, 4, 1, 2)};
  Propose(head, turns);
  EXPECT_EQ(DraftOf(turns[0]), (std::vector<int32_t>{7, 22}));
  EXPECT_EQ(DraftOf(turns[1]), (std::vector<int32_t>{10}));
  EXPECT_EQ(DraftOf(turns[2]), (std::vector<int32_t>{13, 40}));
}

TEST_F(Mtp, EndsWhereThePagesEnd) {
  HeadOnly head(8);
  // The last of 64 k + n tokens stands at place n - 1 of its page.
  std::vector<DraftTurn> turns = {Turn(1, 62, 2, 1, 9), Turn(2, 128, 2, 2, 9), Turn(3, 65, 2, 1, 9),
                                  Turn(4, 65, 2, 3, 9)};
  Propose(head, turns);
  EXPECT_EQ(turns[0].draft.size(), 3);
  EXPECT_EQ(turns[1].draft.size(), 1);
  EXPECT_EQ(turns[2].draft.size(), 0);
  EXPECT_EQ(turns[3].draft.size(), 9);
  for (const std::vector<models::GuessRow>& call : head.calls) {
    for (const models::GuessRow& row : call)
      EXPECT_LT(row.position.value(), 64 * static_cast<int32_t>(row.pages.size()));
  }
}

TEST_F(Mtp, EndsBeforeAStopToken) {
  HeadOnly head(8);
  std::vector<DraftTurn> turns = {Turn(1, 10, 5, 1, 9), Turn(2, 10, 2, 1, 3)};  // 5, 16, 49
  Propose(head, turns);
  EXPECT_EQ(DraftOf(turns[0]), (std::vector<int32_t>{16}));
  EXPECT_EQ(DraftOf(turns[1]), (std::vector<int32_t>{7, 22, 17}));
}

TEST_F(Mtp, HasNothingToLookBackOnAtTheFirstToken) {
  HeadOnly head(8);
  std::vector<DraftTurn> turns = {Turn(1, 1, 2, 1, 9)};
  Propose(head, turns);
  EXPECT_TRUE(turns[0].draft.empty());
  EXPECT_TRUE(head.calls.empty());
}

}  // namespace
}  // namespace invar::engine
