// invar sim: the whole engine in deterministic simulation on the model of hashes. Runs one schedule a seed, says which
// went wrong, and prints the command that replays the first; --minimize leaves out what the failure does not need.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tools/invar/command.h"
#include "tools/invar/parse.h"
#include "tools/sim/simulation.h"

namespace invar::tools {
namespace {

struct SimOptions {
  uint64_t seeds = 1000;
  uint64_t first_seed = 1;
  bool minimize = false;
  bool json = false;
  std::string plant;
  sim::Reduction reduction;
};

struct Tally {
  uint64_t schedules = 0, wrong = 0, stuck = 0, leaked = 0;
  int64_t preemptions = 0, tokens = 0;
  std::optional<uint64_t> first_failing_seed;
  std::string first_problem;
};

std::string JoinInts(const std::vector<int32_t>& values) {
  std::ostringstream out;
  for (size_t i = 0; i < values.size(); ++i) out << (i == 0 ? "" : ",") << values[i];
  return out.str();
}

std::string ReplayCommand(const SimOptions& options, const uint64_t seed, const sim::Reduction& reduction) {
  std::string command = "invar sim --seeds 1 --seed " + std::to_string(seed);
  if (!options.plant.empty()) command += " --plant " + options.plant;
  if (reduction.only.has_value()) command += " --only " + JoinInts(*reduction.only);
  for (const std::string& feature : reduction.without) command += " --without " + feature;
  return command;
}

// A broken invariant stops the process inside a schedule; this says in which, so that it can be replayed.
// Static, since a signal handler has no other way to know.
std::array<char, 96> running_note{};

void NoteRunning(const uint64_t seed) {
  std::snprintf(running_note.data(), running_note.size(), "stopped in: invar sim --seeds 1 --seed %llu\n",
                static_cast<unsigned long long>(seed));
}

void SayWhereItStopped(int) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, running_note.data(), std::strlen(running_note.data()));
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

void ShowProgress(const uint64_t done, const uint64_t all) {
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(kWidth * done / all);
  std::fprintf(stderr, "\r[%-*s] %llu/%llu seeds", kWidth, std::string(filled, '#').c_str(),
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(all));
  if (done == all) std::fputc('\n', stderr);
}

Tally RunAll(const SimOptions& options, const sim::Plant plant) {
  Tally tally;
  const bool progress = isatty(STDERR_FILENO) != 0;
  for (uint64_t i = 0; i < options.seeds; ++i) {
    const uint64_t seed = options.first_seed + i;
    NoteRunning(seed);
    const sim::Outcome outcome = sim::RunSchedule(sim::Reduce(sim::MakeSchedule(seed), options.reduction), plant);
    ++tally.schedules;
    tally.wrong += outcome.wrong.empty() ? 0 : 1;
    tally.stuck += outcome.stuck.empty() ? 0 : 1;
    tally.leaked += outcome.leaked.empty() ? 0 : 1;
    tally.preemptions += outcome.preemptions;
    tally.tokens += outcome.tokens;
    if (!outcome.ok() && !tally.first_failing_seed.has_value()) {
      tally.first_failing_seed = seed;
      tally.first_problem = outcome.FirstProblem();
    }
    if (progress && (i % 64 == 63 || i + 1 == options.seeds)) ShowProgress(i + 1, options.seeds);
  }
  return tally;
}

void Print(const SimOptions& options, const Tally& tally, const std::string& replay, const double seconds) {
  if (options.json) {
    nlohmann::ordered_json out = {
        {"seeds", options.seeds}, {"schedules", tally.schedules},     {"wrong", tally.wrong},
        {"stuck", tally.stuck},   {"leaked", tally.leaked},           {"first_failing_seed", nullptr},
        {"tokens", tally.tokens}, {"preemptions", tally.preemptions}, {"seconds", seconds}};
    if (tally.first_failing_seed.has_value()) {
      out["first_failing_seed"] = *tally.first_failing_seed;
      out["first_problem"] = tally.first_problem;
      out["replay"] = replay;
    }
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  std::printf("%llu schedules, %lld tokens, %lld preemptions in %.1f s: %llu wrong, %llu stuck, %llu leaked\n",
              static_cast<unsigned long long>(tally.schedules), static_cast<long long>(tally.tokens),
              static_cast<long long>(tally.preemptions), seconds, static_cast<unsigned long long>(tally.wrong),
              static_cast<unsigned long long>(tally.stuck), static_cast<unsigned long long>(tally.leaked));
  if (!tally.first_failing_seed.has_value()) return;
  std::printf("first failing seed %llu: %s\nreplay: %s\n", static_cast<unsigned long long>(*tally.first_failing_seed),
              tally.first_problem.c_str(), replay.c_str());
}

}  // namespace

int RunSim(int argc, char** argv) {
  SimOptions options;
  std::vector<int32_t> only;
  std::vector<std::string> without;
  CLI::App app("The whole engine in deterministic simulation on the model of hashes", "invar sim");
  app.add_option("--seeds", options.seeds, "schedules to run, one a seed")->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--seed", options.first_seed, "the first seed");
  app.add_flag("--minimize", options.minimize, "shrink the first failing schedule");
  app.add_flag("--json", options.json, "one JSON object on stdout");
  app.add_option("--plant", options.plant, "put a bug in on purpose")->check(CLI::IsMember(sim::PlantNames()));
  app.add_option("--only", only, "keep only these requests of the schedule")->delimiter(',');
  app.add_option("--without", without, "leave a feature out of the schedule")->check(CLI::IsMember(sim::Features()));
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  if (!only.empty()) options.reduction.only = only;
  options.reduction.without.insert(without.begin(), without.end());
  const sim::Plant plant = sim::PlantNamed(options.plant).value_or(sim::Plant::kNone);

  std::signal(SIGABRT, SayWhereItStopped);
  const auto begin = std::chrono::steady_clock::now();
  const Tally tally = RunAll(options, plant);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::string replay;
  if (tally.first_failing_seed.has_value()) {
    sim::Reduction reduction = options.reduction;
    if (options.minimize) {
      const sim::Reduction found =
          sim::Minimize(sim::Reduce(sim::MakeSchedule(*tally.first_failing_seed), reduction), plant);
      reduction.only = found.only;
      reduction.without.insert(found.without.begin(), found.without.end());
    }
    replay = ReplayCommand(options, *tally.first_failing_seed, reduction);
  }
  Print(options, tally, replay, seconds);
  return tally.first_failing_seed.has_value() ? kExitFailure : kExitOk;
}

}  // namespace invar::tools
