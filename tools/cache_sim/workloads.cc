// Whole blocks only: what is shared in a trace is shared by blocks.
#include "tools/cache_sim/workloads.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/split_mix64.h"

namespace invar::cache_sim {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

// Ids of blocks nobody has had yet.
class Blocks {
 public:
  std::vector<int32_t> New(const int32_t count) {
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < count; ++i) blocks.push_back(next_++);
    return blocks;
  }

 private:
  int32_t next_ = 0;
};

class Chance {
 public:
  explicit Chance(const uint64_t seed) : bits_(seed) {}
  double Share() { return static_cast<double>(bits_.Next() >> 11) * 0x1p-53; }  // Within [0, 1).
  int32_t Between(const int32_t low, const int32_t high) {
    return low + static_cast<int32_t>(Share() * (high - low + 1));
  }
  TimeNs Wait(const double mean_seconds) {
    return static_cast<TimeNs>(-mean_seconds * std::log(1 - Share()) * kSecond);
  }

 private:
  SplitMix64 bits_;
};

TraceRequest RequestOf(const TimeNs arrival, std::vector<int32_t> blocks) {
  TraceRequest request{.arrival = arrival, .blocks = std::move(blocks)};
  request.input_tokens = static_cast<int32_t>(request.blocks.size()) * kTraceBlockTokens;
  request.output_tokens = kTraceBlockTokens;
  return request;
}

void Append(std::vector<int32_t>& blocks, const std::vector<int32_t>& more) {
  blocks.insert(blocks.end(), more.begin(), more.end());
}

}  // namespace

Trace SharedDocuments(const uint64_t seed, const int32_t requests) {
  constexpr int kDocuments = 200;
  constexpr std::array kChapters = {0.12, 0.30, 0.48, 0.70, 0.93};
  Chance chance(seed);
  Blocks blocks;
  std::vector<std::vector<int32_t>> documents;
  for (int i = 0; i < kDocuments; ++i) documents.push_back(blocks.New(chance.Between(32, 128)));
  Trace trace;
  TimeNs now = 0;
  for (int32_t i = 0; i < requests; ++i) {
    now += chance.Wait(2);
    const double popular = chance.Share();
    const std::vector<int32_t>& document = documents[static_cast<size_t>(kDocuments * popular * popular * popular)];
    const double place = chance.Share() < 0.75 ? 1 - 0.02 * chance.Share() : kChapters[chance.Between(0, 4)];
    const auto depth = static_cast<int64_t>(std::lround(place * static_cast<double>(document.size())));
    std::vector<int32_t> own(document.begin(), document.begin() + std::max<int64_t>(1, depth));
    Append(own, blocks.New(1));
    trace.push_back(RequestOf(now, std::move(own)));
  }
  return trace;
}

Trace AgentSessions(const uint64_t seed, const int32_t requests) {
  Chance chance(seed);
  Blocks blocks;
  std::array<std::vector<int32_t>, 4> prompts;
  for (std::vector<int32_t>& prompt : prompts) prompt = blocks.New(chance.Between(4, 16));
  Trace trace;
  TimeNs start = 0;
  while (std::ssize(trace) < requests) {
    start += chance.Wait(8);
    TimeNs now = start;
    std::vector<int32_t> session = prompts[chance.Between(0, 3)];
    const int32_t turns = chance.Between(2, 40);
    for (int32_t turn = 0; turn < turns && std::ssize(trace) < requests; ++turn) {
      Append(session, blocks.New(chance.Between(1, 4)));
      trace.push_back(RequestOf(now, session));
      now += kSecond + chance.Wait(10);
    }
  }
  std::stable_sort(trace.begin(), trace.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.arrival < b.arrival; });
  return trace;
}

}  // namespace invar::cache_sim
