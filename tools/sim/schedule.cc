// Distributions of schedule.h: small pools and budgets around their edges, so that a few requests already collide.
#include "tools/sim/schedule.h"

#include <algorithm>

#include "tools/sim/dialled_drafter.h"
#include "tools/sim/oracle.h"
#include "tools/sim/random.h"
#include "tools/sim/sim_tokenizer.h"

namespace invar::sim {
namespace {

void DrawLimits(Random& random, Schedule& schedule) {
  schedule.model.vocabulary_size = 64;
  schedule.model.recurrent_layers = random.OneOf({0, 1, 2});
  schedule.model.attention_layers = random.OneOf({1, 2});
  if (schedule.model.recurrent_layers > 0) schedule.model.state_padding_bytes = random.OneOf({0, 500, 3000});
  schedule.model.max_sequence_tokens = random.OneOf({96, 256, 1024});
  schedule.model.max_logits_rows = 64;
  schedule.usable_ids = random.OneOf({24, 60, 64});
  schedule.step_time = random.OneOf<TimeNs>({200'000, 5'000'000, 150'000'000});

  engine::EngineOptions& options = schedule.options;
  options.max_batch_tokens = random.OneOf({1, 3, 17, 64, 512});
  options.max_logits_rows = random.OneOf({1, 2, 8, 64});
  options.prefill_chunk_tokens = random.OneOf({1, 7, 64, 512});
  options.max_running = random.Between(1, 8);
  options.max_queued = random.OneOf({3, 100});
  options.prefix_cache = random.Percent(92);
  options.draft_tokens_max = random.OneOf({1, 2, 4, 8, 16, 24});
  options.check_integrity_every_step = true;
  options.poison_freed_memory = random.Percent(50);
  schedule.pages = random.OneOf({1, 2, 3, 4, 5, 6, 8, 12, 40});
  options.kv_budget_bytes = int64_t{1} << 20;
  options.max_pages = schedule.pages;
}

void DrawSampling(Random& random, const Schedule& schedule, engine::SamplingParams& sampling) {
  sampling.temperature = random.OneOf({0.0F, 0.0F, 0.5F, 1.0F, 5.0F});
  sampling.seed = random.Next();
  if (random.Percent(30)) sampling.top_k = random.OneOf({1, 2, 5, 64, 1000});
  if (random.Percent(30)) sampling.top_p = random.OneOf({0.01F, 0.5F, 0.95F});
  if (random.Percent(20)) sampling.min_p = random.OneOf({0.05F, 0.5F, 1.0F});
  if (random.Percent(25)) sampling.repetition_penalty = random.OneOf({0.8F, 1.3F});
  if (random.Percent(25)) sampling.presence_penalty = random.OneOf({-1.0F, 1.5F});
  if (random.Percent(25)) sampling.frequency_penalty = random.OneOf({-0.5F, 0.7F});
  if (random.Percent(20)) {
    for (int32_t i = random.Between(1, 4); i > 0; --i) {
      sampling.logit_bias[random.Between(0, schedule.usable_ids - 1)] = random.OneOf({-100.0F, 2.0F, 8.0F});
    }
  }
  if (random.Percent(10)) {
    for (int32_t i = random.Between(2, 9); i > 0; --i) {
      sampling.allowed_token_ids.emplace_back(random.Between(0, schedule.usable_ids - 1));
    }
  }
}

void DrawStopping(Random& random, const Schedule& schedule, engine::StoppingParams& stopping) {
  stopping.max_tokens = random.OneOf({0, 1, 2, random.Between(1, 30), random.Between(20, 90)});
  if (random.Percent(25)) stopping.min_tokens = random.Between(0, stopping.max_tokens);
  if (random.Percent(40)) {
    for (int32_t i = random.Between(1, 3); i > 0; --i) {
      stopping.stop.push_back(random.OneOf<std::string>({"ab", "abc", "bca", "stop", "\xC3\xA9",
                                                         "\xE2\x82\xAC"
                                                         "a",
                                                         "a b"}));
    }
    stopping.include_stop = random.Percent(50);
  }
  if (random.Percent(40)) stopping.stop_token_ids = {TokenId(0), TokenId(random.Between(1, schedule.usable_ids - 1))};
}

void AppendTokens(Random& random, const Schedule& schedule, const int32_t count, std::vector<TokenId>& prompt) {
  for (int32_t i = 0; i < count; ++i) prompt.emplace_back(random.Between(0, schedule.usable_ids - 1));
}

// A prompt that earlier requests have nothing to do with, or one that repeats, continues or leaves one of theirs.
void DrawPrompt(Random& random, const Schedule& schedule, PlannedRequest& planned) {
  constexpr int32_t kPromptMax = 500;  // The oracle's work grows with the square.
  engine::Request& request = planned.request;
  const int32_t earlier = static_cast<int32_t>(schedule.requests.size());
  if (earlier == 0 || random.Percent(35)) {
    AppendTokens(random, schedule, random.OneOf({1, 2, 63, 64, 65, random.Between(1, 20), random.Between(1, 150), 200}),
                 request.prompt);
    return;
  }
  const PlannedRequest& origin = schedule.requests[random.Between(std::max(0, earlier - 4), earlier - 1)];
  if (random.Percent(85)) {
    request.tenant = origin.request.tenant;
    request.cache.salt = origin.request.cache.salt;
  }
  request.prompt = origin.request.prompt;
  const int32_t length = static_cast<int32_t>(request.prompt.size());
  const int32_t how = random.Between(0, 99);
  if (how < 25) return;  // The same once more.
  if (how < 60) {
    const int32_t shared = random.OneOf({random.Between(1, length), length, length - 1, length / 64 * 64, 64, 65, 8});
    request.prompt.resize(std::clamp(shared, 1, length));
    AppendTokens(random, schedule, random.OneOf({1, 7, random.Between(1, 100)}), request.prompt);
  } else {
    // The next turn: mostly once the answer is there.
    const bool answers = origin.request.sampling.allowed_token_ids.empty() && length < kPromptMax &&
                         length < schedule.model.max_sequence_tokens;
    if (answers) {
      const SimTokenizer tokenizer(schedule.usable_ids);
      const Expected answer = ExpectedAnswer(origin.request, schedule.model, tokenizer);
      request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    }
    AppendTokens(random, schedule, random.Between(1, 40), request.prompt);
    planned.arrives_at = origin.arrives_at + schedule.step_time * random.Between(1, 150);
  }
  if (std::ssize(request.prompt) > kPromptMax) request.prompt.resize(kPromptMax);
}

void DrawCache(Random& random, engine::Request& request) {
  const int32_t length = static_cast<int32_t>(request.prompt.size());
  engine::Request::Cache& cache = request.cache;
  if (random.Percent(10)) cache.salt = random.OneOf<std::string>({"pepper", "cumin"});
  cache.bypass_read = random.Percent(7);
  cache.bypass_write = random.Percent(7);
  if (length > 1 && random.Percent(30)) {
    for (int32_t i = random.Between(1, 4); i > 0; --i) cache.hints.push_back(random.Between(1, length - 1));
    std::sort(cache.hints.begin(), cache.hints.end());
    cache.hints.erase(std::unique(cache.hints.begin(), cache.hints.end()), cache.hints.end());
  }
  if (random.Percent(30)) cache.stable_tokens = random.Between(0, length);
}

void DrawTier(Random& random, Schedule& schedule) {
  if (!random.Percent(40)) return;
  PlannedTier tier{.budget_bytes = random.OneOf<int64_t>({3'000, 20'000, 1'000'000}),
                   .options = {.seed = random.Next(),
                               .delay_min = schedule.step_time / 10,
                               .delay_max = schedule.step_time * random.OneOf({1, 3, 10})}};
  schedule.options.cache.deadlines.read = schedule.step_time * random.Between(1, 20);
  schedule.options.cache.deadlines.write = schedule.step_time * random.Between(1, 40);
  if (random.Percent(60)) {
    tier.options.stuck = random.OneOf({0, 50, 300});
    tier.options.failed = random.OneOf({0, 50, 300});
    tier.options.lost = random.OneOf({0, 50, 300});
    tier.options.damaged = random.OneOf({0, 50, 300});
    tier.options.stuck_ns = schedule.step_time * 100;
  }
  schedule.tier = tier;
}

// From chance of its own: what else a seed draws stays what it was.
void DrawPeer(Schedule& schedule) {
  Random random(schedule.seed ^ 0x9EE5ULL);
  if (!random.Percent(40)) return;
  schedule.peer = {.seed = random.Next(),
                   .delay_min = 0,
                   .delay_max = schedule.step_time * random.OneOf({0, 3, 20}),
                   .fails = random.OneOf({0, 20, 60}),
                   .never_comes = random.OneOf({0, 0, 20}),
                   .comes_in_part = random.OneOf({0, 30})};
  schedule.options.transfer = {.tokens_min = random.OneOf({1, 1, 70}),
                               .timeout = schedule.step_time * random.Between(1, 30)};
  for (PlannedRequest& planned : schedule.requests) planned.request.transfer.allowed = random.Percent(70);
}

// From chance of its own, likewise. Mostly whoever may move out does at once, since on this clock steps take no time
// and rounds are seldom worth anything.
void DrawSlowTier(Schedule& schedule) {
  Random random(schedule.seed ^ 0x510FULL);
  if (!random.Percent(50)) return;
  SimulatedFileOptions files{.seed = random.Next()};
  if (random.Percent(50)) {
    files.reads_fail = random.OneOf({0, 5, 50});
    files.reads_fall_short = random.OneOf({0, 5, 50});
    files.reads_are_damaged = random.OneOf({0, 5, 50});
    files.writes_fail = random.OneOf({0, 5, 50});
    files.disk_is_full = random.OneOf({0, 5, 50});
    files.slow = random.OneOf({0, 100, 500});
    files.slow_ns = schedule.step_time * random.Between(1, 20);
  }
  schedule.slow_tier = files;
  engine::EngineOptions& options = schedule.options;
  options.draft_memory_bytes = 0;  // Views here are counts.
  options.slow_tier = {.path = "simulated",
                       .budget_bytes = random.OneOf<int64_t>({1 << 14, 1 << 16, 1 << 20, 1 << 20}),
                       .staging_bytes = random.OneOf<int64_t>({1, 1 << 15, 1 << 20}),
                       .step_bytes = random.OneOf<int64_t>({1, 1 << 10, 1 << 20}),
                       .synchronous = random.Percent(30),
                       .eager = random.Percent(80),
                       .reads_on_a_thread = false};
  schedule.model.max_sequence_tokens = 1024;
  for (PlannedRequest& planned : schedule.requests) {
    engine::Request::Speculation& speculation = planned.request.speculation;
    if (speculation.drafter.empty() ? !random.Percent(50) : speculation.drafter != kDialledDrafter) continue;
    if (speculation.drafter.empty()) planned.agreement_percent = random.OneOf({0, 50, 80, 95, 100});
    speculation.drafter = kDialledViewDrafter;
    speculation.compressor = "int8";
    // Who moves out has two pages at least.
    if (random.Percent(60)) planned.request.stopping.max_tokens += random.Between(40, 160);
  }
}

void DrawFlushes(Random& random, Schedule& schedule) {
  if (!random.Percent(30)) return;
  for (int32_t i = random.Between(1, 4); i > 0; --i) {
    PlannedFlush flush{.at = schedule.step_time * random.Between(5, 200), .what = {}};
    if (random.Percent(40)) {
      flush.what.tenant = random.OneOf<std::string>({"red", "green", "blue"});
      // One salt, or all of the tenant's: drawn by what is drawn anyway, so that seeds keep their schedules.
      if (flush.at / schedule.step_time % 2 == 0) flush.what.salt = "";
    }
    flush.what.part = random.OneOf(
        {cache::CachedPart::kAll, cache::CachedPart::kAll, cache::CachedPart::kKv, cache::CachedPart::kStates});
    schedule.flushes.push_back(std::move(flush));
  }
  std::sort(schedule.flushes.begin(), schedule.flushes.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
}

void DrawSpeculation(Random& random, const Schedule& schedule, PlannedRequest& planned) {
  if (!random.Percent(50)) return;
  engine::Request::Speculation& speculation = planned.request.speculation;
  speculation.drafter = random.Percent(75) ? kDialledDrafter : "ngram";
  planned.agreement_percent = random.OneOf({0, 50, 80, 95, 100});
  if (random.Percent(60)) speculation.draft_tokens = random.Between(1, schedule.options.draft_tokens_max);
}

PlannedRequest DrawRequest(Random& random, const Schedule& schedule, const int32_t index) {
  PlannedRequest planned;
  planned.index = index;
  engine::Request& request = planned.request;
  request.request_id = std::to_string(index);
  request.tenant = random.OneOf<std::string>({"red", "green", "blue"});
  request.priority = random.Percent(75) ? 0 : random.Between(-1, 2);
  planned.arrives_at = schedule.step_time * random.Between(0, 60);
  DrawPrompt(random, schedule, planned);
  DrawCache(random, request);
  DrawSampling(random, schedule, request.sampling);
  DrawStopping(random, schedule, request.stopping);
  DrawSpeculation(random, schedule, planned);
  if (random.Percent(25)) request.output.logprobs = random.Between(0, 3);
  if (random.Percent(15)) request.output.prompt_logprobs = random.Between(0, 3);
  request.output.logprob_bits = random.Percent(20);

  if (random.Percent(20)) request.deadline = planned.arrives_at + schedule.step_time * random.Between(1, 150);
  if (random.Percent(20)) planned.cancel_at = planned.arrives_at + schedule.step_time * random.Between(0, 100);
  if (random.Percent(25)) {
    planned.reader = {.bound = random.Between(1, 6),
                      .percent = random.OneOf({5, 30, 80}),
                      .burst = random.Between(1, 8),
                      .stalls = random.Percent(15)};
  }
  // As the server does with a reader that is gone for good.
  if (planned.reader.stalls && !planned.cancel_at) {
    planned.cancel_at = planned.arrives_at + schedule.step_time * random.Between(20, 400);
  }
  return planned;
}

void RemoveFeatures(const std::set<std::string>& without, PlannedRequest& planned) {
  engine::Request& request = planned.request;
  const auto dropped = [&](const char* const feature) { return without.contains(feature); };
  if (dropped("cancel")) {
    planned.cancel_at.reset();
    planned.reader.stalls = false;  // Only a cancel would end it.
  }
  if (dropped("deadline")) request.deadline = kNever;
  if (dropped("slow-reader")) planned.reader = Reader{};
  if (dropped("sampling")) request.sampling = {.temperature = 0.0F, .logit_bias = {}, .allowed_token_ids = {}};
  if (dropped("penalties")) {
    request.sampling.repetition_penalty = 1.0F;
    request.sampling.presence_penalty = request.sampling.frequency_penalty = 0.0F;
  }
  if (dropped("stop")) request.stopping = {.max_tokens = request.stopping.max_tokens, .stop = {}, .stop_token_ids = {}};
  if (dropped("logprobs")) request.output = {};
  if (dropped("priority")) request.priority = 0;
  if (dropped("hints")) {
    request.cache.hints.clear();
    request.cache.stable_tokens = 0;
  }
  if (dropped("salt")) request.cache.salt.clear();
  if (dropped("speculation")) request.speculation = {};
  if (dropped("bypass")) request.cache.bypass_read = request.cache.bypass_write = false;
}

}  // namespace

Schedule MakeSchedule(const uint64_t seed) {
  Random random(seed);
  Schedule schedule;
  schedule.seed = seed;
  DrawLimits(random, schedule);
  const int32_t count = random.Between(1, 14);
  for (int32_t i = 0; i < count; ++i) schedule.requests.push_back(DrawRequest(random, schedule, i));
  std::stable_sort(schedule.requests.begin(), schedule.requests.end(),
                   [](const auto& a, const auto& b) { return a.arrives_at < b.arrives_at; });
  DrawFlushes(random, schedule);
  DrawTier(random, schedule);
  DrawPeer(schedule);
  DrawSlowTier(schedule);
  if (random.Percent(5)) schedule.abort_at = schedule.step_time * random.Between(10, 120);
  return schedule;
}

const std::vector<std::string>& Features() {
  static const std::vector<std::string> features = {
      "cancel", "deadline", "slow-reader", "abort",     "sampling", "penalties", "stop", "logprobs", "priority",
      "cache",  "flush",    "tier",        "slow-tier", "peer",     "hints",     "salt", "bypass",   "speculation"};
  return features;
}

Schedule Reduce(Schedule schedule, const Reduction& reduction) {
  if (reduction.only.has_value()) {
    std::erase_if(schedule.requests, [&](const PlannedRequest& planned) {
      return std::find(reduction.only->begin(), reduction.only->end(), planned.index) == reduction.only->end();
    });
  }
  for (PlannedRequest& planned : schedule.requests) RemoveFeatures(reduction.without, planned);
  if (reduction.without.contains("cache")) schedule.options.prefix_cache = false;
  if (reduction.without.contains("flush")) schedule.flushes.clear();
  if (reduction.without.contains("tier")) schedule.tier.reset();
  if (reduction.without.contains("slow-tier")) {
    schedule.slow_tier.reset();
    schedule.options.slow_tier = {};
  }
  if (reduction.without.contains("peer")) schedule.peer.reset();
  if (reduction.without.contains("abort")) schedule.abort_at.reset();
  return schedule;
}

}  // namespace invar::sim
