// What an engine is created with. Numbers here bound all requests together; engine/validate.h bounds one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/cache_tuning.h"
#include "config/config.h"
#include "engine/drafter_kind.h"
#include "engine/prefix_view.h"
#include "engine/scd_profiles.h"
#include "engine/slow_tier_options.h"

namespace invar::engine {

// Of prefixes that come from other instances (prefix_source.h).
struct TransferOptions {
  int32_t tokens_min = 1;  // Fewer are run here.
  TimeNs timeout = TimeNs{30} * 1'000'000'000;
  std::shared_ptr<const HeldProfile> profile = {};  // What codes of them are decoded by; null: none are asked for.
  bool plans = false;                               // Fetch only what is sooner there than here, by what was measured.
  std::string point = {};                           // That they are asked for in; empty: the best of the profile.
  bool runs_there = false;                          // A request is run by its producer until its prefix is here.
  WantedView view = {};  // That its drafts are made on meanwhile; without a compressor: it makes none.
};

struct EngineOptions {
  int32_t max_batch_tokens = 512;  // Token budget of one step; at most what the model was loaded for.
  int32_t max_logits_rows = 64;    // Rows of logits in one step; at most what the model was loaded for.
  int32_t max_running = 64;        // Sequences that hold memory at once.
  int32_t max_queued = 1024;       // Waiting requests; more is RESOURCE_EXHAUSTED at once.
  int64_t kv_budget_bytes = int64_t{1} << 30;
  int32_t max_pages = INT32_MAX;  // Pages of KV, if the budget holds more: for tests that want memory to run out.
  bool prefix_cache = true;       // Reuse what earlier requests computed.
  cache::CacheTuning cache = cache::TuningOf({});
  bool plans_on_a_thread = false;      // What the cache learns from, on a thread of its own; else runs repeat exactly.
  int32_t prefill_chunk_tokens = 512;  // Most prompt tokens of one sequence in one step.
  // Most of one request: what the configuration allows, the engine allows.
  int64_t stop_strings_max = config::Config::Limits{}.stop_strings_max;
  int64_t stop_string_bytes_max = config::Config::Limits{}.stop_string_bytes_max;
  int64_t logprobs_max = config::Config::Limits{}.logprobs_max;
  int32_t draft_tokens_max = 64;  // Most of one draft; 0: no request may speculate.
  std::vector<DrafterKind> drafters = DrafterKinds();
  int64_t draft_memory_bytes = int64_t{1} << 27;  // For views that drafters draft on, beside the KV budget.
  SlowTierOptions slow_tier = {};                 // For full KV of those who draft on views.
  bool approximates = true;                       // Requests may ask for answers on compressed views.
  TransferOptions transfer = {};
  bool check_integrity_every_step = false;  // Tests: recounts everything.
  bool poison_freed_memory = false;         // Tests: freed pages and slots are filled with NaN.
};

}  // namespace invar::engine
