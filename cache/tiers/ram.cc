// The ram store: records in plain memory under a byte budget, least recently used out first. What `slow` is in tests,
// and the shape that the others follow. No checksums: what memory corrupts here, it corrupts in the pools as well.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/tiers/drop_log.h"
#include "cache/tiers/lru_index.h"
#include "cache/tiers/stores.h"

namespace invar::cache {
namespace {

// Shared, so that a record can be evicted while a reader copies it.
struct Blob {
  TierSpace space{};
  uint64_t sequence = 0;
  std::string header;
  std::shared_ptr<std::byte[]> payload;
  int64_t payload_bytes = 0;
};

// A deadline is seen after so many bytes, some 0.1 ms of copying.
constexpr int64_t kCopyBytes = int64_t{1} << 20;

class RamStore final : public TierStore {
 public:
  explicit RamStore(const int64_t budget_bytes) : index_(budget_bytes) {}

  std::string_view name() const override { return "ram"; }
  bool outlives_process() const override { return false; }

  std::vector<TierRecord> Inventory() override {
    const MutexLock lock(mu_);
    std::vector<TierRecord> records;
    index_.ForEach([&](const auto& entry) { records.push_back(RecordOf(entry.key, entry.value)); });
    return records;
  }

  StatusOr<std::vector<TierRecord>> Find(const std::span<const TierKey> keys, TierTransfer&) override {
    const MutexLock lock(mu_);
    std::vector<TierRecord> records;
    for (const TierKey& key : keys) {
      if (const auto* entry = index_.Find(key)) records.push_back(RecordOf(key, entry->value));
    }
    return records;
  }

  Status Put(const TierRecord& record, TierTransfer& payload) override {
    const int64_t bytes = static_cast<int64_t>(record.header.size()) + record.payload_bytes;
    std::vector<LruIndex<Blob>::Entry> evicted;  // Freed after the lock.
    {
      const MutexLock lock(mu_);
      if (!index_.Reserve(bytes, payload.LastUse(record.used_at), evicted)) {
        return ResourceExhausted(fmt::format(
            "ram: a record of {} bytes does not fit the budget of {} beside later used", bytes, index_.budget_bytes()));
      }
    }
    Blob blob{.space = record.space,
              .sequence = payload.sequence(),
              .header = record.header,
              .payload = std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(record.payload_bytes)),
              .payload_bytes = record.payload_bytes};
    for (int64_t at = 0; at < record.payload_bytes; at += kCopyBytes) {
      const int64_t count = std::min(kCopyBytes, record.payload_bytes - at);
      if (payload.CopyFromPayload(at, {blob.payload.get() + at, static_cast<size_t>(count)})) continue;
      const MutexLock lock(mu_);
      index_.Cancel(bytes);
      return CallEnded();
    }
    std::optional<LruIndex<Blob>::Entry> replaced;
    const MutexLock lock(mu_);
    if (drops_.Voids(record.space, payload.sequence())) {
      index_.Cancel(bytes);
      return DroppedMeanwhile();
    }
    replaced = index_.Commit({record.key, bytes, std::move(blob)}, payload.SettleUse(record.used_at));
    return OkStatus();
  }

  StatusOr<std::string> Get(const TierKey& key, TierTransfer& sink) override {
    Blob blob;
    {
      const MutexLock lock(mu_);
      const auto* entry = index_.Use(key, TierRecord::kJustNow);
      if (entry == nullptr) return NotFound("ram: no such record");
      blob = entry->value;
    }
    if (blob.payload_bytes != sink.bytes()) {
      const MutexLock lock(mu_);
      ++damaged_;
      // Not one that was put meanwhile.
      if (const auto* entry = index_.Find(key); entry != nullptr && entry->value.payload == blob.payload) {
        index_.Lose(key);
      }
      return DataLoss(
          fmt::format("ram: {} payload bytes are stored, {} were asked for", blob.payload_bytes, sink.bytes()));
    }
    for (int64_t at = 0; at < blob.payload_bytes; at += kCopyBytes) {
      const int64_t count = std::min(kCopyBytes, blob.payload_bytes - at);
      if (!sink.CopyToSink(at, {blob.payload.get() + at, static_cast<size_t>(count)})) return CallEnded();
    }
    return blob.header;
  }

  Status Drop(const TierSpaces& of, TierTransfer& call) override {
    std::vector<LruIndex<Blob>::Entry> dropped;  // Freed after the lock.
    const MutexLock lock(mu_);
    drops_.Add(of, call.sequence());
    dropped = index_.RemoveIf([&](const auto& entry) { return drops_.Voids(entry.value.space, entry.value.sequence); });
    return OkStatus();
  }

  bool Use(const TierKey& key, const TimeNs used_at) override {
    const MutexLock lock(mu_);
    return index_.Use(key, used_at) != nullptr;
  }

  std::vector<TierKey> TakeGone() override {
    const MutexLock lock(mu_);
    return index_.TakeGone();
  }

  TierContents Contents() const override {
    const MutexLock lock(mu_);
    return {index_.count(), index_.bytes(), index_.budget_bytes(), index_.evictions(), damaged_};
  }

 private:
  static TierRecord RecordOf(const TierKey& key, const Blob& blob) {
    return {.key = key, .space = blob.space, .header = blob.header, .payload_bytes = blob.payload_bytes};
  }

  mutable Mutex mu_;
  LruIndex<Blob> index_ GUARDED_BY(mu_);
  DropLog drops_ GUARDED_BY(mu_);
  int64_t damaged_ GUARDED_BY(mu_) = 0;
};

}  // namespace

std::unique_ptr<TierStore> MakeRamStore(const int64_t budget_bytes) { return std::make_unique<RamStore>(budget_bytes); }

}  // namespace invar::cache
