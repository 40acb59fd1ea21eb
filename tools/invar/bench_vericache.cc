// invar bench vericache: what rounds over two tiers gain. The same prompts are answered EXACT and LOSSLESS by engines
// of this process whose fast tiers have the same bytes, in each setting of context, company, fast tier, compressor and
// way to read the slow one. Printed beside what the closed forms expected of the rates that were measured on the way.
// Counted are steps without a row of a prompt: tokens that came of them over the time they took, drafts included. That
// tokens and logits are equal to the bit is checked on the way.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/split_mix64.h"
#include "engine/engine.h"
#include "kernels/numerics.h"
#include "tools/invar/command.h"
#include "tools/invar/local_model.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

struct Options {
  LocalModelOptions local;
  std::string slow_folder = std::filesystem::temp_directory_path().string();
  std::vector<int32_t> contexts = {1024};
  std::vector<int32_t> companies = {8};
  std::vector<double> budgets = {0.4};
  std::vector<std::string> compressors = {"k8v4"};
  std::vector<std::string> reads = {"cache", "direct"};
  int32_t max_tokens = 96;
  bool json = false;
};

struct Setting {
  int32_t context = 0;
  int32_t together = 0;
  double budget = 0;  // Share of what full KV and states of all would take.
  std::string compressor;
  bool direct = false;
};

// Half of the fast tier is for views where there are some.
constexpr int64_t kViewShare = 2;

class Sink final : public engine::EventSink {
 public:
  bool Push(engine::TokenEvent event) override {
    if (auto* const delta = std::get_if<engine::DeltaEvent>(&event)) {
      for (const engine::TokenLogprob& logprob : delta->logprobs) {
        bits.push_back(static_cast<uint32_t>(logprob.token.value()));
        bits.push_back(std::bit_cast<uint32_t>(logprob.logit));
      }
    } else if (auto* const failed = std::get_if<engine::FailedEvent>(&event)) {
      failure = failed->status;
    }
    return true;
  }
  std::vector<uint32_t> bits;
  Status failure;
};

struct Run {
  double tokens_per_s = 0;
  std::vector<std::vector<uint32_t>> bits;
  engine::EngineStats stats;
};

// Words in no order: text that no n-gram repeats.
std::vector<TokenId> DrawPrompt(const int32_t tokens, const int32_t vocabulary, const uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < tokens; ++i) {
    prompt.emplace_back(static_cast<int32_t>(random.Next() % static_cast<uint64_t>(vocabulary - 10)) + 5);
  }
  return prompt;
}

int64_t FullBytes(const models::ModelSpec& spec, const int32_t tokens) {
  const int64_t pages = (tokens + kernels::kPageTokens - 1) / kernels::kPageTokens;
  return pages * spec.page_bytes + spec.state_bytes;
}

StatusOr<Run> RunAll(const Options& options, const Setting& setting, const bool rounds) {
  StatusOr<LocalModel> local = LocalModel::Load(options.local);
  if (!local.ok()) return local.status();
  const models::ModelSpec spec = local->model().spec();
  const auto fast = static_cast<int64_t>(setting.budget * setting.together *
                                         static_cast<double>(FullBytes(spec, setting.context + options.max_tokens)));
  engine::EngineOptions engine_options{.max_batch_tokens = options.local.max_batch_tokens,
                                       .max_logits_rows = options.local.max_logits_rows,
                                       .kv_budget_bytes = rounds ? fast - fast / kViewShare : fast,
                                       .prefix_cache = false,
                                       .draft_tokens_max = rounds ? 64 : 0,
                                       .draft_memory_bytes = rounds ? fast / kViewShare : 0};
  if (rounds) engine_options.slow_tier = {.path = options.slow_folder, .direct = setting.direct, .eager = true};
  const RealClock clock;
  StatusOr<std::unique_ptr<engine::Engine>> made =
      engine::Engine::Create(engine_options, local->TakeModel(), nullptr, clock);
  if (!made.ok()) return made.status();
  engine::Engine& engine = **made;
  std::vector<std::shared_ptr<Sink>> sinks;
  for (int32_t i = 0; i < setting.together; ++i) {
    engine::Request request;
    request.prompt = DrawPrompt(setting.context, spec.vocabulary_size, 1 + static_cast<uint64_t>(i));
    request.stopping.max_tokens = options.max_tokens;
    request.output.logprob_bits = true;
    if (rounds) {
      request.speculation = {
          .drafter = "compressed_kv", .draft_tokens = {}, .compressor = setting.compressor, .kv_budget = {}};
    }
    sinks.push_back(std::make_shared<Sink>());
    if (const auto id = engine.Submit(request, sinks.back()); !id.ok()) return id.status();
  }
  Run run;
  double seconds = 0;
  int64_t tokens = 0;
  for (;;) {
    const engine::EngineStats before = engine.Stats();
    const TimeNs begin = clock.Now();
    if (!engine.RunOneStep()) break;
    const engine::EngineStats after = engine.Stats();
    if (after.prefill_tokens != before.prefill_tokens) continue;
    seconds += ToSeconds(clock.Now() - begin);
    tokens += after.generated_tokens - before.generated_tokens;
    if (after.slow_tier.away > 0) run.stats = after;
  }
  for (const auto& sink : sinks) {
    if (!sink->failure.ok()) return sink->failure;
    run.bits.push_back(sink->bits);
  }
  run.tokens_per_s = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  return run;
}

Status RunSetting(const Options& options, const Setting& setting, const Run& plain) {
  StatusOr<Run> rounds = RunAll(options, setting, true);
  if (!rounds.ok()) return rounds.status();
  const bool equal = rounds->bits == plain.bits;
  const engine::EngineStats& stats = rounds->stats;
  const double measured = rounds->tokens_per_s / plain.tokens_per_s;
  const double accepted = static_cast<double>(stats.speculation.accepted_tokens) /
                          static_cast<double>(std::max<int64_t>(1, stats.speculation.drafted_tokens));
  if (options.json) {
    std::printf("%s\n",
                nlohmann::ordered_json{{"context", setting.context},
                                       {"together", setting.together},
                                       {"budget", setting.budget},
                                       {"compressor", setting.compressor},
                                       {"read", setting.direct ? "direct" : "cache"},
                                       {"plain_tokens_per_s", plain.tokens_per_s},
                                       {"rounds_tokens_per_s", rounds->tokens_per_s},
                                       {"gain", measured},
                                       {"predicted", stats.slow_tier.gain},
                                       {"accepted", accepted},
                                       {"streamed_mb", static_cast<double>(stats.slow_tier.streamed_bytes) * 1e-6},
                                       {"stall_s", ToSeconds(stats.slow_tier.stall_ns)},
                                       {"bits_equal", equal}}
                    .dump()
                    .c_str());
  } else {
    std::printf("%s\n",
                fmt::format("{:>7} {:>4} {:>6.2f} {:<10} {:<6} {:>8.1f} {:>8.1f} {:>6.2f} {:>6.2f} {:>6.3f} {:>8.0f} "
                            "{:>7.2f} {}",
                            setting.context, setting.together, setting.budget, setting.compressor,
                            setting.direct ? "direct" : "cache", plain.tokens_per_s, rounds->tokens_per_s, measured,
                            stats.slow_tier.gain, accepted, static_cast<double>(stats.slow_tier.streamed_bytes) * 1e-6,
                            ToSeconds(stats.slow_tier.stall_ns), equal ? "equal" : "DIFFER")
                    .c_str());
  }
  std::fflush(stdout);
  return equal ? OkStatus() : Internal("tokens or logits of rounds differ from plain decoding");
}

Status RunTable(const Options& options) {
  if (!options.json) {
    std::printf("context  n  budget compressor read      plain   rounds   gain  model accept  read MB  stall s bits\n");
  }
  for (const int32_t context : options.contexts) {
    for (const int32_t together : options.companies) {
      for (const double budget : options.budgets) {
        Setting setting{.context = context, .together = together, .budget = budget, .compressor = {}};
        StatusOr<Run> plain = RunAll(options, setting, false);
        if (!plain.ok()) return plain.status();
        for (const std::string& compressor : options.compressors) {
          for (const std::string& read : options.reads) {
            setting.compressor = compressor;
            setting.direct = read == "direct";
            if (Status s = RunSetting(options, setting, *plain); !s.ok()) return s;
          }
        }
      }
    }
  }
  return OkStatus();
}

}  // namespace

int RunBenchVericache(const int argc, char** argv) {
  Options options;
  CLI::App app("What rounds over two tiers gain over plain decoding with the same fast tier.", "invar bench vericache");
  app.add_option("--model", options.local.folder, "model folder")->required();
  app.add_option("--slow-tier", options.slow_folder, "folder of the slow tier")->capture_default_str();
  app.add_option("--context", options.contexts, "tokens of a prompt")->delimiter(',')->capture_default_str();
  app.add_option("--together", options.companies, "requests at once")->delimiter(',')->capture_default_str();
  app.add_option("--budget", options.budgets, "fast tier, as a share of what full KV of all takes")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--compressor", options.compressors, "what drafts are made on")->capture_default_str();
  app.add_option("--read", options.reads, "cache, direct")
      ->delimiter(',')
      ->check(CLI::IsMember({"cache", "direct"}))
      ->capture_default_str();
  app.add_option("--max-tokens", options.max_tokens, "of an answer")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_flag("--json", options.json, "a line of JSON a setting");
  AddLocalModelOptions(app, options.local);
  if (const std::optional<int> code = Parse(app, argc, argv); code.has_value()) return *code;
  return ExitOf("bench vericache", RunTable(options));
}

}  // namespace invar::tools
