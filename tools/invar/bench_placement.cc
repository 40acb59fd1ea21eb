// invar bench placement: what a daemon's placement of checkpoints is worth on a made-up workload. Documents arrive one
// after another; each is read once as a whole and then come back to, down to depths drawn from the workload, with new
// tokens behind. Run against daemons that differ in cache.placement alone (bench/placements.sh), it compares them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "bench/serve/load.h"
#include "bench/workloads/depths.h"
#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/drawn_prompt.h"

namespace invar::tools {
namespace {

struct Options {
  ClientOptions client;
  std::string workload;
  int32_t documents = 12;
  int32_t requests = 5;  // That come back to a document.
  int32_t length = 2048;
  int32_t suffix = 32;     // New tokens behind what is shared.
  int32_t vocabulary = 0;  // As of bench prefix.
  int32_t warmup = 4;      // Documents before anything is counted: placements that learn have something to learn from.
  uint64_t seed = 1;
  bool json = false;
};

struct Totals {
  int64_t requests = 0;
  double first_token_s = 0.0;
  int64_t shared_tokens = 0;
  int64_t computed_tokens = 0;
};

grpc::Status Ask(v1::GenerationService::Stub& stub, const ClientOptions& client, const std::vector<int32_t>& prompt,
                 Totals& totals) {
  const v1::GenerateRequest request = GreedyRequest(prompt, 1);
  const auto begin = std::chrono::steady_clock::now();
  bool first = true;
  return Stream(stub, client, request, [&](const v1::GenerateResponse& message) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (message.has_delta() && first) {
      totals.first_token_s += passed.count();
      first = false;
    }
    if (message.has_finished()) totals.computed_tokens += message.finished().reuse().computed_tokens();
    return true;
  });
}

// Documents are come back to in turns, so that they compete for memory.
grpc::Status Measure(v1::GenerationService::Stub& stub, const Options& options, const int32_t vocabulary_size,
                     Totals& totals) {
  std::mt19937_64 random(options.seed);
  const bench::DepthWorkload& workload = *bench::FindDepthWorkload(options.workload);
  std::vector<std::vector<int32_t>> documents;
  std::vector<std::vector<int32_t>> depths;
  Totals uncounted;
  const auto come_back = [&](const size_t document, const size_t turn) {
    const int32_t depth = depths[document][turn];
    std::vector<int32_t> prompt = DrawTokens(random, depth + options.suffix, vocabulary_size);
    std::copy_n(documents[document].begin(), depth, prompt.begin());
    Totals& counted = static_cast<int32_t>(document) < options.warmup ? uncounted : totals;
    ++counted.requests;
    counted.shared_tokens += depth;
    return Ask(stub, options.client, prompt, counted);
  };
  // Document d is first read at step d, and come back to at steps d + 1 .. d + requests.
  const int32_t all = options.warmup + options.documents;
  for (int32_t step = 0; step < all + options.requests; ++step) {
    if (step < all) {
      documents.push_back(DrawTokens(random, options.length, vocabulary_size));
      depths.push_back(bench::DrawDepths(workload, options.length, options.requests, random()));
      std::vector<int32_t> prompt = documents.back();
      const std::vector<int32_t> own = DrawTokens(random, options.suffix, vocabulary_size);
      prompt.insert(prompt.end(), own.begin(), own.end());
      if (grpc::Status s = Ask(stub, options.client, prompt, uncounted); !s.ok()) return s;
    }
    for (int32_t turn = 0; turn < options.requests; ++turn) {
      const int32_t document = step - 1 - turn;
      if (document < 0 || document >= all) continue;
      if (grpc::Status s = come_back(static_cast<size_t>(document), static_cast<size_t>(turn)); !s.ok()) return s;
    }
  }
  return grpc::Status::OK;
}

void Print(const Options& options, const Totals& totals) {
  const auto requests = static_cast<double>(totals.requests);
  const double first_token = totals.first_token_s / requests;
  const double shared = static_cast<double>(totals.shared_tokens) / requests;
  const double computed = static_cast<double>(totals.computed_tokens) / requests;
  if (!options.json) {
    std::printf("%s: %lld requests, mean first token after %.3f s, %.0f tokens computed of %.0f + %d\n",
                options.workload.c_str(), static_cast<long long>(totals.requests), first_token, computed, shared,
                options.suffix);
    return;
  }
  const nlohmann::ordered_json out = {{"workload", options.workload},
                                      {"requests", totals.requests},
                                      {"mean_first_token_s", first_token},
                                      {"mean_shared_tokens", shared},
                                      {"mean_computed_tokens", computed}};
  std::printf("%s\n", out.dump().c_str());
}

int Run(const Options& options) {
  const auto stub = Connect(options.client);
  if (stub == nullptr) return kExitFailure;
  const StatusOr<int32_t> vocabulary_size = bench::ReadTokenIds(*stub, options.client.token);
  if (!vocabulary_size.ok()) {
    std::fprintf(stderr, "invar bench placement: %s\n", vocabulary_size.status().message().c_str());
    return kExitFailure;
  }
  Totals totals;
  const int32_t ids = options.vocabulary > 0 ? options.vocabulary : *vocabulary_size;
  if (const grpc::Status s = Measure(*stub, options, ids, totals); !s.ok()) {
    PrintError("bench placement", s);
    return kExitFailure;
  }
  Print(options, totals);
  return kExitOk;
}

}  // namespace

int RunBenchPlacement(const int argc, char** argv) {
  CLI::App app("What a daemon's placement of checkpoints is worth: mean time to first token on a made-up workload",
               "invar bench placement");
  Options options;
  AddClientOptions(app, options.client);
  app.add_option("--workload", options.workload, "How deep requests come back to a document")
      ->required()
      ->check(CLI::IsMember(bench::DepthWorkloadNames()));
  app.add_option("--documents", options.documents, "Documents that count")->check(CLI::Range(1, 100'000));
  app.add_option("--warmup", options.warmup, "Documents before them")->check(CLI::Range(0, 100'000));
  app.add_option("--requests", options.requests, "Times each is come back to")->check(CLI::Range(1, 1000));
  app.add_option("--length", options.length, "Tokens of a document")->check(CLI::Range(16, 1'000'000));
  app.add_option("--suffix", options.suffix, "New tokens behind what is shared")->check(CLI::Range(1, 1'000'000));
  app.add_option("--vocabulary", options.vocabulary, "Draw token ids below this instead of the model's size")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--seed", options.seed, "Of tokens and depths");
  app.add_flag("--json", options.json, "One JSON object instead of text");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return Run(options);
}

}  // namespace invar::tools
