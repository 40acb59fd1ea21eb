// A cache over tiers, driven by hand: whole sequences at once, whose KV and states are hashes of their tokens, so that
// every byte that is reused can be judged.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cache/cache_manager.h"
#include "cache/tiers/threaded_tier.h"
#include "tests/cache/token_lists.h"

namespace invar::cache {

inline constexpr StateShape kHybrid{.page_bytes = 512, .state_bytes = 256};
inline constexpr StateShape kDense{.page_bytes = 512, .state_bytes = 0};

// 8 bytes of KV a position, and a state: hashes of all tokens up to there.
inline uint64_t HashOf(const std::span<const TokenId> tokens) {
  uint64_t hash = 1;
  for (const TokenId token : tokens) hash = hash * 6364136223846793005U + token.value() + 1;
  return hash;
}

inline std::unique_ptr<Tier> Threaded(std::unique_ptr<TierStore> store, const Clock& clock) {
  return MakeThreadedTier(std::move(store), clock, {});
}

class Rig {
 public:
  Rig(const StateShape& shape, const int64_t budget, std::vector<std::unique_ptr<Tier>> tiers)
      : Rig(CacheOptions{.shape = shape, .budget_bytes = budget, .slots_without_bytes = 4, .identity = "model"},
            std::move(tiers)) {}
  // `clock`: of the tiers; null: the real one.
  Rig(const CacheOptions& options, std::vector<std::unique_ptr<Tier>> tiers, const Clock* const clock = nullptr)
      : shape_(options.shape), clock_(clock == nullptr ? real_clock_ : *clock), cache_(options, std::move(tiers)) {}

  // Brings, resumes, checks every byte that is reused, runs the rest, keeps it.
  PrefixMatch Whole(const Tokens& tokens, const Scope& scope = {}) {
    const int32_t n = static_cast<int32_t>(tokens.size());
    const PrefixQuery query{.scope = scope, .tokens = tokens, .prompt_tokens = n, .resume_limit = n - 1};
    tier_ = "";
    if (const std::optional<int64_t> ticket = cache_.Prefetch(query, 0, clock_.Now()); ticket.has_value())
      Wait(*ticket);
    PrefixLease lease = cache_.Acquire(query, clock_.Now());
    const PrefixMatch match = lease.match();
    for (int32_t at = 0; at < match.kv_tokens; ++at) {
      EXPECT_EQ(Kv(lease, at), HashOf(std::span(tokens).first(at + 1))) << "position " << at << " of " << n;
    }
    if (shape_.state_bytes > 0 && match.state_tokens > 0) {
      EXPECT_EQ(State(lease.slot()), HashOf(std::span(tokens).first(match.state_tokens)));
    }
    cache_.Extend(lease, n, clock_.Now());
    std::vector<StateEmission> emissions;
    cache_.Emit(lease, match.state_tokens, n, clock_.Now(), emissions);
    for (int32_t at = match.kv_tokens; at < n; ++at) Kv(lease, at) = HashOf(std::span(tokens).first(at + 1));
    for (const StateEmission& e : emissions) State(e.to) = HashOf(std::span(tokens).first(e.after));
    if (shape_.state_bytes > 0) State(lease.slot()) = HashOf(tokens);
    cache_.Commit(lease, tokens, clock_.Now());
    cache_.Release(std::move(lease), tokens, CheckpointKind::kEnd, clock_.Now());
    cache_.CheckIntegrity();
    return match;
  }
  // Waits for all writes.
  void Persist() { (void)cache_.Persist(clock_, clock_.Now() + int64_t{20} * 1'000'000'000); }
  std::string_view tier() const { return tier_; }
  CacheManager& cache() { return cache_; }

 private:
  void Wait(const int64_t ticket) {
    for (int i = 0; i < 20'000; ++i) {
      for (const Arrival& arrival : cache_.TakeArrivals(clock_.Now())) {
        if (arrival.ticket != ticket) continue;
        tier_ = arrival.tier;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << "nothing arrived";
  }
  uint64_t& Kv(const PrefixLease& lease, const int32_t at) {
    return reinterpret_cast<uint64_t*>(cache_.memory().pages().arena() +
                                       lease.pages().ids()[at / 64].value() * shape_.page_bytes)[at % 64];
  }
  uint64_t& State(const SlotId slot) {
    return *reinterpret_cast<uint64_t*>(cache_.memory().slots().arena() + slot.value() * shape_.state_bytes);
  }

  const StateShape shape_;
  const RealClock real_clock_;
  const Clock& clock_;
  CacheManager cache_;
  std::string_view tier_;
};

}  // namespace invar::cache
