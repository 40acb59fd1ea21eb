// invar bench prefix: what a shared prefix saves. Prompts share their first tokens and then part, one after another, so
// that the first is cold and later ones find what earlier ones left; the last is then asked again, whole. Resuming
// costs what that last one takes beyond a decode step at the same depth: both run one row over the same KV.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/serve/load.h"
#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/drawn_prompt.h"
#include "tools/invar/median.h"

namespace invar::tools {
namespace {

struct Options {
  ClientOptions client;
  int32_t shared_tokens = 1500;
  int32_t prompt_tokens = 2000;
  int32_t sightings = 4;
  int32_t repeats = 1;     // Each with a shared part of its own.
  int32_t vocabulary = 0;  // Ids are drawn below; 0: the model's size, which a tokenizer may not fill.
  uint64_t seed = 1;
  bool json = false;
};

constexpr int32_t kOutputTokens = 16;
constexpr int kAskedAgain = 7;  // Odd: a median is one of them.

struct Sample {
  double first_token_s = 0.0;  // As the caller sees it.
  double prefill_s = 0.0;      // As the daemon says: from admission to the first token.
  double token_s = 0.0;        // Mean time of a further token.
  int32_t cached_tokens = 0;
};

grpc::Status Ask(v1::GenerationService::Stub& stub, const ClientOptions& client, const std::vector<int32_t>& prompt,
                 Sample& sample) {
  const v1::GenerateRequest request = GreedyRequest(prompt, kOutputTokens);
  const auto begin = std::chrono::steady_clock::now();
  return Stream(stub, client, request, [&](const v1::GenerateResponse& message) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (message.has_delta() && sample.first_token_s == 0.0) sample.first_token_s = passed.count();
    if (message.has_finished()) {
      sample.prefill_s = message.finished().timing().prefill_seconds();
      sample.token_s = message.finished().timing().decode_seconds() / (kOutputTokens - 1);
      sample.cached_tokens = message.finished().usage().cached_tokens();
    }
    return true;
  });
}

template <typename Value>
double MedianOf(const std::vector<Sample>& samples, const Value Sample::*const member) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(static_cast<double>(sample.*member));
  return Median(std::move(values));
}

struct Result {
  std::vector<std::vector<Sample>> sightings;  // [sighting][repeat]
  std::vector<Sample> again;                   // Of whole prompts.
};

grpc::Status Measure(v1::GenerationService::Stub& stub, const Options& options, const int32_t vocabulary_size,
                     Result& result) {
  std::mt19937_64 random(options.seed);
  result.sightings.resize(options.sightings);
  for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
    const std::vector<int32_t> shared = DrawTokens(random, options.shared_tokens, vocabulary_size);
    std::vector<int32_t> prompt;
    for (std::vector<Sample>& sighting : result.sightings) {
      prompt = DrawTokens(random, options.prompt_tokens, vocabulary_size);
      std::copy(shared.begin(), shared.end(), prompt.begin());
      if (grpc::Status s = Ask(stub, options.client, prompt, sighting.emplace_back()); !s.ok()) return s;
    }
    for (int i = 0; i < kAskedAgain; ++i) {
      if (grpc::Status s = Ask(stub, options.client, prompt, result.again.emplace_back()); !s.ok()) return s;
    }
  }
  return grpc::Status::OK;
}

void Print(const Options& options, const Result& result) {
  const double cold = MedianOf(result.sightings[0], &Sample::first_token_s);
  const double resume_ms =
      1e3 * (MedianOf(result.again, &Sample::prefill_s) - MedianOf(result.again, &Sample::token_s));
  nlohmann::ordered_json out = {{"shared_tokens", options.shared_tokens},
                                {"prompt_tokens", options.prompt_tokens},
                                {"repeats", options.repeats},
                                {"sightings", nlohmann::ordered_json::array()},
                                {"same_prompt_again_first_token_s", MedianOf(result.again, &Sample::first_token_s)},
                                {"decode_step_s", MedianOf(result.again, &Sample::token_s)},
                                {"resume_cost_ms", resume_ms}};
  for (size_t i = 0; i < result.sightings.size(); ++i) {
    const double first_token = MedianOf(result.sightings[i], &Sample::first_token_s);
    const double cached = MedianOf(result.sightings[i], &Sample::cached_tokens);
    out["sightings"].push_back({{"sighting", i + 1},
                                {"cached_tokens", cached},
                                {"first_token_s", first_token},
                                {"of_cold", first_token / cold}});
    if (!options.json) {
      std::printf("sighting %zu: %5.0f of %d tokens cached, first token after %8.3f s, %.2f of cold\n", i + 1, cached,
                  options.prompt_tokens, first_token, first_token / cold);
    }
  }
  if (options.json) {
    std::printf("%s\n", out.dump().c_str());
  } else {
    std::printf("the same prompt again: first token after %.1f ms; beyond a decode step, resuming costs %.2f ms\n",
                1e3 * MedianOf(result.again, &Sample::first_token_s), resume_ms);
  }
}

int Run(const Options& options) {
  const auto stub = Connect(options.client);
  if (stub == nullptr) return kExitFailure;
  const StatusOr<int32_t> vocabulary_size = bench::ReadTokenIds(*stub, options.client.token);
  if (!vocabulary_size.ok()) {
    std::fprintf(stderr, "invar bench prefix: %s\n", vocabulary_size.status().message().c_str());
    return kExitFailure;
  }
  Result result;
  const int32_t ids = options.vocabulary > 0 ? options.vocabulary : *vocabulary_size;
  if (const grpc::Status s = Measure(*stub, options, ids, result); !s.ok()) {
    PrintError("bench prefix", s);
    return kExitFailure;
  }
  Print(options, result);
  return kExitOk;
}

}  // namespace

int RunBenchPrefix(const int argc, char** argv) {
  CLI::App app("What a shared prefix saves: time to first token by sighting, and what resuming costs",
               "invar bench prefix");
  Options options;
  AddClientOptions(app, options.client);
  app.add_option("--shared", options.shared_tokens, "Tokens all prompts begin with")->check(CLI::Range(1, 1'000'000));
  app.add_option("--prompt", options.prompt_tokens, "Tokens of a prompt")->check(CLI::Range(2, 1'000'000));
  app.add_option("--sightings", options.sightings, "Prompts that share one beginning")->check(CLI::Range(1, 1000));
  app.add_option("--repeats", options.repeats, "Shared beginnings, of which medians are taken")
      ->check(CLI::Range(1, 1000));
  app.add_option("--vocabulary", options.vocabulary, "Draw token ids below this instead of the model's size")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--seed", options.seed, "Of the tokens: another one finds nothing that this one left");
  app.add_flag("--json", options.json, "One JSON object instead of text");
  try {
    app.parse(argc, argv);
    if (options.shared_tokens >= options.prompt_tokens) {
      throw CLI::ValidationError("--shared", "must be below --prompt");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return Run(options);
}

}  // namespace invar::tools
