// invar bench serve: loads a daemon with a workload file and reports latencies, throughput and reuse.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/serve/load.h"
#include "bench/serve/report.h"
#include "bench/serve/workload.h"
#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {
namespace {

struct Options {
  ClientOptions client;
  std::string workload_path;
  int32_t requests = 0;  // 0: as the file says.
  bool json = false;
};

// Warm-up requests go one after another: they fill caches and connections and are not measured.
void WarmUp(v1::GenerationService::Stub& stub, bench::Workload workload, const int32_t vocabulary_size,
            const std::string& token) {
  workload.mode = bench::Workload::Mode::kClosed;
  workload.concurrency = 1;
  bench::RunLoad(stub, workload, bench::PlanWarmup(workload, vocabulary_size), token, [](int32_t, int32_t) {});
}

bench::Report Measure(v1::GenerationService::Stub& stub, const bench::Workload& workload, const int32_t vocabulary_size,
                      const std::string& token) {
  WarmUp(stub, workload, vocabulary_size, token);
  ProgressBar bar(workload.name);
  const bench::LoadResult result =
      bench::RunLoad(stub, workload, bench::PlanRequests(workload, vocabulary_size), token,
                     [&](const int32_t finished, const int32_t total) { bar.Show(finished, total); });
  return bench::Summarize(result.records, result.duration_s);
}

int Fail(const Status& status) {
  std::fprintf(stderr, "invar bench serve: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? kExitConfig : kExitFailure;
}

int Run(const Options& options) {
  StatusOr<bench::Workload> workload = bench::LoadWorkload(options.workload_path);
  if (!workload.ok()) return Fail(workload.status());
  if (options.requests > 0) workload->requests = options.requests;
  const auto stub = Connect(options.client);
  if (stub == nullptr) return kExitFailure;
  const StatusOr<int32_t> vocabulary_size = bench::ReadTokenIds(*stub, options.client.token);
  if (!vocabulary_size.ok()) return Fail(vocabulary_size.status());

  const bench::Report report = Measure(*stub, *workload, *vocabulary_size, options.client.token);
  const std::string text = options.json ? bench::ToJson(*workload, report) + "\n" : bench::ToText(*workload, report);
  std::fputs(text.c_str(), stdout);
  return report.failed == 0 ? kExitOk : kExitFailure;
}

}  // namespace

int RunBenchServe(const int argc, char** argv) {
  CLI::App app("Loads a daemon with a workload: open or closed loop, shared prefixes", "invar bench serve");
  Options options;
  AddClientOptions(app, options.client);
  app.add_option("--workload", options.workload_path, "YAML file, see bench/workloads")->required();
  app.add_option("--requests", options.requests, "This many instead of the file's")->check(CLI::Range(1, 10'000'000));
  app.add_flag("--json", options.json, "One JSON object instead of text");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return Run(options);
}

}  // namespace invar::tools
