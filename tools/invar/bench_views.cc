// invar bench views: what decoding on compressed KV gains. The same long prompts are asked EXACT and APPROXIMATE in
// turn, all at once: time per output token, bytes of KV, and tokens a second of the whole wave, which says more where
// the daemon's engine.kv_budget holds few of them at a time. Prompts are run once before, so where the cache or a tier
// keeps them, prefill is out of it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/drawn_prompt.h"
#include "tools/invar/median.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

struct Options {
  ClientOptions client;
  std::string compressor = "centroid";
  std::optional<float> kv_budget = 0.25F;
  int32_t context_tokens = 6144;
  int32_t requests = 8;
  int32_t max_tokens = 64;
  int32_t repeats = 3;
  uint64_t seed = 1;
  bool json = false;
};

struct Wave {
  grpc::Status status;
  double wall_s = 0;
  double token_s = 0;  // Time per output token, of the median request.
  int64_t tokens = 0;
  int64_t kv_bytes = 0;
  int64_t full_bytes = 0;
  double cached_share = 0;  // Of prompt tokens.
  double rate() const { return static_cast<double>(tokens) / wall_s; }
};

Wave Ask(v1::GenerationService::Stub& stub, const Options& options, const std::vector<v1::GenerateRequest>& requests) {
  std::vector<grpc::Status> statuses(requests.size());
  std::vector<v1::Finished> finished(requests.size());
  std::vector<std::thread> callers;
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    callers.emplace_back([&, i] {
      statuses[i] = Stream(stub, options.client, requests[i], [&](const v1::GenerateResponse& message) {
        if (message.has_finished()) finished[i] = message.finished();
        return true;
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  Wave wave;
  wave.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<double> token_times;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!statuses[i].ok()) wave.status = statuses[i];
    const int32_t tokens = finished[i].usage().completion_tokens();
    wave.tokens += tokens;
    wave.kv_bytes += finished[i].kv().fast_tier_bytes();
    wave.full_bytes += finished[i].kv().full_bytes();
    prompt_tokens += finished[i].usage().prompt_tokens();
    cached_tokens += finished[i].usage().cached_tokens();
    if (tokens > 1) token_times.push_back(finished[i].timing().decode_seconds() / (tokens - 1));
  }
  wave.token_s = Median(std::move(token_times));
  wave.cached_share = prompt_tokens == 0 ? 0 : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  return wave;
}

std::vector<v1::GenerateRequest> MakeRequests(const Options& options, const int32_t vocabulary_size,
                                              const int32_t max_tokens, const bool approximate) {
  std::mt19937_64 random(options.seed);
  std::vector<v1::GenerateRequest> requests;
  for (int32_t i = 0; i < options.requests; ++i) {
    requests.push_back(GreedyRequest(DrawTokens(random, options.context_tokens, vocabulary_size), max_tokens));
    if (!approximate) continue;
    v1::KvPolicy& policy = *requests.back().mutable_kv_policy();
    policy.set_exactness(v1::KvPolicy::APPROXIMATE);
    policy.set_compressor(options.compressor);
    if (options.kv_budget) policy.set_kv_budget(*options.kv_budget);
  }
  return requests;
}

nlohmann::ordered_json ToJson(const Wave& wave) {
  return {{"seconds_per_token", wave.token_s}, {"tokens_per_s", wave.rate()},       {"kv_bytes", wave.kv_bytes},
          {"full_bytes", wave.full_bytes},     {"cached_share", wave.cached_share}, {"wall_s", wave.wall_s}};
}

void Print(const char* name, const Wave& wave) {
  std::printf("%-12s %8.2f ms a token, %8.1f tokens/s of the wave, KV %9.1f MB, %3.0f %% of prompts from the cache\n",
              name, 1e3 * wave.token_s, wave.rate(), static_cast<double>(wave.kv_bytes) / 1e6, 100 * wave.cached_share);
}

int Run(const Options& options) {
  const auto stub = Connect(options.client);
  if (stub == nullptr) return kExitFailure;
  grpc::ClientContext context;
  Authorize(options.client, context);
  v1::ListModelsResponse models;
  if (const grpc::Status s = stub->ListModels(&context, {}, &models); !s.ok()) {
    PrintError("bench views", s);
    return kExitFailure;
  }
  const int32_t vocabulary = models.models(0).vocabulary_size();
  const std::vector<v1::GenerateRequest> sides[2] = {MakeRequests(options, vocabulary, options.max_tokens, false),
                                                     MakeRequests(options, vocabulary, options.max_tokens, true)};
  if (const Wave warm = Ask(*stub, options, MakeRequests(options, vocabulary, 1, false)); !warm.status.ok()) {
    PrintError("bench views", warm.status);
    return kExitFailure;
  }
  std::vector<double> token_gains;
  std::vector<double> rate_gains;
  Wave last[2];
  for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
    for (const int turn : {0, 1}) {
      const int side = (turn + repeat) % 2;  // Who goes first changes.
      last[side] = Ask(*stub, options, sides[side]);
      if (!last[side].status.ok()) {
        PrintError("bench views", last[side].status);
        return kExitFailure;
      }
    }
    token_gains.push_back(last[0].token_s / last[1].token_s);
    rate_gains.push_back(last[1].rate() / last[0].rate());
    if (options.json) continue;
    Print("exact", last[0]);
    Print("approximate", last[1]);
  }
  const double kv_share = static_cast<double>(last[1].kv_bytes) / static_cast<double>(last[1].full_bytes);
  if (options.json) {
    const nlohmann::ordered_json out = {
        {"context_tokens", options.context_tokens}, {"requests", options.requests}, {"max_tokens", options.max_tokens},
        {"compressor", options.compressor},         {"exact", ToJson(last[0])},     {"approximate", ToJson(last[1])},
        {"token_time_gains", token_gains},          {"rate_gains", rate_gains},     {"kv_share", kv_share}};
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::printf("time per token %.2f times better, tokens/s of a wave %.2f times (medians of %d), KV %.1f %% of full\n",
              Median(token_gains), Median(rate_gains), options.repeats, 100 * kv_share);
  return kExitOk;
}

}  // namespace

int RunBenchViews(const int argc, char** argv) {
  CLI::App app("What decoding on compressed KV gains, on long prompts of ids drawn at random", "invar bench views");
  Options options;
  AddClientOptions(app, options.client);
  app.add_option("--compressor", options.compressor, "Kind, or kind:settings (docs/COMPRESSION.md)")
      ->capture_default_str();
  app.add_option("--kv-budget", options.kv_budget, "Share of the full KV's bytes")->capture_default_str();
  app.add_flag_callback(
      "--no-kv-budget", [&] { options.kv_budget.reset(); }, "For compressors that keep every token");
  app.add_option("--context-tokens", options.context_tokens, "Of a prompt")->check(CLI::Range(1, 1'000'000));
  app.add_option("--requests", options.requests, "At once")->check(CLI::Range(1, 256));
  app.add_option("--max-tokens", options.max_tokens, "Of an answer")->check(CLI::Range(2, 100'000));
  app.add_option("--repeats", options.repeats, "Waves of each side")->check(CLI::Range(1, 1000));
  app.add_option("--seed", options.seed, "Of the prompts");
  app.add_flag("--json", options.json, "One JSON object");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return Run(options);
}

}  // namespace invar::tools
