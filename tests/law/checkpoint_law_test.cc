// The law at checkpoints taken inside a forward: the bytes emitted after token t are those a forward ending at t
// leaves; whoever resumes from them, with KV that is there already, computes the same logits and writes nothing it
// should not. Backends, instruction sets, threads and all models with a recurrent state, the model of hashes among
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/law/state_subject.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using testing::SequenceArena;

constexpr int32_t kTokens = 140;  // Past two page boundaries.
constexpr int32_t kStepwise = 0;  // Sequences of the arena.
constexpr int32_t kWhole = 1;
constexpr int32_t kOther = 2;
constexpr int32_t kSequences = 3;
constexpr int32_t kSpare = kSequences;  // First slot that belongs to no sequence.

std::vector<Subject> Subjects() {
  const std::string hybrid = testing::AssetFolder("tiny-hybrid");
  const std::string moe = testing::GoldenFolder("qwen3_5_moe");
  const std::string next = testing::GoldenFolder("qwen3_next");
  const std::string head = testing::GoldenFolder("qwen3_5-vl");
  std::vector<Subject> all = {{"hashes", "", "", kernels::DType::kF32, ""},
                              {"moe_reference", moe, "reference", kernels::DType::kF32, ""},
                              {"next_reference", next, "reference", kernels::DType::kF32, ""},
                              {"head_reference", head, "reference", kernels::DType::kF32, ""},
                              {"next_f32", next, "cpu", kernels::DType::kF32, ""},
                              {"moe_f32_weights", moe + "/f32", "cpu", kernels::DType::kBf16, ""},
                              {"hybrid_best", hybrid, "cpu", kernels::DType::kBf16, ""}};
  AddIsas(all);
  return all;
}

class CheckpointLaw : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    StatusOr<LoadedSubject> loaded = Load(GetParam(), {});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    loaded_ = *std::move(loaded);
    arena_.emplace(model().spec(), kSequences, kTokens, kTokens + 1);
    tokens_ = testing::RandomTokens(kTokens, model().spec().vocabulary_size, 3);
    others_ = testing::RandomTokens(kTokens, model().spec().vocabulary_size, 4);
  }

  Model& model() { return loaded_.model(); }

  ForwardSpan SpanOf(const int32_t sequence, const std::vector<TokenId>& tokens, const int32_t first,
                     const int32_t end) {
    return arena_->Span(sequence,
                        std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)), first,
                        end - first);
  }
  // Rows of logits, one after another.
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
  void SetSlot(const int32_t slot, const std::vector<std::byte>& bytes) {
    std::ranges::copy(bytes, arena_->Slot(slot).begin());
  }

  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // One token at a time: logits and slot after each.
  void RunStepwise() {
    for (int32_t t = 0; t < kTokens; ++t) {
      logits_.push_back(Run({SpanOf(kStepwise, tokens_, t, t + 1)})[0]);
      states_.push_back(SlotBytes(kStepwise));
    }
  }

  LoadedSubject loaded_;
  std::optional<SequenceArena> arena_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> others_;
  std::vector<std::vector<float>> logits_;
  std::vector<std::vector<std::byte>> states_;
};

std::vector<StateCopy> EveryPosition(const int32_t first, const int32_t end) {
  std::vector<StateCopy> copies;
  for (int32_t t = first + 1; t <= end; ++t) copies.push_back({Position(t), SlotId(kSpare + t)});
  return copies;
}

TEST_P(CheckpointLaw, EveryPositionOfOneForwardEqualsAForwardThatEndsThere) {
  RunStepwise();
  for (const int32_t first : {0, 1, 63, 100}) {
    SCOPED_TRACE(first);
    if (first > 0) {
      arena_->Reset(kWhole);
      Run({SpanOf(kWhole, tokens_, 0, first)});
    }
    ForwardSpan span = SpanOf(kWhole, tokens_, first, kTokens);
    const std::vector<StateCopy> copies = EveryPosition(first, kTokens);
    span.checkpoints = copies;
    for (const StateCopy& copy : copies) std::ranges::fill(arena_->Slot(copy.to.value()), std::byte{0xA5});
    // Another sequence runs beside it, and emits too.
    arena_->Reset(kOther);
    ForwardSpan other = SpanOf(kOther, others_, 0, 5);
    const StateCopy beside{Position(3), SlotId(kSpare)};
    other.checkpoints = {&beside, 1};
    const std::vector<std::vector<float>> logits = Run({other, span});
    for (int32_t t = first; t < kTokens; ++t) {
      ASSERT_TRUE(SlotBytes(kSpare + t + 1) == states_[static_cast<size_t>(t)]) << "state after token " << t;
      ASSERT_TRUE(SameBits(logits[static_cast<size_t>(5 + t - first)], logits_[static_cast<size_t>(t)])) << t;
    }
    EXPECT_TRUE(SlotBytes(kWhole) == states_.back());
    EXPECT_FALSE(SlotBytes(kSpare) == states_[2]);  // The other sequence's: the comparison can fail.
  }
}

TEST_P(CheckpointLaw, ResumingFromAnEmittedSlotGivesTheSameLogits) {
  RunStepwise();
  ForwardSpan span = SpanOf(kWhole, tokens_, 0, kTokens);
  const std::vector<StateCopy> copies = EveryPosition(0, kTokens);
  span.checkpoints = copies;
  Run({span});
  const std::vector<std::byte> pages = arena_->PageBytes(kWhole);
  for (int32_t resume = 1; resume < kTokens; resume += resume < 20 ? 1 : 13) {
    for (const int32_t kv_from : {resume, (resume + kTokens) / 2, kTokens - 1}) {
      SCOPED_TRACE(::testing::Message() << "resume " << resume << " kv_from " << kv_from);
      SetSlot(kWhole, SlotBytes(kSpare + resume));
      ForwardSpan again = SpanOf(kWhole, tokens_, resume, kTokens);
      again.kv_from = Position(std::max(kv_from, resume));
      const std::vector<std::vector<float>> logits = Run({again});
      for (int32_t t = resume; t < kTokens; ++t) {
        ASSERT_TRUE(SameBits(logits[static_cast<size_t>(t - resume)], logits_[static_cast<size_t>(t)])) << t;
      }
      EXPECT_TRUE(SlotBytes(kWhole) == states_.back());
      EXPECT_TRUE(arena_->PageBytes(kWhole) == pages);
    }
  }
}

// Rewriting KV with the same bits would go unseen, so here the pages hold another sequence's.
TEST_P(CheckpointLaw, PagesBelowKvFromStayUntouched) {
  Run({SpanOf(kOther, others_, 0, kTokens)});
  const std::vector<std::byte> poison = arena_->PageBytes(kOther);
  constexpr int32_t kResume = 20;
  Run({SpanOf(kStepwise, tokens_, 0, kResume)});
  const std::vector<std::byte> at_resume = SlotBytes(kStepwise);
  for (const int32_t kv_from : {kResume + 1, 63, 64, 65, 101, kTokens}) {
    SCOPED_TRACE(kv_from);
    arena_->SetPageBytes(kWhole, poison);
    SetSlot(kWhole, at_resume);
    ForwardSpan span = SpanOf(kWhole, tokens_, kResume, kTokens);
    span.kv_from = Position(kv_from);
    const StateCopy copy{Position(kv_from), SlotId(kSpare)};
    span.checkpoints = {&copy, 1};
    const std::vector<std::vector<float>> logits = Run({span});
    const std::vector<std::byte> pages = arena_->PageBytes(kWhole);
    if (kv_from == kTokens) {
      EXPECT_TRUE(pages == poison);
      continue;
    }
    EXPECT_FALSE(pages == poison);
    // What a forward that begins at kv_from writes into the same pages.
    arena_->SetPageBytes(kWhole, poison);
    SetSlot(kWhole, SlotBytes(kSpare));
    const std::vector<std::vector<float>> rest = Run({SpanOf(kWhole, tokens_, kv_from, kTokens)});
    EXPECT_TRUE(arena_->PageBytes(kWhole) == pages);
    EXPECT_TRUE(SameBits(rest.back(), logits.back()));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointLaw, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

class CheckpointLawDeathTest : public ::testing::Test {
 protected:
  CheckpointLawDeathTest() : model_(MakeFingerprintModel({})), arena_(model_->spec(), 2, 70, 3) {}
  void Run(const std::vector<StateCopy>& copies, const int32_t kv_from = 0) {
    ForwardSpan span = arena_.Span(0, tokens_, 0, 0);
    span.checkpoints = copies;
    span.kv_from = Position(kv_from);
    const std::vector<ForwardSpan> spans = {span, arena_.Span(1, tokens_, 0, 0)};
    model_->Forward(arena_.memory(), spans);
  }
  std::unique_ptr<Model> model_;
  SequenceArena arena_;
  const std::vector<TokenId> tokens_ = testing::RandomTokens(10, 64, 1);
};

TEST_F(CheckpointLawDeathTest, RefusesWhatOnlyABugAsksFor) {
  Run({{Position(1), SlotId(2)}, {Position(10), SlotId(3)}}, 10);
  EXPECT_DEATH(Run({{Position(0), SlotId(2)}}), "checkpoints ascend inside their span");
  EXPECT_DEATH(Run({{Position(11), SlotId(2)}}), "checkpoints ascend inside their span");
  EXPECT_DEATH(Run({{Position(5), SlotId(2)}, {Position(5), SlotId(3)}}), "checkpoints ascend inside their span");
  EXPECT_DEATH(Run({{Position(5), SlotId(0)}}), "a checkpoint's slot is no running sequence's");
  EXPECT_DEATH(Run({{Position(5), SlotId(1)}}), "a checkpoint's slot is no running sequence's");
  EXPECT_DEATH(Run({{Position(5), SlotId(2)}, {Position(6), SlotId(2)}}), "a slot takes one checkpoint");
  EXPECT_DEATH(Run({}, 11), "KV is there up to the span's end at most");
}

}  // namespace
}  // namespace invar::models
