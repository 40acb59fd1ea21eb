// Distributions of schedule.h: small pools and budgets around their edges, so that a few requests already collide.
#include "tools/sim/schedule.h"

#include <algorithm>

#include "tools/sim/random.h"

namespace invar::sim {
namespace {

void DrawLimits(Random& random, Schedule& schedule) {
  schedule.model.vocabulary_size = 64;
  schedule.model.recurrent_layers = random.OneOf({0, 1, 2});
  schedule.model.attention_layers = random.OneOf({1, 2});
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
  options.stalled_reader_limit = schedule.step_time * random.Between(20, 400);
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

PlannedRequest DrawRequest(Random& random, const Schedule& schedule, const int32_t index) {
  PlannedRequest planned;
  planned.index = index;
  engine::Request& request = planned.request;
  request.request_id = std::to_string(index);
  request.tenant = random.OneOf<std::string>({"red", "green", "blue"});
  request.priority = random.Percent(75) ? 0 : random.Between(-1, 2);
  const int32_t length = random.OneOf({1, 2, 63, 64, 65, random.Between(1, 20), random.Between(1, 150)});
  for (int32_t i = 0; i < length; ++i) request.prompt.emplace_back(random.Between(0, schedule.usable_ids - 1));
  DrawSampling(random, schedule, request.sampling);
  DrawStopping(random, schedule, request.stopping);
  if (random.Percent(25)) request.output.logprobs = random.Between(0, 3);
  if (random.Percent(15)) request.output.prompt_logprobs = random.Between(0, 3);
  request.output.logprob_bits = random.Percent(20);

  planned.arrives_at = schedule.step_time * random.Between(0, 60);
  if (random.Percent(20)) request.deadline = planned.arrives_at + schedule.step_time * random.Between(1, 150);
  if (random.Percent(20)) planned.cancel_at = planned.arrives_at + schedule.step_time * random.Between(0, 100);
  if (random.Percent(25)) {
    planned.reader = {.bound = random.Between(1, 6),
                      .percent = random.OneOf({5, 30, 80}),
                      .burst = random.Between(1, 8),
                      .stalls = random.Percent(15)};
  }
  return planned;
}

void RemoveFeatures(const std::set<std::string>& without, PlannedRequest& planned) {
  engine::Request& request = planned.request;
  const auto dropped = [&](const char* const feature) { return without.contains(feature); };
  if (dropped("cancel")) planned.cancel_at.reset();
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
  if (random.Percent(10)) schedule.drain_at = schedule.step_time * random.Between(10, 80);
  if (schedule.drain_at.has_value() && random.Percent(50)) {
    schedule.abort_at = *schedule.drain_at + schedule.step_time * random.Between(0, 40);
  }
  return schedule;
}

const std::vector<std::string>& Features() {
  static const std::vector<std::string> features = {"cancel",    "deadline", "slow-reader", "drain",   "sampling",
                                                    "penalties", "stop",     "logprobs",    "priority"};
  return features;
}

Schedule Reduce(Schedule schedule, const Reduction& reduction) {
  if (reduction.only.has_value()) {
    std::erase_if(schedule.requests, [&](const PlannedRequest& planned) {
      return std::find(reduction.only->begin(), reduction.only->end(), planned.index) == reduction.only->end();
    });
  }
  for (PlannedRequest& planned : schedule.requests) RemoveFeatures(reduction.without, planned);
  if (reduction.without.contains("drain")) {
    schedule.drain_at.reset();
    schedule.abort_at.reset();
  }
  return schedule;
}

}  // namespace invar::sim
