// Every kind of tier as the conformance suite sees it, and calls that wait for their end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "cache/tiers/tier.h"

namespace invar::cache {

// One place that a tier keeps its records in; opened again, a durable kind finds them.
class TierPlace {
 public:
  virtual ~TierPlace() = default;
  virtual std::unique_ptr<Tier> Open(int64_t budget_bytes) = 0;
  virtual TimeNs Now() const = 0;
  // Lets time pass for tiers that live by Poll().
  virtual void Step(Tier& tier);
};

struct TierKind {
  const char* name;
  bool is_durable;  // Records survive closing.
  bool has_budget;  // And lists its records.
  std::function<std::unique_ptr<TierPlace>()> make;
};
void PrintTo(const TierKind& kind, std::ostream* out);
std::vector<TierKind> AllTierKinds();

// The result of one call, waited for.
template <typename Result>
class Awaited {
 public:
  // Give this as `done`.
  std::function<void(Result)> Done() {
    return [state = state_](Result result) {
      const MutexLock lock(state->mu);
      Check(!state->result.has_value(), "done runs once");
      state->result.emplace(std::move(result));
      state->cv.NotifyAll();
    };
  }
  bool IsDone() const {
    const MutexLock lock(state_->mu);
    return state_->result.has_value();
  }
  // The process stops where no result comes: a hang is what no tier may do.
  Result Wait(TierPlace& place, Tier& tier) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!IsDone()) {
      place.Step(tier);
      const MutexLock lock(state_->mu);
      if (!state_->result) state_->cv.WaitFor(state_->mu, std::chrono::milliseconds(1));
      Check(std::chrono::steady_clock::now() < give_up, "every call ends");
    }
    const MutexLock lock(state_->mu);
    return std::move(*state_->result);
  }

 private:
  struct State {
    Mutex mu;
    CondVar cv;
    std::optional<Result> result;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Bytes that depend on the seed alone.
std::vector<std::byte> MadeBytes(uint64_t seed, int64_t count);
TierKey MadeKey(uint64_t seed);
TierSpace MadeSpace(uint64_t seed);  // Of PutMade.
TierSpaces OnlyOf(uint64_t seed);    // No other's.

// Calls with a deadline far away that wait for their end.
Status PutNow(TierPlace& place, Tier& tier, const TierRecord& record, const std::vector<std::byte>& payload);
// A record whose key, header and payload come from `seed`.
Status PutMade(TierPlace& place, Tier& tier, uint64_t seed, int64_t payload_bytes);
struct Got {
  std::string header;
  std::vector<std::byte> payload;
};
StatusOr<Got> GetNow(TierPlace& place, Tier& tier, const TierKey& key, int64_t payload_bytes);
// OK where the record of PutMade is there as it was made; INTERNAL where anything else came.
Status GetMade(TierPlace& place, Tier& tier, uint64_t seed, int64_t payload_bytes);
StatusOr<std::vector<TierRecord>> FindNow(TierPlace& place, Tier& tier, std::vector<TierKey> keys);
Status DropNow(TierPlace& place, Tier& tier, const TierSpaces& of);

}  // namespace invar::cache
