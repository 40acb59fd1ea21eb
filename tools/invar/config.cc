// invar config: explains every configuration field, checks a file, writes the generated docs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "config/load.h"
#include "server/metrics/metrics.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"

namespace invar::tools {

int RunConfig(const int argc, char** argv) {
  CLI::App app("Explains every configuration field", "invar config");
  std::string check;
  bool docs = false, metrics_docs = false;
  app.add_option("--check", check, "Check this file: exit 0, or 78 with the reason");
  app.add_flag("--docs", docs, "Print docs/CONFIG.md");
  app.add_flag("--metrics-docs", metrics_docs, "Print docs/METRICS.md");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  if (!check.empty()) {
    const StatusOr<config::Loaded> loaded = config::Load({.file = check, .environment = {}, .sets = {}, .model = {}});
    if (!loaded.ok()) {
      std::fprintf(stderr, "invar config: %s\n", loaded.status().message().c_str());
      return kExitConfig;
    }
    std::puts("configuration is valid");
    return kExitOk;
  }
  const std::string text = docs           ? config::PrintDocs()
                           : metrics_docs ? server::PrintMetricsDocs()
                                          : config::PrintDefaultConfig();
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace invar::tools
