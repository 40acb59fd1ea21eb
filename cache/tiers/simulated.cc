// See simulated.h. A call is decided when it is made and carried out when it is due, in the order of due times; equal
// times in the order of the calls. So the store sees one call at a time, and the same ones for the same seed.
#include "cache/tiers/simulated.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/split_mix64.h"
#include "cache/tiers/puts_under_way.h"
#include "cache/tiers/tally.h"
#include "cache/tiers/tier_guard.h"

namespace invar::cache {
namespace {

enum class Fate { kWell, kLate, kFailed, kFailedAfterwards, kLost, kDamaged };

class SimulatedTier final : public Tier {
 public:
  SimulatedTier(std::unique_ptr<TierStore> store, const Clock& clock, const SimulatedTierOptions& options)
      : store_(std::move(store)),
        clock_(clock),
        options_(options),
        random_(options.seed),
        guard_(options.breaker, *store_) {
    Check(options.delay_min > 0 && options.delay_min <= options.delay_max, "every call takes some time");
  }

  ~SimulatedTier() override {
    closing_ = true;
    const Status closed(StatusCode::kCancelled, "the tier was closed");
    while (!open_.empty()) {
      Call call = std::move(open_.extract(open_.begin()).mapped());
      End(call, closed, clock_.Now(), [&] { call.fail(closed); });
    }
  }

  std::string_view name() const override { return store_->name(); }
  std::vector<TierRecord> Inventory() override { return store_->Inventory(); }

  Status Find(std::vector<TierKey> keys, const TimeNs deadline, TierFindDone done) override {
    return Enqueue<StatusOr<std::vector<TierRecord>>>(
        TierCall::kFind, std::make_shared<TierTransfer>(deadline),
        [this, keys = std::move(keys)](TierTransfer& call) { return store_->Find(keys, call); }, {}, std::move(done));
  }
  Status Put(TierRecord record, TierPayload payload, const TimeNs deadline, TierDone done) override {
    if (Status fits = CheckRecord(record); !fits.ok()) {
      tally_.Refuse(TierCall::kPut, fits);
      return fits;
    }
    auto transfer = std::make_shared<TierTransfer>(std::move(payload), deadline);
    Check(transfer->bytes() == record.payload_bytes, "spans sum up to payload_bytes", transfer->bytes());
    const TierKey key = record.key;
    return Enqueue<Status>(
        TierCall::kPut, std::move(transfer),
        [this, record = std::move(record)](TierTransfer& call) { return store_->Put(record, call); }, key,
        std::move(done));
  }
  Status Get(const TierKey& key, TierSink sink, const TimeNs deadline, TierGetDone done) override {
    return Enqueue<StatusOr<std::string>>(
        TierCall::kGet, std::make_shared<TierTransfer>(std::move(sink), deadline),
        [this, key](TierTransfer& call) { return store_->Get(key, call); }, key, std::move(done));
  }
  Status Drop(const TierSpaces& of, const TimeNs deadline, TierDone done) override {
    return Enqueue<Status>(
        TierCall::kDrop, std::make_shared<TierTransfer>(deadline),
        [this, of](TierTransfer& call) { return store_->Drop(of, call); }, {}, std::move(done));
  }
  bool Use(const TierKey& key, const TimeNs used_at) override {
    return puts_.Use(key, used_at) || store_->Use(key, used_at);
  }
  std::vector<TierKey> TakeGone() override { return store_->TakeGone(); }
  bool outlives_process() const override { return store_->outlives_process(); }

  bool is_paused() const override { return guard_.is_paused(clock_.Now()); }
  TierStats Stats() const override { return tally_.Read(store_->Contents(), guard_, clock_.Now()); }

  TimeNs Poll(const TimeNs now) override {
    while (!open_.empty() && open_.begin()->first.first <= now) {
      Call call = std::move(open_.extract(open_.begin()).mapped());
      call.carry_out(call, now);
    }
    return open_.empty() ? kNever : open_.begin()->first.first;
  }

 private:
  struct Call {
    TierCall kind;
    std::shared_ptr<TierTransfer> transfer;
    std::optional<TierKey> put;  // The key, of puts.
    CircuitBreaker::Pass pass;
    TimeNs began;
    Fate fate;
    std::function<void(Call&, TimeNs)> carry_out;
    std::function<void(Status)> fail;
  };

  static const Status& StatusOf(const Status& status) { return status; }
  template <typename T>
  static const Status& StatusOf(const StatusOr<T>& result) {
    return result.status();
  }

  template <typename Result, typename Work>
  Status Enqueue(const TierCall kind, std::shared_ptr<TierTransfer> transfer, Work work,
                 const std::optional<TierKey> key, std::function<void(Result)> done) {
    if (closing_) return Status(StatusCode::kCancelled, "the tier was closed");
    if (Status admitted = tally_.Admit(kind, transfer->bytes(), options_.limits, store_->name()); !admitted.ok()) {
      return admitted;
    }
    const TimeNs now = clock_.Now();
    const CircuitBreaker::Pass pass = guard_.Admit(now);
    if (pass == CircuitBreaker::Pass::kRefused) {
      Status refused = guard_.Refusal();
      tally_.End(kind, refused, transfer->bytes(), 0);
      return refused;
    }
    transfer->Accept(next_sequence_++);
    const double transfer_s = static_cast<double>(transfer->bytes()) / options_.bytes_per_second;
    TimeNs due = now + options_.delay_min + Below(options_.delay_max - options_.delay_min + 1) +
                 static_cast<TimeNs>(transfer_s * 1e9);
    Fate fate = DrawFate(kind);
    if (fate == Fate::kLate) due = now + options_.stuck_ns;
    if (due >= transfer->deadline()) {
      due = std::max(transfer->deadline(), now);
      fate = Fate::kLate;
    }
    if (kind == TierCall::kPut) puts_.Add(*key, *transfer);
    Call call{.kind = kind,
              .transfer = std::move(transfer),
              .put = kind == TierCall::kPut ? key : std::nullopt,
              .pass = pass,
              .began = now,
              .fate = fate,
              .carry_out = {},
              .fail = {}};
    call.fail = [done](Status status) {
      if (done) done(std::move(status));
    };
    call.carry_out = [this, work = std::move(work), key, done = std::move(done)](Call& self, const TimeNs at) {
      Result result = Outcome<Result>(self, work, key);
      End(self, StatusOf(result), at, [&] {
        if (done) done(std::move(result));
      });
    };
    open_.emplace(std::pair(due, next_++), std::move(call));
    return OkStatus();
  }

  template <typename Result, typename Work>
  Result Outcome(Call& call, const Work& work, const std::optional<TierKey>& key) {
    const Status failed = Unavailable("simulated: the tier failed");
    switch (call.fate) {
      case Fate::kLate:
        return Status(StatusCode::kDeadlineExceeded, "simulated: not in time");
      case Fate::kFailed:
        return failed;
      case Fate::kFailedAfterwards:
        (void)work(*call.transfer);
        return failed;
      case Fate::kDamaged:
        Damage(*key, call.transfer->bytes());
        return DataLoss("simulated: the record is damaged");
      case Fate::kLost:
        if constexpr (std::is_same_v<Result, Status>) return OkStatus();  // Puts alone.
        break;
      case Fate::kWell:
        break;
    }
    return work(*call.transfer);
  }

  // To the store, a record of another size than the one that is asked for is damaged, and goes.
  void Damage(const TierKey& key, const int64_t bytes) {
    std::vector<std::byte> longer(static_cast<size_t>(bytes) + 1);
    TierTransfer sink(TierSink{.spans = {longer}, .keep_alive = nullptr}, kNever);
    (void)store_->Get(key, sink);
  }

  template <typename RunDone>
  void End(Call& call, const Status& status, const TimeNs now, const RunDone& run_done) {
    Check(call.transfer->End(), "a call ends once");
    if (call.put.has_value()) puts_.Remove(*call.put, *call.transfer);
    tally_.End(call.kind, status, call.transfer->bytes(), ToSeconds(now - call.began));
    const std::string news = guard_.End(call.pass, status, call.transfer->deadline(), now);
    if (!news.empty()) Logger("cache")->warn("{}", news);
    run_done();
  }

  Fate DrawFate(const TierCall kind) {
    const bool writes = kind == TierCall::kPut || kind == TierCall::kDrop;
    auto draw = static_cast<int>(Below(1000));
    const auto falls_in = [&draw](const int share) { return (draw -= share) < 0; };
    if (falls_in(options_.stuck)) return Fate::kLate;
    if (falls_in(options_.failed)) return writes && Below(2) == 0 ? Fate::kFailedAfterwards : Fate::kFailed;
    if (falls_in(options_.lost)) return kind == TierCall::kPut ? Fate::kLost : Fate::kWell;
    if (falls_in(options_.damaged)) return kind == TierCall::kGet ? Fate::kDamaged : Fate::kWell;
    return Fate::kWell;
  }

  TimeNs Below(const TimeNs bound) { return static_cast<TimeNs>(random_.Next() % static_cast<uint64_t>(bound)); }

  const std::unique_ptr<TierStore> store_;
  const Clock& clock_;
  const SimulatedTierOptions options_;
  SplitMix64 random_;
  bool closing_ = false;
  uint64_t next_ = 0;
  uint64_t next_sequence_ = 1;
  std::map<std::pair<TimeNs, uint64_t>, Call> open_;  // By due time.
  PutsUnderWay puts_;
  TierTally tally_;
  TierGuard guard_;
};

}  // namespace

std::unique_ptr<Tier> MakeSimulatedTier(std::unique_ptr<TierStore> store, const Clock& clock,
                                        const SimulatedTierOptions& options) {
  return std::make_unique<SimulatedTier>(std::move(store), clock, options);
}

}  // namespace invar::cache
