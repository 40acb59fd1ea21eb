// invar bench vericache: what rounds over two tiers gain. The same prompts are answered EXACT and LOSSLESS by engines
// of this process whose fast tiers have the same bytes, in each setting of context, company, fast tier, compressor and
// way to read the slow one. Requests come together; what has no room waits. Before anything is counted, all who will
// share the fast tier have answered for a while: machine and requests are known by then. Counted are steps without a
// row of a prompt: tokens that came of them over the time they took, drafts included. What comes once a request, moving
// out and making views, lies before that and is added in shares: a token of an answer pays its part, where rounds are
// on; where they were given up it was the engine's one try, and no later request pays for it. Printed beside
// what the engine expected meanwhile, of rounds and of what it did. Tokens and logits are compared to the bit, all of
// them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
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
  std::vector<double> budgets = {1.5};
  std::vector<std::string> compressors = {"k8v4"};
  std::vector<std::string> reads = {"cache", "direct"};
  double view_share = 0.9;
  int32_t max_tokens = 1024;
  int32_t checked_tokens = 128;
  double seconds = 8;
  bool wait = false;
  bool json = false;
};

struct Setting {
  int32_t context = 0;
  int32_t together = 0;
  double budget = 0;  // What full KV and states of so many requests take.
  std::string compressor;
  bool direct = false;
};

// Instead of a compressor: plain decoding on both sides, which says what the machine itself does.
constexpr std::string_view kNoCompressor = "none";
// Tokens that whoever shares the fast tier has answered before anything is counted.
constexpr int64_t kWarmTokens = 24;
// Steps in a row without a row of a prompt: nobody else has room to begin.
constexpr int64_t kWarmSteps = 24;
// Then, on a machine that may just have become quiet: some hundred forwards, and five steps of plain decoding, which
// are as many as what was learned before counts for.
constexpr double kSettleSeconds = 4.0;
constexpr double kSliceSeconds = 0.25;

class Sink final : public engine::EventSink {
 public:
  bool Push(engine::TokenEvent event) override {
    if (auto* const delta = std::get_if<engine::DeltaEvent>(&event)) {
      for (const engine::TokenLogprob& logprob : delta->logprobs) {
        bits.push_back(static_cast<uint32_t>(logprob.token.value()));
        bits.push_back(std::bit_cast<uint32_t>(logprob.logit));
      }
      tokens += std::ssize(delta->tokens);
    } else if (auto* const failed = std::get_if<engine::FailedEvent>(&event)) {
      failure = failed->status;
    }
    return true;
  }
  int64_t tokens = 0;
  std::vector<uint32_t> bits;
  Status failure;
};

struct Run {
  double tokens_per_s = 0;
  std::vector<std::vector<uint32_t>> bits;
  // Means over the time that is counted.
  double rounds_gain = 0;  // Expected of rounds over plain decoding.
  double share = 0;        // Of the time, with rounds on.
  double expected = 0;     // Of what was done.
  double away = 0;         // Requests.
  double once_s = 0;       // A request: moving out, and making views.
  engine::EngineStats before, after;
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

class Bench {
 public:
  enum class Kind { kRounds, kPlain, kReference };

  Bench(const Options& options, const Setting& setting, const Kind kind)
      : options_(options), setting_(setting), kind_(kind) {}

  Status Begin() {
    StatusOr<LocalModel> local = LocalModel::Load(options_.local);
    if (!local.ok()) return local.status();
    const models::ModelSpec spec = local->model().spec();
    vocabulary_ = spec.vocabulary_size;
    local_.emplace(*std::move(local));
    StatusOr<std::unique_ptr<engine::Engine>> made =
        engine::Engine::Create(EngineOptionsFor(spec), local_->TakeModel(), nullptr, clock_);
    if (!made.ok()) return made.status();
    engine_ = *std::move(made);
    for (int32_t i = 0; i < setting_.together; ++i) {
      if (Status s = Submit(i); !s.ok()) return s;
    }
    return OkStatus();
  }

  // All who will be there at once are, and what they do is known.
  Status WarmUp() {
    int64_t steps = 0;
    const auto is_warm = [&] {
      const engine::EngineStats stats = engine_->Stats();
      const auto answering =
          std::count_if(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->tokens >= kWarmTokens; });
      // Where rounds are given up, who is away waits for room.
      const int64_t waiting = stats.slow_tier.staggered != 0 ? 0 : stats.slow_tier.away;
      return answering >= std::max<int64_t>(1, stats.running - waiting) && steps >= kWarmSteps;
    };
    while (!done_ && !is_warm()) {
      const int64_t before = engine_->Stats().prefill_tokens;
      if (Status s = Step(); !s.ok()) return s;
      steps = engine_->Stats().prefill_tokens == before ? steps + 1 : 0;
    }
    return OkStatus();
  }
  // From here on.
  void Count() {
    counts_ = true;
    run_.before = engine_->Stats();
    run_.once_s = ToSeconds(run_.before.slow_tier.write_ns + run_.before.speculation.prepare_ns) / setting_.together;
  }

  bool done() const { return done_ || seconds_ >= options_.seconds; }
  // Goes on for about so long.
  Status GoOn(const double seconds) {
    for (const TimeNs begin = clock_.Now(); !done() && ToSeconds(clock_.Now() - begin) < seconds;) {
      if (Status s = Step(); !s.ok()) return s;
    }
    return OkStatus();
  }
  // All answers.
  Status RunToTheEnd() {
    while (!done_) {
      if (Status s = Step(); !s.ok()) return s;
    }
    return OkStatus();
  }

  StatusOr<Run> End() {
    for (const auto& sink : sinks_) {
      if (!sink->failure.ok()) return sink->failure;
      run_.bits.push_back(sink->bits);
    }
    if (kind_ == Kind::kReference) return std::move(run_);
    if (seconds_ == 0) return FailedPrecondition("no step was counted: answers ended before all were warm");
    for (double* const mean : {&run_.rounds_gain, &run_.share, &run_.expected, &run_.away}) *mean /= seconds_;
    const double once_s = run_.share * static_cast<double>(tokens_) / options_.max_tokens * run_.once_s;
    run_.tokens_per_s = static_cast<double>(tokens_) / (seconds_ + once_s);
    return std::move(run_);
  }

 private:
  engine::EngineOptions EngineOptionsFor(const models::ModelSpec& spec) const {
    const auto one = static_cast<double>(FullBytes(spec, setting_.context + options_.max_tokens));
    const double requests = kind_ == Kind::kReference ? setting_.together + 1 : setting_.budget;
    const auto fast = static_cast<int64_t>(requests * one);
    const bool rounds = kind_ == Kind::kRounds;
    const auto views = rounds ? static_cast<int64_t>(options_.view_share * static_cast<double>(fast)) : 0;
    engine::EngineOptions engine_options{.max_batch_tokens = options_.local.max_batch_tokens,
                                         .max_logits_rows = options_.local.max_logits_rows,
                                         .kv_budget_bytes = fast - views,
                                         .draft_tokens_max = rounds ? 64 : 0,
                                         .draft_memory_bytes = views};
    if (rounds) engine_options.slow_tier = {.path = options_.slow_folder, .direct = setting_.direct};
    return engine_options;
  }

  Status Submit(const int32_t index) {
    engine::Request request;
    request.prompt = DrawPrompt(setting_.context, vocabulary_, 1 + static_cast<uint64_t>(index));
    request.stopping.max_tokens = kind_ == Kind::kReference ? options_.checked_tokens : options_.max_tokens;
    request.output.logprob_bits = true;
    if (kind_ == Kind::kRounds) {
      const size_t at = setting_.compressor.find('@');
      request.speculation = {.drafter = "compressed_kv",
                             .draft_tokens = {},
                             .compressor = setting_.compressor.substr(0, at),
                             .kv_budget = {}};
      if (at != std::string::npos) request.speculation.kv_budget = std::stof(setting_.compressor.substr(at + 1));
    }
    sinks_.push_back(std::make_shared<Sink>());
    return engine_->Submit(request, sinks_.back()).status();
  }

  Status Step() {
    const engine::EngineStats before = engine_->Stats();
    const TimeNs begin = clock_.Now();
    done_ = !engine_->RunOneStep();
    const double took = ToSeconds(clock_.Now() - begin);
    const engine::EngineStats after = engine_->Stats();
    if (after.failed > 0) return Internal("a request failed");
    // Once one has ended, fewer share what rounds share.
    done_ = done_ || (kind_ == Kind::kRounds && after.finished_length > 0);
    if (done_ || after.prefill_tokens != before.prefill_tokens || !counts_) return OkStatus();
    seconds_ += took;
    tokens_ += after.generated_tokens - before.generated_tokens;
    const engine::SlowTierStats& tier = after.slow_tier;
    run_.rounds_gain += took * tier.gain;
    run_.share += took * static_cast<double>(tier.staggered);
    run_.expected += took * (tier.staggered != 0 ? tier.gain : 1.0);
    run_.away += took * static_cast<double>(tier.away);
    run_.after = after;
    return OkStatus();
  }

  // Set at construction.
  const Options& options_;
  const Setting& setting_;
  const Kind kind_;
  const RealClock clock_;

  int32_t vocabulary_ = 0;
  std::optional<LocalModel> local_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::shared_ptr<Sink>> sinks_;
  bool counts_ = false;
  bool done_ = false;
  double seconds_ = 0;
  int64_t tokens_ = 0;
  Run run_;
};

using Bits = std::vector<std::vector<uint32_t>>;

// As far as both got.
bool AreEqual(const Bits& a, const Bits& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const size_t both = std::min(a[i].size(), b[i].size());
    if (!std::equal(a[i].begin(), a[i].begin() + static_cast<ptrdiff_t>(both), b[i].begin())) return false;
  }
  return true;
}

// Of plain decoding with room for all: the beginning of each answer. They depend on the prompts alone.
class Reference {
 public:
  explicit Reference(const Options& options) : options_(options) {}
  StatusOr<const Bits*> Of(const Setting& setting) {
    Bits& bits = bits_[{setting.context, setting.together}];
    if (!bits.empty() || options_.checked_tokens == 0) return &bits;
    Bench bench(options_, setting, Bench::Kind::kReference);
    if (Status s = bench.Begin(); !s.ok()) return s;
    if (Status s = bench.RunToTheEnd(); !s.ok()) return s;
    StatusOr<Run> run = bench.End();
    if (!run.ok()) return run.status();
    bits = std::move(run->bits);
    return &bits;
  }

 private:
  const Options& options_;
  std::map<std::pair<int32_t, int32_t>, Bits> bits_;
};

// In short slices each in turn, so that whatever else the machine does meets both.
Status RunSetting(const Options& options, const Setting& setting, Reference& reference) {
  const bool none = setting.compressor == kNoCompressor;
  Bench with_rounds(options, setting, none ? Bench::Kind::kPlain : Bench::Kind::kRounds);
  Bench without(options, setting, Bench::Kind::kPlain);
  const StatusOr<const Bits*> expected = reference.Of(setting);
  if (!expected.ok()) return expected.status();
  for (Bench* const bench : {&with_rounds, &without}) {
    if (Status s = bench->Begin(); !s.ok()) return s;
    if (Status s = bench->WarmUp(); !s.ok()) return s;
  }
  if (options.wait) {
    std::fprintf(stderr, "ready\n");
    std::string line;
    std::getline(std::cin, line);
  }
  for (Bench* const bench : {&with_rounds, &without}) {
    if (Status s = bench->GoOn(kSettleSeconds); !s.ok()) return s;
    bench->Count();
  }
  while (!with_rounds.done() || !without.done()) {
    for (Bench* const bench : {&with_rounds, &without}) {
      if (Status s = bench->GoOn(kSliceSeconds); !s.ok()) return s;
    }
  }
  if (options.wait) std::fprintf(stderr, "counted\n");
  StatusOr<Run> rounds = with_rounds.End();
  StatusOr<Run> plain = without.End();
  if (!rounds.ok()) return rounds.status();
  if (!plain.ok()) return plain.status();
  const bool equal = AreEqual(rounds->bits, plain->bits) && AreEqual(rounds->bits, **expected);
  const engine::EngineStats& to = rounds->after;
  const engine::EngineStats& from = rounds->before;
  const auto over = [](const int64_t part, const int64_t of) {
    return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0.0;
  };
  const int64_t streams = to.slow_tier.streams - from.slow_tier.streams;
  const int64_t drafted = to.speculation.drafted_tokens - from.speculation.drafted_tokens;
  const int64_t accepted = to.speculation.accepted_tokens - from.speculation.accepted_tokens;
  const double draft = over(drafted, to.speculation.rounds - from.speculation.rounds);
  const double streamed_mb = static_cast<double>(to.slow_tier.streamed_bytes - from.slow_tier.streamed_bytes) * 1e-6;
  const double stall_s = ToSeconds(to.slow_tier.stall_ns - from.slow_tier.stall_ns);
  const double gain = rounds->tokens_per_s / plain->tokens_per_s;
  if (options.json) {
    std::printf("%s\n", nlohmann::ordered_json{{"context", setting.context},
                                               {"together", setting.together},
                                               {"budget", setting.budget},
                                               {"compressor", setting.compressor},
                                               {"read", setting.direct ? "direct" : "cache"},
                                               {"plain_tokens_per_s", plain->tokens_per_s},
                                               {"tokens_per_s", rounds->tokens_per_s},
                                               {"gain", gain},
                                               {"expected", rounds->expected},
                                               {"rounds_gain_expected", rounds->rounds_gain},
                                               {"rounds_share", rounds->share},
                                               {"away", rounds->away},
                                               {"streams", streams},
                                               {"draft_tokens", draft},
                                               {"accepted_share", over(accepted, drafted)},
                                               {"dropped", to.speculation.dropped_tokens},
                                               {"streamed_mb", streamed_mb},
                                               {"once_s", rounds->once_s},
                                               {"stall_s", stall_s},
                                               {"bits_equal", equal}}
                            .dump()
                            .c_str());
  } else {
    std::printf("%s\n", fmt::format("{:>7} {:>3} {:>6.2f} {:<16} {:<6} {:>7.1f} {:>7.1f} {:>6.2f} {:>8.2f} {:>6.2f} "
                                    "{:>5.2f} {:>4.1f} {:>5.1f} {:>6.3f} {:>7} {:>8.0f} {:>7.2f} {:>6.2f} {}",
                                    setting.context, setting.together, setting.budget, setting.compressor,
                                    setting.direct ? "direct" : "cache", plain->tokens_per_s, rounds->tokens_per_s,
                                    gain, rounds->expected, rounds->rounds_gain, rounds->share, rounds->away, draft,
                                    over(accepted, drafted), streams, streamed_mb, stall_s, rounds->once_s,
                                    equal ? "equal" : "DIFFER")
                            .c_str());
  }
  std::fflush(stdout);
  return equal ? OkStatus() : Internal("tokens or logits of rounds differ from plain decoding");
}

Status RunTable(const Options& options) {
  Reference reference(options);
  if (!options.json) {
    std::printf("%s\n",
                "context   n budget compressor       read     plain    ours   gain expected rounds share away draft "
                "accept streams  read MB stall s once s bits");
  }
  for (const int32_t context : options.contexts) {
    for (const int32_t together : options.companies) {
      for (const double budget : options.budgets) {
        Setting setting{.context = context, .together = together, .budget = budget, .compressor = {}};
        for (const std::string& compressor : options.compressors) {
          for (const std::string& read : options.reads) {
            setting.compressor = compressor;
            setting.direct = read == "direct";
            if (Status s = RunSetting(options, setting, reference); !s.ok()) return s;
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
  app.add_option("--budget", options.budgets, "fast tier, in full KV of so many requests")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--compressor", options.compressors,
                 "what drafts are made on, with the share that it keeps behind an @; none: plain on both sides")
      ->delimiter(';')
      ->capture_default_str();
  app.add_option("--views", options.view_share, "most of the fast tier that views may take")
      ->check(CLI::Range(0.0, 0.95))
      ->capture_default_str();
  app.add_option("--read", options.reads, "cache, direct")
      ->delimiter(',')
      ->check(CLI::IsMember({"cache", "direct"}))
      ->capture_default_str();
  app.add_option("--max-tokens", options.max_tokens, "of an answer")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_option("--check-tokens", options.checked_tokens,
                 "of each answer, compared to the bit beside those that plain decoding gives in its turn")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "that are counted of each side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--wait", options.wait, "wait for a line of input before anything is counted: for a quiet machine");
  app.add_flag("--json", options.json, "a line of JSON a setting");
  AddLocalModelOptions(app, options.local);
  if (const std::optional<int> code = Parse(app, argc, argv); code.has_value()) return *code;
  return ExitOf("bench vericache", RunTable(options));
}

}  // namespace invar::tools
