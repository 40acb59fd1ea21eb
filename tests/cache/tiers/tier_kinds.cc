// See tier_kinds.h.
#include "tests/cache/tiers/tier_kinds.h"

#include <algorithm>
#include <cstring>
#include <ostream>

#include "base/split_mix64.h"
#include "cache/tiers/simulated.h"
#include "cache/tiers/stores.h"
#include "cache/tiers/threaded_tier.h"
#include "tests/cache/tiers/redis_server.h"
#include "tests/cache/tiers/temp_folder.h"

namespace invar::cache {
namespace {

constexpr TimeNs kFarNs = TimeNs{60} * 1'000'000'000;

class RealTimePlace : public TierPlace {
 public:
  TimeNs Now() const override { return clock_.Now(); }

 protected:
  RealClock clock_;
};

class RamPlace final : public RealTimePlace {
 public:
  std::unique_ptr<Tier> Open(const int64_t budget_bytes) override {
    return MakeThreadedTier(MakeRamStore(budget_bytes), clock_, {});
  }
};

class DiskPlace final : public RealTimePlace {
 public:
  std::unique_ptr<Tier> Open(const int64_t budget_bytes) override {
    StatusOr<std::unique_ptr<TierStore>> store =
        MakeDiskStore({.path = folder_.path(), .budget_bytes = budget_bytes, .store_id = "a model"}, *files_);
    Check(store.ok(), "the folder opens", store.status().message());
    return MakeThreadedTier(*std::move(store), clock_, {});
  }

 private:
  const TempFolder folder_;
  const std::unique_ptr<FileLayer> files_ = MakeSystemFiles();
};

class RemotePlace final : public RealTimePlace {
 public:
  std::unique_ptr<Tier> Open(int64_t) override {
    StatusOr<std::unique_ptr<TierStore>> store =
        MakeRespStore({.address = server_.address(), .secret = std::string(32, 's'), .store_id = "a model"}, clock_);
    Check(store.ok(), "the store is made", store.status().message());
    return MakeThreadedTier(*std::move(store), clock_, {});
  }

 private:
  const RedisServer server_;
};

// Without faults, it must do what the others do.
class SimulatedPlace final : public TierPlace {
 public:
  std::unique_ptr<Tier> Open(const int64_t budget_bytes) override {
    return MakeSimulatedTier(MakeRamStore(budget_bytes), clock_, {.seed = 1});
  }
  TimeNs Now() const override { return clock_.Now(); }
  void Step(Tier& tier) override {
    const TimeNs next = tier.Poll(clock_.Now());
    if (next != kNever) clock_.Advance(next - clock_.Now());
  }

 private:
  SimulatedClock clock_;
};

std::string MadeHeader(const uint64_t seed) { return "header of " + std::to_string(seed); }

}  // namespace

void TierPlace::Step(Tier& tier) { tier.Poll(Now()); }

void PrintTo(const TierKind& kind, std::ostream* out) { *out << kind.name; }

std::vector<TierKind> AllTierKinds() {
  return {{"ram", false, true, [] { return std::make_unique<RamPlace>(); }},
          {"disk", true, true, [] { return std::make_unique<DiskPlace>(); }},
          {"remote", true, false, [] { return std::make_unique<RemotePlace>(); }},
          {"simulated", false, true, [] { return std::make_unique<SimulatedPlace>(); }}};
}

std::vector<std::byte> MadeBytes(const uint64_t seed, const int64_t count) {
  SplitMix64 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random.Next();
    std::memcpy(bytes.data() + at, &word, std::min<size_t>(8, bytes.size() - at));
  }
  return bytes;
}

TierKey MadeKey(const uint64_t seed) {
  TierKey key;
  const std::vector<std::byte> bytes = MadeBytes(~seed, static_cast<int64_t>(key.size()));
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

TierSpace MadeSpace(const uint64_t seed) { return MadeKey(seed + 1'000'000); }
TierSpaces OnlyOf(const uint64_t seed) { return {.space = MadeSpace(seed), .bytes = sizeof(TierSpace)}; }

Status PutNow(TierPlace& place, Tier& tier, const TierRecord& record, const std::vector<std::byte>& payload) {
  Awaited<Status> put;
  const Status accepted =
      tier.Put(record, {.spans = {payload}, .keep_alive = nullptr}, place.Now() + kFarNs, put.Done());
  return accepted.ok() ? put.Wait(place, tier) : accepted;
}

Status PutMade(TierPlace& place, Tier& tier, const uint64_t seed, const int64_t payload_bytes) {
  return PutNow(
      place, tier,
      {.key = MadeKey(seed), .space = MadeSpace(seed), .header = MadeHeader(seed), .payload_bytes = payload_bytes},
      MadeBytes(seed, payload_bytes));
}

StatusOr<Got> GetNow(TierPlace& place, Tier& tier, const TierKey& key, const int64_t payload_bytes) {
  Got got{.header = {}, .payload = std::vector<std::byte>(static_cast<size_t>(payload_bytes))};
  Awaited<StatusOr<std::string>> get;
  const Status accepted =
      tier.Get(key, {.spans = {got.payload}, .keep_alive = nullptr}, place.Now() + kFarNs, get.Done());
  if (!accepted.ok()) return accepted;
  StatusOr<std::string> header = get.Wait(place, tier);
  if (!header.ok()) return header.status();
  got.header = std::move(*header);
  return got;
}

Status GetMade(TierPlace& place, Tier& tier, const uint64_t seed, const int64_t payload_bytes) {
  const StatusOr<Got> got = GetNow(place, tier, MadeKey(seed), payload_bytes);
  if (!got.ok()) return got.status();
  if (got->header != MadeHeader(seed) || got->payload != MadeBytes(seed, payload_bytes)) {
    return Internal("garbage was served");
  }
  return OkStatus();
}

StatusOr<std::vector<TierRecord>> FindNow(TierPlace& place, Tier& tier, std::vector<TierKey> keys) {
  Awaited<StatusOr<std::vector<TierRecord>>> find;
  const Status accepted = tier.Find(std::move(keys), place.Now() + kFarNs, find.Done());
  if (!accepted.ok()) return accepted;
  return find.Wait(place, tier);
}

Status DropNow(TierPlace& place, Tier& tier, const TierSpaces& of) {
  Awaited<Status> drop;
  const Status accepted = tier.Drop(of, place.Now() + kFarNs, drop.Done());
  return accepted.ok() ? drop.Wait(place, tier) : accepted;
}

}  // namespace invar::cache
