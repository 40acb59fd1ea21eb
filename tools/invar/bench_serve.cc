// invar bench serve: loads a daemon with a workload file and reports latencies, throughput and reuse.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/serve/load.h"
#include "bench/serve/report.h"
#include "bench/serve/workload.h"
#include "tools/invar/command.h"

namespace invar::tools {
namespace {

constexpr int kBarWidth = 40;

// On a terminal only; a pipe gets none.
void DrawProgress(const int32_t finished, const int32_t total) {
  const int filled = total == 0 ? kBarWidth : static_cast<int>(int64_t{kBarWidth} * finished / total);
  std::fprintf(stderr, "\r[%s%s] %d/%d", std::string(static_cast<size_t>(filled), '#').c_str(),
               std::string(static_cast<size_t>(kBarWidth - filled), '.').c_str(), finished, total);
  std::fflush(stderr);
}

// Warm-up requests go one after another: they fill caches and connections and are not measured.
void WarmUp(v1::GenerationService::Stub& stub, bench::Workload workload, const int32_t vocabulary_size,
            const std::string& token) {
  workload.mode = bench::Workload::Mode::kClosed;
  workload.concurrency = 1;
  bench::RunLoad(stub, workload, bench::PlanWarmup(workload, vocabulary_size), token, [](int32_t, int32_t) {});
}

struct Options {
  std::string server;
  std::string workload_path;
  std::string token;
  int32_t requests = 0;
  bool json = false;
};

int Fail(const Status& status) {
  std::fprintf(stderr, "invar bench serve: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitConfig : kExitFailure;
}

int Run(const Options& options) {
  StatusOr<bench::Workload> workload = bench::LoadWorkload(options.workload_path);
  if (!workload.ok()) return Fail(workload.status());
  if (options.requests > 0) workload->requests = options.requests;
  const auto channel = grpc::CreateChannel(options.server, grpc::InsecureChannelCredentials());
  const auto stub = v1::GenerationService::NewStub(channel);
  const StatusOr<int32_t> vocabulary_size = bench::ReadVocabularySize(*stub, options.token);
  if (!vocabulary_size.ok()) return Fail(vocabulary_size.status());

  WarmUp(*stub, *workload, *vocabulary_size, options.token);
  const bool show_progress = isatty(STDERR_FILENO) != 0;
  const bench::LoadResult result = bench::RunLoad(*stub, *workload, bench::PlanRequests(*workload, *vocabulary_size),
                                                  options.token, [&](const int32_t finished, const int32_t total) {
                                                    if (show_progress) DrawProgress(finished, total);
                                                  });
  if (show_progress) std::fputc('\n', stderr);
  const bench::Report report = bench::Summarize(result.records, result.duration_s);
  const std::string text = options.json ? bench::ToJson(*workload, report) + "\n" : bench::ToText(*workload, report);
  std::fputs(text.c_str(), stdout);
  return report.failed == 0 ? kExitOk : kExitFailure;
}

}  // namespace

int RunBenchServe(const int argc, char** argv) {
  CLI::App app("Loads a daemon with a workload: open or closed loop, shared prefixes", "invar bench serve");
  Options options;
  app.add_option("--server", options.server, "host:port of the daemon's gRPC port")->required();
  app.add_option("--workload", options.workload_path, "YAML file, see bench/workloads")->required();
  app.add_option("--requests", options.requests, "this many instead of the file's")->check(CLI::Range(1, 10'000'000));
  app.add_option("--token", options.token, "API token")->envname("INVAR_TOKEN");
  app.add_flag("--json", options.json, "one JSON object instead of text");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return Run(options);
}

}  // namespace invar::tools
