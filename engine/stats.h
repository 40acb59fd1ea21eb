// Plain numbers handed up to the metrics of the server: no metrics library lives below it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cache/placement_report.h"
#include "engine/prefix_source.h"

namespace invar::engine {

// Why a step of a request that asks for speculation ran without a draft.
enum class FallbackReason {
  kUnprofitable,    // By its record and the time of steps, a draft would not have paid.
  kNothingDrafted,  // Its drafter had no guess.
  kNoRoom,          // No row, page or log was left.
  kNoDraftMemory,   // Its drafter had no memory for its view.
};
inline constexpr size_t kFallbackReasons = 4;
std::string_view NameOf(FallbackReason reason);

// Why a drafted token saved no step.
enum class DropReason {
  kWrong,         // It was wrong, or one before it was.
  kEnded,         // The output ended before it.
  kReaderBehind,  // The reader fell behind before it.
  kNoRoom,        // It was not verified: no row, page or log was left.
  kLeft,          // It was not verified: its request was preempted or ended first.
};
inline constexpr size_t kDropReasons = 5;

// Upper bounds of the histogram of accepted tokens a round; beyond the last is one more.
inline constexpr std::array<int32_t, 13> kAcceptedBounds = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// Of lossless speculation. All but drafter_bytes are counters.
struct SpeculationStats {
  int64_t rounds = 0;          // Drafts verified.
  int64_t drafted_tokens = 0;  // Of these.
  int64_t accepted_tokens = 0;
  // Drafted tokens that saved nothing. Of the first three reasons: drafted_tokens less accepted_tokens; the others come
  // on top.
  std::array<int64_t, kDropReasons> dropped_tokens = {};
  std::array<int64_t, kAcceptedBounds.size() + 1> accepted_lengths = {};  // Rounds by accepted tokens.
  std::array<int64_t, kFallbackReasons> fallbacks = {};                   // Steps without a draft, by reason.
  int64_t prepare_ns = 0;     // That views of drafters took to be made and kept up.
  int64_t drafter_bytes = 0;  // Memory of their own that drafters hold now.
};

// Compressed views that requests are answered on.
struct ViewStats {
  int64_t made = 0, upkeeps = 0;  // Counters.
  int64_t upkeep_ns = 0;          // That making and keeping them up took.
  int64_t tokens = 0;             // Sampled from them.
  int64_t serving = 0;            // Now.
  int64_t body_bytes = 0;         // Of those, without their tails' pages.
};

// Full KV of running sequences in the slow tier.
struct SlowTierStats {
  // Counters.
  int64_t moved_out = 0, brought_back = 0;  // Sequences.
  int64_t written_bytes = 0;
  int64_t write_ns = 0;  // That writing them took.
  int64_t streams = 0;   // Of a sequence's full KV into a forward.
  int64_t streamed_bytes = 0;
  int64_t read_ns = 0;   // That reading them took,
  int64_t stall_ns = 0;  // and that forwards waited for it.
  int64_t failures = 0;
  int64_t drafted_beside_streams = 0;  // Tokens drafted while a stream was on its way.
  // Now.
  int64_t staggered = 1;  // Whether rounds are taken to pay; 0: those who are away come back as there is room.
  double gain = 1;        // Expected of them over plain decoding.
  int64_t away = 0;       // Sequences.
  int64_t used_bytes = 0;
};

// Prefixes from other instances. Counters, but under_way.
struct TransferStats {
  int64_t begun = 0;  // = landed + faults + cancelled + under_way.
  int64_t landed = 0;
  int64_t cancelled = 0;  // The request ended first.
  int64_t tokens = 0;     // That need not be run for it.
  int64_t bytes = 0;      // That crossed the link, used or not.
  int64_t wait_ns = 0;    // Of requests, until it landed or failed.
  // Of these, those of instances of other weights, in codes: and the time that making prefixes of them took.
  int64_t coded_landed = 0;
  int64_t coded_tokens = 0;
  int64_t coded_bytes = 0;
  int64_t rebuild_ns = 0;
  // Of requests that were run by their producer meanwhile: those that got tokens from there, and these.
  int64_t remote_runs = 0;
  int64_t remote_tokens = 0;
  // On compressed views that came first: these, the tokens drafted on them, and those of these that were right.
  int64_t remote_views = 0;
  int64_t remote_drafted = 0;
  int64_t remote_accepted = 0;
  std::array<int64_t, kTransferFaults> faults = {};
  int64_t under_way = 0;
};

// Counters only grow. submitted = finished_stop + finished_length + cancelled + expired + failed + running + waiting at
// any snapshot.
struct EngineStats {
  int64_t submitted = 0, finished_stop = 0, finished_length = 0, cancelled = 0, expired = 0, failed = 0;
  int64_t running = 0, waiting = 0, paused = 0;
  int64_t held = 0;           // Running or waiting ones that wait for their reader, a tier or a peer, not for a step.
  int64_t first_tokens = 0;   // Requests that produced a token.
  int64_t prompt_tokens = 0;  // Of requests admitted.
  double prefill_rate = 0;    // Tokens a second of the last larger steps; 0: none yet.
  int64_t prefill_tokens_ahead = 0;  // Of requests that run or wait for their turn.
  int64_t prefill_tokens = 0;        // Prompt rows really run, again after preemption included.
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t preemptions_in_prefill = 0;  // Of these, while known tokens were still being run.
  int64_t steps = 0;
  int64_t last_step_tokens = 0;
  int64_t pages_total = 0, pages_used = 0;  // Of running sequences; what only the cache holds is in `cache`.
  int64_t slots_total = 0, slots_used = 0;
  int64_t kv_bytes_used = 0;
  cache::PlacementReport cache;
  SpeculationStats speculation;
  ViewStats views;
  SlowTierStats slow_tier;
  TransferStats transfer;
  bool prefix_reuse_possible = true;  // By configuration: false where no request can ever hit.
};

}  // namespace invar::engine
