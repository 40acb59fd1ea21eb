// The law at tokens that are not certain yet: a span with a state log leaves the state alone and gives the logits of
// decoding; Advance over any number of its rows then gives the state, the checkpoints on the way and the KV that
// decoding these tokens one by one gives. Backends, instruction sets, threads, all models with a recurrent state, the
// model of hashes and a dense model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/law/state_subject.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using testing::SequenceArena;

constexpr int32_t kTokens = 90;   // Past a page boundary.
constexpr int32_t kLongest = 18;  // Rows of a span with a log: beyond one tile of 16 rows.
constexpr int32_t kStepwise = 0;  // Sequences of the arena.
constexpr int32_t kDrafted = 1;
constexpr int32_t kAlsoDrafted = 2;
constexpr int32_t kCertain = 3;
constexpr int32_t kSequences = 4;
constexpr int32_t kSpare = kSequences;  // First slot that belongs to no sequence.

std::vector<Subject> Subjects() {
  const std::string hybrid = testing::AssetFolder("tiny-hybrid");
  const std::string moe = testing::GoldenFolder("qwen3_5_moe");
  const std::string next = testing::GoldenFolder("qwen3_next");
  const std::string head = testing::GoldenFolder("qwen3_5-vl");
  const std::string dense = testing::GoldenFolder("qwen3");
  std::vector<Subject> all = {{"hashes", "", "", kernels::DType::kF32, ""},
                              {"moe_reference", moe, "reference", kernels::DType::kF32, ""},
                              {"next_reference", next, "reference", kernels::DType::kF32, ""},
                              {"dense_reference", dense, "reference", kernels::DType::kF32, ""},
                              {"head_reference", head, "reference", kernels::DType::kF32, ""},
                              {"next_f32", next, "cpu", kernels::DType::kF32, ""},
                              {"hybrid_best", hybrid, "cpu", kernels::DType::kBf16, ""},
                              {"dense_best", dense, "cpu", kernels::DType::kBf16, ""}};
  AddIsas(all);
  return all;
}

// Memory of one log, filled with garbage.
class Log {
 public:
  Log(const ModelSpec& spec, const int32_t rows) {
    const auto bytes = static_cast<size_t>(spec.StateLogBytes(rows));
    memory_.assign(bytes + kStateLogAlignment, std::byte{0x7B});
    void* at = memory_.data();
    size_t room = memory_.size();
    if (bytes > 0) bytes_ = {static_cast<std::byte*>(std::align(kStateLogAlignment, bytes, at, room)), bytes};
  }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> bytes_;
};

class AdvanceLaw : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    StatusOr<LoadedSubject> loaded = Load(GetParam(), {.state_padding_bytes = 24});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    loaded_ = *std::move(loaded);
    arena_.emplace(model().spec(), kSequences, kTokens, 2 * kLongest);
    tokens_ = testing::RandomTokens(kTokens, model().spec().vocabulary_size, 3);
    others_ = testing::RandomTokens(kTokens, model().spec().vocabulary_size, 4);
    for (int32_t t = 0; t < kTokens; ++t) {
      logits_.push_back(Run({SpanOf(kStepwise, tokens_, t, t + 1)})[0]);
      states_.push_back(SlotBytes(kStepwise));
    }
  }

  Model& model() { return loaded_.model(); }

  ForwardSpan SpanOf(const int32_t sequence, const std::vector<TokenId>& tokens, const int32_t first,
                     const int32_t end) {
    return arena_->Span(sequence,
                        std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)), first,
                        end - first);
  }
  std::vector<std::vector<float>> Run(const std::vector<ForwardSpan>& spans) {
    const kernels::ConstF32View logits = model().Forward(arena_->memory(), spans);
    std::vector<std::vector<float>> rows;
    for (int64_t r = 0; r < logits.rows; ++r) rows.emplace_back(logits.row(r), logits.row(r) + logits.cols);
    return rows;
  }
  std::vector<std::byte> SlotBytes(const int32_t slot) {
    const std::span<const std::byte> bytes = arena_->Slot(slot);
    return {bytes.begin(), bytes.end()};
  }
  void Start(const int32_t sequence, const int32_t first) {
    arena_->Reset(sequence);
    if (first > 0) Run({SpanOf(sequence, tokens_, 0, first)});
  }
  // The right tokens up to `right`, wrong ones from there on.
  std::vector<TokenId> DraftOf(const int32_t right) const {
    std::vector<TokenId> draft = tokens_;
    for (size_t i = static_cast<size_t>(right); i < draft.size(); ++i) {
      draft[i] = TokenId((tokens_[i].value() + 1 + others_[i].value() % 3) % 32);
    }
    return draft;
  }
  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  LoadedSubject loaded_;
  std::optional<SequenceArena> arena_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> others_;
  std::vector<std::vector<float>> logits_;
  std::vector<std::vector<std::byte>> states_;
};

// At each place `first`, spans of `rows` rows of which `right` turn out right: all splits of the longest and of a few
// shorter ones. Another drafted sequence is folded beside it, by another number of rows; a third runs plainly.
TEST_P(AdvanceLaw, ForwardWithALogAndAdvanceEqualsDecodingOneByOne) {
  int32_t compared = 0;
  for (const int32_t first : {1, 58}) {
    for (const int32_t rows : {1, 2, 7, kLongest}) {
      for (int32_t right = 1; right <= rows; ++right) {
        SCOPED_TRACE(::testing::Message() << "first " << first << " rows " << rows << " right " << right);
        Start(kDrafted, first);
        Start(kAlsoDrafted, first);
        Start(kCertain, first);
        const int32_t beside = rows - right + 1;
        const std::vector<TokenId> draft = DraftOf(first + right);
        const std::vector<TokenId> draft_beside = DraftOf(first + beside);
        const Log log(model().spec(), rows);
        const Log log_beside(model().spec(), rows);
        ForwardSpan span = SpanOf(kDrafted, draft, first, first + rows);
        span.state_log = log.bytes();
        ForwardSpan span_beside = SpanOf(kAlsoDrafted, draft_beside, first, first + rows);
        span_beside.state_log = log_beside.bytes();
        const std::vector<std::vector<float>> logits =
            Run({span, SpanOf(kCertain, tokens_, first, first + 3), span_beside});
        const std::vector<std::byte>& before = states_[static_cast<size_t>(first) - 1];
        ASSERT_TRUE(SlotBytes(kDrafted) == before) << "the state has moved";
        ASSERT_TRUE(SlotBytes(kAlsoDrafted) == before) << "the state has moved";
        ASSERT_TRUE(SlotBytes(kCertain) == states_[static_cast<size_t>(first) + 2]);
        for (int32_t r = 0; r < right; ++r) {
          ASSERT_TRUE(SameBits(logits[static_cast<size_t>(r)], logits_[static_cast<size_t>(first + r)])) << r;
        }
        // All positions on the way as checkpoints.
        std::vector<StateCopy> copies;
        for (int32_t r = 1; r <= right; ++r) copies.push_back({Position(first + r), SlotId(kSpare + r)});
        for (const StateCopy& copy : copies) std::ranges::fill(arena_->Slot(copy.to.value()), std::byte{0xA5});
        const std::vector<StateAdvance> advances = {
            {SlotId(kAlsoDrafted), Position(first), log_beside.bytes(), beside, {}},
            {SlotId(kDrafted), Position(first), log.bytes(), right, copies}};
        model().Advance(arena_->memory(), advances);
        ASSERT_TRUE(SlotBytes(kDrafted) == states_[static_cast<size_t>(first + right) - 1]);
        ASSERT_TRUE(SlotBytes(kAlsoDrafted) == states_[static_cast<size_t>(first + beside) - 1]);
        for (int32_t r = 1; r <= right && model().spec().state_bytes > 0; ++r) {
          ASSERT_TRUE(SlotBytes(kSpare + r) == states_[static_cast<size_t>(first + r) - 1]) << "checkpoint " << r;
        }
        // What was rejected leaves nothing: the rest of the tokens, over the rows that were wrong.
        const std::vector<std::vector<float>> rest = Run({SpanOf(kDrafted, tokens_, first + right, kTokens)});
        ASSERT_TRUE(SameBits(rest.back(), logits_.back()));
        ASSERT_TRUE(SlotBytes(kDrafted) == states_.back());
        ASSERT_TRUE(arena_->PageBytes(kDrafted) == arena_->PageBytes(kStepwise));
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 2 * (1 + 2 + 7 + kLongest));
}

// The comparison can fail: one row more is another state.
TEST_P(AdvanceLaw, OneRowMoreIsAnotherState) {
  if (model().spec().state_bytes == 0) GTEST_SKIP() << "a dense model has no state";
  Start(kDrafted, 20);
  const Log log(model().spec(), 4);
  ForwardSpan span = SpanOf(kDrafted, tokens_, 20, 24);
  span.state_log = log.bytes();
  Run({span});
  const StateAdvance advance{SlotId(kDrafted), Position(20), log.bytes(), 3, {}};
  model().Advance(arena_->memory(), {&advance, 1});
  EXPECT_TRUE(SlotBytes(kDrafted) == states_[22]);
  EXPECT_FALSE(SlotBytes(kDrafted) == states_[23]);
}

INSTANTIATE_TEST_SUITE_P(Models, AdvanceLaw, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

TEST(AdvanceLawDeathTest, RefusesWhatOnlyABugAsksFor) {
  const std::unique_ptr<Model> model = MakeFingerprintModel({});
  SequenceArena arena(model->spec(), 2, 70, 3);
  const std::vector<TokenId> tokens = testing::RandomTokens(10, 64, 1);
  const Log log(model->spec(), 10);
  const auto run = [&](const std::span<std::byte> bytes, const std::vector<StateCopy>& copies) {
    ForwardSpan span = arena.Span(0, tokens, 0, 0);
    span.state_log = bytes;
    span.checkpoints = copies;
    model->Forward(arena.memory(), {&span, 1});
  };
  run(log.bytes(), {});
  EXPECT_DEATH(run(log.bytes().first(9 * kStateLogAlignment), {}), "a state log has room for its rows");
  EXPECT_DEATH(run(log.bytes().subspan(4), {}), "a state log");
  EXPECT_DEATH(run(log.bytes(), {{Position(1), SlotId(2)}}), "a state that is only logged has no checkpoints");
  const auto advance = [&](const std::vector<StateAdvance>& all) { model->Advance(arena.memory(), all); };
  advance({{SlotId(0), Position(0), log.bytes(), 10, {}}});
  EXPECT_DEATH(advance({{SlotId(0), Position(0), log.bytes(), 0, {}}}), "a state goes over some rows");
  EXPECT_DEATH(advance({{SlotId(0), Position(0), log.bytes(), 11, {}}}), "a state log has room for its rows");
  EXPECT_DEATH(advance({{SlotId(0), Position(0), log.bytes(), 1, {}}, {SlotId(0), Position(0), log.bytes(), 1, {}}}),
               "a state goes over one log");
}

}  // namespace
}  // namespace invar::models
