// invar stagger-sim: speculation on compressed KV on a simulated device of two tiers, with the engine's own scheduler:
// what plain decoding, synchronous and staggered rounds reach, and what the server would choose.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/speculate/mode.h"
#include "tools/invar/command.h"
#include "tools/stagger/adaptive.h"
#include "tools/stagger/profile.h"
#include "tools/stagger/simulated_device.h"

namespace invar::tools {
namespace {

struct StaggerSimOptions {
  std::string profile;
  int32_t draft_tokens = 0;  // 0: the best of each mode.
  int32_t draft_max = 256;
  uint64_t seed = 1;
  bool json = false;
};

struct Row {
  std::string mode;
  double tokens_per_s = 0;
  int32_t residents = 0;
  int32_t draft_tokens = 0;
  StaggerOutcome outcome = {};
};

Row Simulate(const std::string& mode, const StaggerProfile& profile, const int32_t draft_min, const int32_t draft_max,
             const int32_t residents, const uint64_t seed) {
  const StaggerOutcome outcome = SimulateStagger(
      profile.device(), profile.load(), EqualRequests(profile.load(), residents),
      {.limits = {.synchronous = mode == "synchronous"}, .draft_min = draft_min, .draft_max = draft_max, .seed = seed});
  return {mode, outcome.tokens_per_s, residents, draft_min, outcome};
}

// No closed form: a few lengths, as one tries them.
Row BestSynchronous(const StaggerProfile& profile, const StaggerSimOptions& options, const int32_t residents) {
  if (options.draft_tokens > 0) {
    return Simulate("synchronous", profile, options.draft_tokens, options.draft_tokens, residents, options.seed);
  }
  Row best;
  for (const int32_t k : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256}) {
    if (k > options.draft_max) break;
    Row row = Simulate("synchronous", profile, k, k, residents, options.seed);
    if (row.tokens_per_s > best.tokens_per_s) best = row;
  }
  return best;
}

nlohmann::ordered_json ToJson(const Row& row) {
  return {{"tokens_per_s", row.tokens_per_s},     {"residents", row.residents},
          {"draft_tokens", row.draft_tokens},     {"tokens_a_round", row.outcome.accepted_run},
          {"link_share", row.outcome.link_share}, {"gap_p99_s", row.outcome.gap_p99_s}};
}

void Print(const StaggerSimOptions& options, const StaggerProfile& profile, const Row& full, const Row& synchronous,
           const Row& staggered, const AdaptiveOutcome& adaptive) {
  const double bound = LinkBoundTokensPerSecond(profile.device(), profile.load());
  if (options.json) {
    nlohmann::ordered_json out;
    out["full"] = {{"tokens_per_s", full.tokens_per_s}, {"residents", full.residents}};
    out["synchronous"] = ToJson(synchronous);
    out["staggered"] = ToJson(staggered);
    out["chosen"] = {{"mode", NameOf(adaptive.chosen.mode)},
                     {"draft_tokens", adaptive.chosen.draft_min},
                     {"tokens_per_s", adaptive.tokens_per_s},
                     {"residents", adaptive.chosen.residents},
                     {"acceptance_learned", adaptive.acceptance}};
    // JSON has no infinity: every token accepted, the link bounds nothing.
    out["bound_tokens_per_s"] = std::isfinite(bound) ? nlohmann::ordered_json(bound) : nlohmann::ordered_json(nullptr);
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{:<12} {:>10} {:>6} {:>10} {:>6} {:>14} {:>6} {:>10}\n", "mode", "tokens/s", "gain", "residents", "draft",
             "tokens a round", "link", "p99 gap s");
  fmt::print("{:<12} {:>10.1f} {:>6.2f} {:>10}\n", full.mode, full.tokens_per_s, 1.0, full.residents);
  for (const Row* const row : {&synchronous, &staggered}) {
    fmt::print("{:<12} {:>10.1f} {:>6.2f} {:>10} {:>6} {:>14.1f} {:>6.2f} {:>10.2f}\n", row->mode, row->tokens_per_s,
               row->tokens_per_s / full.tokens_per_s, row->residents, row->draft_tokens, row->outcome.accepted_run,
               row->outcome.link_share, row->outcome.gap_p99_s);
  }
  fmt::print("the link allows at most {:.1f} tokens/s, whatever the draft length\n", bound);
  fmt::print(
      "chosen without knowing the acceptance: {}{}, {:.1f} tokens/s, {:.2f} of plain (acceptance learned: {:.3f})\n",
      NameOf(adaptive.chosen.mode),
      adaptive.chosen.draft_min > 0 ? fmt::format(" with {} tokens a draft", adaptive.chosen.draft_min) : "",
      adaptive.tokens_per_s, adaptive.tokens_per_s / full.tokens_per_s, adaptive.acceptance);
}

Status Run(const StaggerSimOptions& options) {
  const StatusOr<StaggerProfile> profile = LoadStaggerProfile(options.profile);
  if (!profile.ok()) return profile.status();
  const engine::TwoTierDevice device = profile->device();
  const engine::SpeculationLoad load = profile->load();
  engine::ModeLimits limits{.draft_max = options.draft_max};
  if (profile->gap_s_max > 0) limits.gap_s_max = profile->gap_s_max;
  // What staggered rounds reach where they must be taken, gain or none.
  engine::ModeLimits forced = limits;
  forced.gain_min = 0;
  const engine::ModeChoice choice = ChooseMode(device, load, forced);
  const int32_t draft_min = options.draft_tokens > 0 ? options.draft_tokens : choice.draft_min;
  const int32_t draft_max = options.draft_tokens > 0 ? options.draft_tokens : choice.draft_max;
  Print(options, *profile,
        {.mode = "plain", .tokens_per_s = FullTokensPerSecond(device, load), .residents = FullResidents(device, load)},
        BestSynchronous(*profile, options, choice.residents),
        Simulate("staggered", *profile, draft_min, draft_max, choice.residents, options.seed),
        SimulateAdaptive(device, load, limits, options.seed));
  return OkStatus();
}

}  // namespace

int RunStaggerSim(int argc, char** argv) {
  StaggerSimOptions options;
  CLI::App app("Speculation on compressed KV on a simulated device with a slow tier behind a link",
               "invar stagger-sim");
  app.add_option("--profile", options.profile, "YAML: device and load (docs/SPECULATION.md names the keys)")
      ->required();
  app.add_option("--draft-tokens", options.draft_tokens, "tokens a draft; without it the best of each mode")
      ->check(CLI::Range(1, 4096));
  app.add_option("--draft-max", options.draft_max, "most tokens a draft")->check(CLI::Range(1, 4096));
  app.add_option("--seed", options.seed, "of the accepted lengths");
  app.add_flag("--json", options.json, "one JSON object on stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const Status status = Run(options);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "invar stagger-sim: %s\n", status.message().c_str());
  return kExitFailure;
}

}  // namespace invar::tools
