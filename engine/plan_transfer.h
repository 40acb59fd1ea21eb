// PlanTransfer(): whether a prompt's beginning is run here or fetched, from whom, how much of it and in what form. A
// pure function of what was measured: rates, queues, links, bytes. Its model of time is tested against a simulation of
// the steps and chunks (tests/engine/transfer/plan_transfer_test.cc).
//
//   here      queue + lacking / rate
//   as it is  what a producer has cached goes out at once; what it must run goes out layer by layer, of a short prompt
//             behind each of its steps
//   part      only what a producer has cached, and the rest is run here behind it
//   codes     run there, but for those that lie ready; what closes them comes behind the last step, and the making of a
//             prefix of them behind all
// Of ways that take nearly as long as the shortest, the one with the best answers is taken; a fetch is only worth it
// where it is clearly shorter than a run here, which cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace invar::engine {

// Ways that differ by less are equally long: what was measured is no better than that.
inline constexpr double kPlanSlack = 0.03;

struct LocalRun {
  int32_t have = 0;              // Tokens that need not be run anyway.
  double tokens_per_second = 0;  // 0: nothing was run yet; it is fetched then, where it can be.
  double queue_seconds = 0;      // Until its first step.
};

struct LinkSpeed {
  double bytes_per_second = 0;  // 0: not known; taken as no limit.
  double round_trip_seconds = 0;
};

// What a producer says, and what is known of the way to it.
struct ProducerQuote {
  bool sends_as_is = false;  // Its weights are ours.
  bool sends_codes = false;  // By our profile.
  int32_t cached = 0;        // Of the prompt, from its first token on; of codes, all of it or nothing,
  size_t point = 0;          // in codes of this point.
  double tokens_per_second = 0;
  double queue_seconds = 0;
  int32_t step_tokens = 512;  // Most of one prompt in one of its steps: what is assumed of one that does not say it.
  LinkSpeed link = {};
};

// Of a prefix as it is.
struct PrefixSize {
  int32_t have_kv = 0;  // Whole pages of these need not come.
  int32_t page_tokens = 1;
  int64_t page_bytes = 0;
  int64_t state_bytes = 0;
  int32_t layers = 1;
};

// A point of the profile.
struct CodedWay {
  size_t point = 0;
  double kl = 0;
  int64_t bytes = 0;       // Of the prefix,
  int64_t last_bytes = 0;  // of which these are certain only when all has run.
  double rebuild_seconds = 0;
};

struct TransferProblem {
  int32_t end = 0;  // Tokens that may come: those behind are run here in any case.
  LocalRun here = {};
  PrefixSize size = {};
  std::vector<CodedWay> codes = {};
  std::span<const ProducerQuote> producers = {};
};

struct TransferWay {
  enum class Kind { kHere, kAsItIs, kCodes };
  Kind kind = Kind::kHere;
  size_t producer = 0;
  int32_t end = 0;   // Tokens that come.
  size_t point = 0;  // Of kCodes.
  double kl = 0;
  double seconds = 0;  // Until all but the prompt's last token is there.
};

struct TransferPlan {
  TransferWay best;
  std::vector<TransferWay> ways;  // All that there are, the run here first.
};

TransferPlan PlanTransfer(const TransferProblem& problem);

// The best way and its time, then all that were weighed.
std::string ToWords(const TransferPlan& plan);

}  // namespace invar::engine
