// Virtual time moves from the end of one step to the end of the next; what the link finishes meanwhile is taken in
// order.
#include "tools/stagger/simulated_device.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/split_mix64.h"

namespace invar::tools {
namespace {

using engine::RoundPhase;
using engine::RoundView;

// Of the time simulated: until queue and phases have settled.
constexpr double kWarmUpShare = 0.3;

struct Stream {
  std::vector<int64_t> requests;
  double bytes = 0;
  double ends_at_s = 0;
  bool arrived = false;
};

class Simulation {
 public:
  Simulation(const engine::TwoTierDevice& device, const engine::SpeculationLoad& load,
             const std::span<const SimulatedRequest> requests, const StaggerRun& run)
      : device_(device), load_(load), requests_(requests), run_(run), random_(run.seed), gaps_(requests.size()) {
    for (size_t i = 0; i < requests.size(); ++i) {
      rounds_.push_back({.id = static_cast<int64_t>(i),
                         .draft_min = run.draft_min,
                         .draft_max = run.draft_max,
                         .prefix = requests[i].prefix});
      committed_at_.push_back(0);
    }
  }

  StaggerOutcome Run() {
    const int64_t rounds_wanted = int64_t{run_.rounds} * static_cast<int64_t>(requests_.size());
    const auto rounds_to_count = static_cast<int64_t>(kWarmUpShare * static_cast<double>(rounds_wanted));
    while (rounds_done_ < rounds_wanted && Alive()) {
      if (!counting_ && rounds_done_ >= rounds_to_count) BeginCounting();
      Step();
    }
    return Outcome();
  }

 private:
  RoundView& At(const int64_t id) { return rounds_[static_cast<size_t>(id)]; }
  bool Ended(const int64_t id) const { return requests_[static_cast<size_t>(id)].ends_at_s <= now_; }
  bool Alive() const {
    return !std::all_of(rounds_.begin(), rounds_.end(), [&](auto& r) { return Ended(r.id); });
  }

  void BeginCounting() {
    counting_ = true;
    counted_from_s_ = now_;
    link_busy_s_ = tokens_ = 0;
    counted_rounds_ = 0;
    for (std::vector<double>& gaps : gaps_) gaps.clear();
  }

  std::vector<RoundView> LiveRounds() const {
    std::vector<RoundView> live;
    for (const RoundView& round : rounds_) {
      if (!Ended(round.id)) live.push_back(round);
    }
    return live;
  }

  // A stream that no live request waits for goes, and gives the link back.
  void DropCancelled() {
    for (Stream& stream : streams_) std::erase_if(stream.requests, [&](const int64_t id) { return Ended(id); });
    for (const Stream& stream : streams_) {
      if (stream.requests.empty() && !stream.arrived) link_busy_s_ -= std::max(0.0, stream.ends_at_s - now_);
    }
    std::erase_if(streams_, [](const Stream& stream) { return stream.requests.empty(); });
  }

  bool LinkIdle() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.arrived; });
  }

  engine::StaggerStep Plan() {
    const auto streams = static_cast<int32_t>(streams_.size());
    engine::StaggerStep step = PlanStagger(LiveRounds(), LinkIdle(), streams, run_.limits);
    if (step.queue.empty()) return step;
    for (const int64_t id : step.queue) {
      At(id).phase = RoundPhase::kQueued;
      At(id).queued = ++queued_;
    }
    return PlanStagger(LiveRounds(), LinkIdle(), streams, run_.limits);
  }

  void BeginStream(const std::vector<int64_t>& ids, const double at_s) {
    Stream stream{.requests = ids};
    for (const int64_t id : ids) {
      stream.bytes = std::max(stream.bytes, requests_[static_cast<size_t>(id)].full_kv_bytes);
      At(id).phase = RoundPhase::kFetching;
    }
    engine::SpeculationLoad load = load_;
    load.full_kv_bytes = stream.bytes;
    const double seconds = LinkSeconds(device_, load);
    stream.ends_at_s = at_s + seconds;
    link_busy_s_ += seconds;
    streams_.push_back(std::move(stream));
  }

  // What the link does until `until_s`, one stream after another.
  void RunLink(const double until_s) {
    for (;;) {
      const auto stream = std::find_if(streams_.begin(), streams_.end(), [](const Stream& s) { return !s.arrived; });
      if (stream == streams_.end() || stream->ends_at_s > until_s) return;
      const double at_s = stream->ends_at_s;
      stream->arrived = true;
      for (const int64_t id : stream->requests) At(id).phase = RoundPhase::kFetched;
      const engine::StaggerStep step = Plan();
      if (!step.stream.empty()) BeginStream(step.stream, at_s);
    }
  }

  void Step() {
    DropCancelled();
    engine::StaggerStep step = Plan();
    if (!step.stream.empty()) {
      BeginStream(step.stream, now_);
      step = Plan();
    }
    if (step.draft.empty() && step.verify.empty()) {
      const auto stream = std::find_if(streams_.begin(), streams_.end(), [](const Stream& s) { return !s.arrived; });
      Check(stream != streams_.end(), "something is always under way");
      now_ = stream->ends_at_s;
      RunLink(now_);
      return;
    }
    // Verifies stand behind the drafts of their step, so KV that comes meanwhile is in time for them.
    const double draft_seconds = DraftSeconds(step.draft);
    RunLink(now_ + draft_seconds);
    const std::vector<int64_t> verified = Plan().verify;
    for (const int64_t id : step.draft) ++At(id).drafted;
    const double seconds = draft_seconds + VerifyAllSeconds(verified);
    RunLink(now_ + seconds);
    now_ += seconds;
    for (const int64_t id : verified) Commit(id);
    std::erase_if(streams_, [&](const Stream& stream) {
      return stream.arrived && std::find(verified.begin(), verified.end(), stream.requests.front()) != verified.end();
    });
  }

  double DraftSeconds(const std::vector<int64_t>& ids) const {
    if (ids.empty()) return 0;
    double bytes = 0;
    for (const int64_t id : ids) {
      bytes += requests_[static_cast<size_t>(id)].full_kv_bytes / load_.compression + load_.state_bytes;
    }
    const auto rows = static_cast<double>(ids.size());
    return StepSeconds(device_, load_, rows, bytes / rows);
  }

  double VerifyAllSeconds(const std::vector<int64_t>& ids) const {
    double seconds = 0;
    for (const Stream& stream : streams_) {
      if (!stream.arrived || std::find(ids.begin(), ids.end(), stream.requests.front()) == ids.end()) continue;
      engine::SpeculationLoad load = load_;
      load.full_kv_bytes = stream.bytes;
      double tokens = 0;
      for (const int64_t id : stream.requests) tokens += rounds_[static_cast<size_t>(id)].drafted + 1;
      seconds += VerifySeconds(device_, load, tokens);
    }
    return seconds;
  }

  void Commit(const int64_t id) {
    RoundView& round = At(id);
    int32_t accepted = 0;
    const double acceptance = requests_[static_cast<size_t>(id)].acceptance;
    while (accepted < round.drafted && Uniform() < acceptance) ++accepted;
    tokens_ += accepted + 1;
    if (run_.learns != nullptr) run_.learns->Add(accepted, accepted < round.drafted);
    gaps_[static_cast<size_t>(id)].push_back(now_ - committed_at_[static_cast<size_t>(id)]);
    committed_at_[static_cast<size_t>(id)] = now_;
    ++rounds_done_;
    ++counted_rounds_;
    round.phase = RoundPhase::kDraft;
    round.drafted = 0;
  }

  double Uniform() { return static_cast<double>(random_.Next() >> 11) * 0x1.0p-53; }

  StaggerOutcome Outcome() const {
    const double seconds = now_ - counted_from_s_;
    StaggerOutcome outcome{.tokens_per_s = tokens_ / seconds, .seconds = seconds, .link_share = link_busy_s_ / seconds};
    outcome.accepted_run = tokens_ / std::max<double>(1, static_cast<double>(counted_rounds_));
    std::vector<double> all;
    for (const std::vector<double>& gaps : gaps_) {
      all.insert(all.end(), gaps.begin(), gaps.end());
      const double sum = std::accumulate(gaps.begin(), gaps.end(), 0.0);
      outcome.gap_mean_of_each_s.push_back(gaps.empty() ? 0 : sum / static_cast<double>(gaps.size()));
    }
    if (!all.empty()) {
      outcome.gap_mean_s = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
      std::sort(all.begin(), all.end());
      outcome.gap_p99_s = all[static_cast<size_t>(0.99 * static_cast<double>(all.size() - 1))];
    }
    for (const Stream& stream : streams_) {
      outcome.streams_of_nobody +=
          std::all_of(stream.requests.begin(), stream.requests.end(), [&](const int64_t id) { return Ended(id); }) ? 1
                                                                                                                   : 0;
    }
    return outcome;
  }

  // Set at construction.
  const engine::TwoTierDevice& device_;
  const engine::SpeculationLoad& load_;
  const std::span<const SimulatedRequest> requests_;
  const StaggerRun& run_;
  SplitMix64 random_;

  double now_ = 0;
  std::vector<RoundView> rounds_;
  std::vector<Stream> streams_;  // Begun and not verified, in the order of the link.
  std::vector<double> committed_at_;
  int64_t queued_ = 0;
  int64_t rounds_done_ = 0;

  // Since counting began.
  bool counting_ = false;
  double counted_from_s_ = 0;
  double link_busy_s_ = 0;
  double tokens_ = 0;
  int64_t counted_rounds_ = 0;
  std::vector<std::vector<double>> gaps_;
};

}  // namespace

StaggerOutcome SimulateStagger(const engine::TwoTierDevice& device, const engine::SpeculationLoad& load,
                               const std::span<const SimulatedRequest> requests, const StaggerRun& run) {
  Check(!requests.empty(), "a simulation has requests");
  return Simulation(device, load, requests, run).Run();
}

std::vector<SimulatedRequest> EqualRequests(const engine::SpeculationLoad& load, const int32_t residents) {
  std::vector<SimulatedRequest> requests;
  const auto group = std::max<int64_t>(1, static_cast<int64_t>(load.prefix_group));
  for (int32_t i = 0; i < residents; ++i) {
    requests.push_back(
        {.full_kv_bytes = load.full_kv_bytes, .acceptance = load.acceptance, .prefix = group > 1 ? 1 + i / group : 0});
  }
  return requests;
}

}  // namespace invar::tools
