// What Speculator counts for those who weigh rounds: here, the upkeep of views that follow without a draft.
#include "engine/speculate/speculator.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/loop/bind_model.h"

namespace invar::engine {
namespace {

constexpr TimeNs kUpkeepNs = 3'000'000;

// Has a view from the first turn on; keeping it up to date takes time.
class FollowingDrafter final : public Drafter {
 public:
  explicit FollowingDrafter(SimulatedClock& clock) : clock_(clock) {}
  bool IsReady(SequenceId) const override { return tokens_ > 0; }
  int32_t ViewTokens(SequenceId) const override { return tokens_; }
  void Prepare(DraftTurn& turn) override {
    tokens_ = static_cast<int32_t>(turn.tokens.size()) - 1;
    clock_.Advance(kUpkeepNs);
  }
  void Propose(std::span<DraftTurn>) override {}
  void Forget(SequenceId) override { tokens_ = 0; }

 private:
  SimulatedClock& clock_;
  int32_t tokens_ = 0;
};

class Growing final : public SpeculatedSequence {
 public:
  Growing() {
    request_.speculation.drafter = "following";
    request_.speculation.compressor = "k8v4";
  }
  void Grow() { tokens_.emplace_back(1); }

  SequenceId id() const override { return SequenceId(1); }
  const Request& request() const override { return request_; }
  const std::vector<TokenId>& tokens() const override { return tokens_; }
  int32_t computed() const override { return static_cast<int32_t>(tokens_.size()) - 1; }
  int32_t output_tokens() const override { return 0; }
  int32_t output_left() const override { return 100; }
  const TokenCounts& counts() const override { return counts_; }
  bool paused() const override { return false; }
  std::span<const PageId> page_ids() const override { return {}; }
  SlotId slot() const override { return SlotId(0); }
  int32_t away_pages() const override { return 0; }
  const AwayKv* away() const override { return nullptr; }
  std::span<const TokenId> draft() const override { return {}; }
  void SetDraft(std::vector<TokenId>) override {}

 private:
  Request request_;
  std::vector<TokenId> tokens_ = {TokenId(1), TokenId(2)};
  TokenCounts counts_;
};

TEST(Speculator, CountsTheUpkeepOfViewsThatFollowWithoutADraft) {
  SimulatedClock clock;
  const std::unique_ptr<models::Model> model = models::MakeFingerprintModel({});
  const kernels::RowSampler rows = SamplerFor(*model);
  const cache::CacheMemory memory(cache::StateShape{}, 0, 0, cache::Backing::kMemory);
  const DrafterKind kind{.name = "following",
                         .make = [&](const DrafterSetting&) { return std::make_unique<FollowingDrafter>(clock); },
                         .compresses = true};
  Speculator speculator({&kind, 1}, {.model = *model, .memory = memory}, 8, rows, 60, clock);
  Growing sequence;
  ASSERT_TRUE(*speculator.MakeViewReady(sequence));
  EXPECT_EQ(speculator.view_costs().made_ns, kUpkeepNs);
  EXPECT_EQ(speculator.view_costs().followed_ns, 0);
  sequence.Grow();
  ASSERT_TRUE(*speculator.MakeViewReady(sequence));
  EXPECT_EQ(speculator.view_costs().followed_ns, kUpkeepNs);
  EXPECT_EQ(speculator.view_costs().made_ns, kUpkeepNs);
  ASSERT_TRUE(*speculator.MakeViewReady(sequence));
  EXPECT_EQ(speculator.view_costs().followed_ns, kUpkeepNs) << "it stands for all there is";
}

}  // namespace
}  // namespace invar::engine
