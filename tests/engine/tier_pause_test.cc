// A tier that does not answer, and then does again, through the whole engine on a simulated clock: what requests wait
// for it, and what they get of it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/log.h"
#include "cache/tiers/simulated.h"
#include "cache/tiers/stores.h"
#include "engine/engine.h"
#include "tests/cache/tiers/temp_folder.h"
#include "tests/cache/watched_store.h"
#include "tests/engine/collector.h"
#include "tools/sim/oracle.h"
#include "tools/sim/sim_tokenizer.h"

namespace invar::engine {
namespace {

using Tokens = std::vector<TokenId>;

constexpr TimeNs kMs = 1'000'000;
constexpr int32_t kIds = 60;
constexpr models::FingerprintOptions kModel{
    .attention_layers = 1, .recurrent_layers = 2, .state_padding_bytes = 6128, .max_sequence_tokens = 4096};

Request Prompt(const int32_t salt) {
  Request request;
  for (int32_t i = 0; i < 200; ++i) request.prompt.emplace_back((salt * 7 + i * (salt + 1)) % kIds);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = 2;
  return request;
}

// A server that fails every read while it is down.
class SwitchedStore final : public cache::WatchedStore {
 public:
  SwitchedStore(std::unique_ptr<TierStore> store, const bool& is_down)
      : WatchedStore(std::move(store), [] {}), is_down_(is_down) {}

  bool is_server() const override { return true; }
  StatusOr<std::string> Get(const cache::TierKey& key, cache::TierTransfer& sink) override {
    if (is_down_) return Unavailable("down");
    return WatchedStore::Get(key, sink);
  }

 private:
  const bool& is_down_;
};

class TierPause : public testing::Test {
 protected:
  TierPause() { Logger("cache")->set_level(spdlog::level::off); }

  // One that reads from what the last one wrote; `stuck`: calls of a thousand that never end.
  void Open(const int stuck) {
    engine_.reset();
    auto store =
        cache::MakeDiskStore({.path = folder_.path(), .budget_bytes = 1 << 26, .store_id = "model"}, *files_).value();
    std::vector<std::unique_ptr<cache::Tier>> tiers;
    tiers.push_back(cache::MakeSimulatedTier(std::make_unique<SwitchedStore>(std::move(store), is_down_), clock_,
                                             {.stuck = stuck}));
    // Room for three of the prompts: others are evicted, and so written.
    engine_ = Engine::Create({.kv_budget_bytes = 48 << 10}, models::MakeFingerprintModel(kModel), &tokenizer_, clock_,
                             std::move(tiers))
                  .value();
  }
  // How long it took, in simulated time; the answer is judged.
  TimeNs Run(const int32_t salt) {
    const Request request = Prompt(salt);
    const TimeNs begin = clock_.Now();
    const auto events = std::make_shared<Collector>();
    EXPECT_TRUE(engine_->Submit(request, events).ok());
    for (int i = 0; i < 60'000 && events->ends() == 0; ++i) {
      engine_->RunOneStep();
      clock_.Advance(kMs);
    }
    EXPECT_TRUE(events->finished().has_value());
    if (!events->finished().has_value()) return 0;
    EXPECT_EQ(events->tokens(), sim::ExpectedAnswer(request, kModel, tokenizer_).tokens);
    from_tier_ += events->finished()->reuse.tier == "disk" ? 1 : 0;
    return clock_.Now() - begin;
  }

  const cache::TempFolder folder_;
  const std::unique_ptr<cache::FileLayer> files_ = cache::MakeSystemFiles();
  const sim::SimTokenizer tokenizer_{kIds};
  SimulatedClock clock_;
  bool is_down_ = false;
  std::unique_ptr<Engine> engine_;
  int from_tier_ = 0;
};

TEST_F(TierPause, ADiskThatHangsCostsThreeRequestsTheirWaitAndThenProbesOnly) {
  constexpr int32_t kPrompts = 60;
  Open(/*stuck=*/0);
  for (int32_t i = 0; i < kPrompts; ++i) Run(i);
  from_tier_ = 0;
  Open(/*stuck=*/0);
  for (int32_t i = 0; i < kPrompts; ++i) EXPECT_LT(Run(i), 1'000 * kMs);
  EXPECT_GT(from_tier_, kPrompts / 2);

  Open(/*stuck=*/1000);
  const TimeNs begin = clock_.Now();
  std::vector<int32_t> waited;
  for (int32_t i = 0; i < kPrompts; ++i) {
    if (Run(i) >= 2'000 * kMs) waited.push_back(i);
    clock_.Advance(100 * kMs);
  }
  ASSERT_GE(waited.size(), 3u);
  EXPECT_EQ(std::vector(waited.begin(), waited.begin() + 3), (std::vector<int32_t>{0, 1, 2}));
  // 60 requests in some 18 s: probes after 1, 2 and 4 s.
  EXPECT_LE(waited.size(), 6u) << "of " << kPrompts;
  EXPECT_LT(clock_.Now() - begin, 30'000 * kMs);
  const cache::PlacementReport& report = engine_->Stats().cache;
  EXPECT_EQ(report.tiers.at(0).stats.pauses, 1);
  EXPECT_GT(report.tier_loads.paused, kPrompts / 2);
}

// Its first read probes, the others wait for it.
TEST_F(TierPause, TheFirstLoadAfterAPauseComesWholeWhereTheTierIsWellAgain) {
  Open(/*stuck=*/0);
  for (int32_t i = 0; i < 20; ++i) Run(i);
  Open(/*stuck=*/0);
  is_down_ = true;
  Run(0);
  ASSERT_EQ(engine_->Stats().cache.tiers.at(0).stats.pauses, 1);
  is_down_ = false;
  clock_.Advance(2'000 * kMs);
  const int64_t failed = engine_->Stats().cache.tier_loads.failed;
  from_tier_ = 0;
  Run(1);
  EXPECT_EQ(from_tier_, 1);
  EXPECT_EQ(engine_->Stats().cache.tier_loads.failed, failed);
}

}  // namespace
}  // namespace invar::engine
