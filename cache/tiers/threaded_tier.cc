// See threaded_tier.h. A call lives in a Job that queue, deadline list and working thread share; whoever ends its
// transfer first (TierTransfer::End) runs `done`, the others find it ended and let it be.
#include "cache/tiers/threaded_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "cache/tiers/puts_under_way.h"
#include "cache/tiers/tally.h"
#include "cache/tiers/tier_guard.h"

namespace invar::cache {
namespace {

struct Job {
  template <typename... Memory>
  explicit Job(const TierCall c, Memory&&... memory) : call(c), transfer(std::forward<Memory>(memory)...) {}

  const TierCall call;
  TierTransfer transfer;
  std::optional<TierKey> put;                                  // The key, of puts.
  CircuitBreaker::Pass pass = CircuitBreaker::Pass::kRefused;  // Guarded by the tier's lock.
  // Works on the store; then ends the job with the result, unless it has ended.
  std::function<void()> run;
  // Gives the reason to the caller's `done`.
  std::function<void(Status)> fail;
};
using JobPtr = std::shared_ptr<Job>;

class ThreadedTier final : public Tier {
 public:
  ThreadedTier(std::unique_ptr<TierStore> store, const Clock& clock, const ThreadedTierOptions& options)
      : store_(std::move(store)),
        clock_(clock),
        options_(options),
        next_sequence_(store_->first_sequence()),
        guard_(options.breaker, *store_) {
    Check(options.threads > 0 && options.limits.queue_max > 0, "a tier has threads and a queue");
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Work(); });
    threads_.emplace_back([this] { EndLateJobs(); });
  }

  ~ThreadedTier() override {
    std::multimap<TimeNs, JobPtr> open;
    {
      const MutexLock lock(mu_);
      closing_ = true;
      open.swap(open_);
      first_.clear();
      writes_.clear();
    }
    work_.NotifyAll();
    deadlines_.NotifyAll();
    for (const auto& [deadline, job] : open) Fail(*job, Closed());
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return store_->name(); }
  std::vector<TierRecord> Inventory() override { return store_->Inventory(); }

  Status Find(std::vector<TierKey> keys, const TimeNs deadline, TierFindDone done) override {
    auto job = std::make_shared<Job>(TierCall::kFind, deadline);
    job->run = [this, job = job.get(), keys = std::move(keys), done] {
      Finish(
          *job, [&] { return store_->Find(keys, job->transfer); }, done);
    };
    job->fail = [done = std::move(done)](Status status) { done(std::move(status)); };
    return Enqueue(std::move(job));
  }

  Status Put(TierRecord record, TierPayload payload, const TimeNs deadline, TierDone done) override {
    if (Status fits = CheckRecord(record); !fits.ok()) {
      const MutexLock lock(mu_);
      tally_.Refuse(TierCall::kPut, fits);
      return fits;
    }
    auto job = std::make_shared<Job>(TierCall::kPut, std::move(payload), deadline);
    Check(job->transfer.bytes() == record.payload_bytes, "spans sum up to payload_bytes", job->transfer.bytes(),
          record.payload_bytes);
    job->put = record.key;
    job->run = [this, job = job.get(), record = std::move(record), done] {
      Finish(
          *job, [&] { return store_->Put(record, job->transfer); }, done);
    };
    job->fail = std::move(done);
    return Enqueue(std::move(job));
  }

  Status Get(const TierKey& key, TierSink sink, const TimeNs deadline, TierGetDone done) override {
    auto job = std::make_shared<Job>(TierCall::kGet, std::move(sink), deadline);
    job->run = [this, job = job.get(), key, done] {
      Finish(
          *job, [&] { return store_->Get(key, job->transfer); }, done);
    };
    job->fail = [done = std::move(done)](Status status) { done(std::move(status)); };
    return Enqueue(std::move(job));
  }

  Status Drop(const TierSpaces& of, const TimeNs deadline, TierDone done) override {
    auto job = std::make_shared<Job>(TierCall::kDrop, deadline);
    job->run = [this, job = job.get(), of, done] {
      Finish(
          *job, [&] { return store_->Drop(of, job->transfer); }, done);
    };
    job->fail = std::move(done);
    return Enqueue(std::move(job));
  }

  bool Use(const TierKey& key, const TimeNs used_at) override {
    {
      const MutexLock lock(mu_);
      if (puts_.Use(key, used_at)) return true;
    }
    return store_->Use(key, used_at);
  }
  std::vector<TierKey> TakeGone() override { return store_->TakeGone(); }
  TimeNs keeps_for() const override { return store_->keeps_for(); }
  bool outlives_process() const override { return store_->outlives_process(); }

  bool is_paused() const override {
    const MutexLock lock(mu_);
    return guard_.is_paused(clock_.Now());
  }

  TierStats Stats() const override {
    const TierContents contents = store_->Contents();
    const MutexLock lock(mu_);
    return tally_.Read(contents, guard_, clock_.Now());
  }

 private:
  static const Status& StatusOf(const Status& status) { return status; }
  template <typename T>
  static const Status& StatusOf(const StatusOr<T>& result) {
    return result.status();
  }

  Status Enqueue(JobPtr job) {
    // A drop voids the writes before it however late they run: it need not wait for them.
    const bool is_first = job->call != TierCall::kPut;
    bool is_nearest = false;
    {
      const MutexLock lock(mu_);
      if (closing_) return Closed();
      Status admitted = tally_.Admit(job->call, job->transfer.bytes(), options_.limits, store_->name());
      if (!admitted.ok()) return admitted;
      job->pass = guard_.Admit(clock_.Now());
      if (job->pass == CircuitBreaker::Pass::kRefused) {
        Status refused = guard_.Refusal();
        tally_.End(job->call, refused, job->transfer.bytes(), 0);
        return refused;
      }
      is_nearest = open_.empty() || job->transfer.deadline() < open_.begin()->first;
      job->transfer.Accept(next_sequence_++);
      open_.emplace(job->transfer.deadline(), job);
      if (job->put.has_value()) puts_.Add(*job->put, job->transfer);
      (is_first ? first_ : writes_).push_back(std::move(job));
    }
    work_.NotifyOne();
    if (is_nearest) deadlines_.NotifyOne();
    return OkStatus();
  }

  // Runs `work`, and `done` with its result where the job is still open.
  template <typename WorkOnStore, typename Done>
  void Finish(Job& job, const WorkOnStore& work, const Done& done) {
    const TimeNs begin = clock_.Now();
    auto result = work();
    const double seconds = ToSeconds(clock_.Now() - begin);
    if (!job.transfer.End()) return;
    Close(job, StatusOf(result), seconds);
    if (done) done(std::move(result));
  }

  void Fail(Job& job, Status status) {
    if (!job.transfer.End()) return;
    Close(job, status, 0);
    if (job.fail) job.fail(std::move(status));
  }

  void Close(const Job& job, const Status& status, const double seconds) {
    std::string news;
    {
      const MutexLock lock(mu_);
      if (job.put.has_value()) puts_.Remove(*job.put, job.transfer);
      tally_.End(job.call, status, job.transfer.bytes(), seconds);
      news = guard_.End(job.pass, status, job.transfer.deadline(), clock_.Now());
      const auto [begin, end] = open_.equal_range(job.transfer.deadline());
      const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == &job; });
      if (found != end) open_.erase(found);
    }
    if (!news.empty()) Logger("cache")->warn("{}", news);
  }

  JobPtr NextJob() {
    const MutexLock lock(mu_);
    for (;;) {
      if (closing_) return nullptr;
      std::deque<JobPtr>& queue = first_.empty() ? writes_ : first_;
      if (!queue.empty()) {
        JobPtr job = std::move(queue.front());
        queue.pop_front();
        return job;
      }
      work_.Wait(mu_);
    }
  }

  void Work() {
    while (const JobPtr job = NextJob()) {
      if (clock_.Now() >= job->transfer.deadline()) {
        Fail(*job, Late());
      } else if (Status refused = RefusalOf(*job); !refused.ok()) {
        Fail(*job, std::move(refused));
      } else if (!job->transfer.ended()) {
        job->run();
      }
    }
  }

  // What was queued before the tier was left alone does not ask it either.
  Status RefusalOf(Job& job) {
    const MutexLock lock(mu_);
    if (job.pass == CircuitBreaker::Pass::kProbe || !guard_.is_paused(clock_.Now())) return OkStatus();
    job.pass = CircuitBreaker::Pass::kRefused;
    return guard_.Refusal();
  }

  static Status Closed() { return Status(StatusCode::kCancelled, "the tier was closed"); }
  Status Late() const { return Status(StatusCode::kDeadlineExceeded, fmt::format("{}: not in time", store_->name())); }

  // The next job whose deadline has passed, waiting for it; null: closing.
  JobPtr NextLateJob() {
    const MutexLock lock(mu_);
    for (;;) {
      if (closing_) return nullptr;
      if (open_.empty() || open_.begin()->first == kNever) {
        deadlines_.Wait(mu_);
        continue;
      }
      const TimeNs left = open_.begin()->first - clock_.Now();
      if (left > 0) {
        // In slices: a far deadline does not fit the arithmetic of every condition variable.
        constexpr TimeNs kSliceNs = TimeNs{3600} * 1'000'000'000;
        deadlines_.WaitFor(mu_, std::chrono::nanoseconds(std::min(left, kSliceNs)));
        continue;
      }
      JobPtr job = std::move(open_.begin()->second);
      open_.erase(open_.begin());
      // Out of the queue too: while all threads are stuck, ended jobs must not pile up there.
      for (std::deque<JobPtr>* const queue : {&first_, &writes_}) std::erase(*queue, job);
      return job;
    }
  }

  void EndLateJobs() {
    while (const JobPtr job = NextLateJob()) Fail(*job, Late());
  }

  // Set at construction.
  const std::unique_ptr<TierStore> store_;
  const Clock& clock_;
  const ThreadedTierOptions options_;

  mutable Mutex mu_;
  CondVar work_;
  CondVar deadlines_;
  bool closing_ GUARDED_BY(mu_) = false;
  std::deque<JobPtr> first_ GUARDED_BY(mu_);  // Reads and drops: before all writes.
  std::deque<JobPtr> writes_ GUARDED_BY(mu_);
  std::multimap<TimeNs, JobPtr> open_ GUARDED_BY(mu_);  // Every job that has not ended, by deadline.
  PutsUnderWay puts_ GUARDED_BY(mu_);
  uint64_t next_sequence_ GUARDED_BY(mu_);
  TierTally tally_ GUARDED_BY(mu_);
  TierGuard guard_ GUARDED_BY(mu_);

  std::vector<std::thread> threads_;  // Last: they use all of the above.
};

}  // namespace

std::unique_ptr<Tier> MakeThreadedTier(std::unique_ptr<TierStore> store, const Clock& clock,
                                       const ThreadedTierOptions& options) {
  return std::make_unique<ThreadedTier>(std::move(store), clock, options);
}

}  // namespace invar::cache
