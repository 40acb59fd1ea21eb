// invar make-model: a random-weight model folder in a real shape, for speed and memory tests through the daemon.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "models/random_model.h"
#include "tools/invar/command.h"
#include "tools/invar/parse.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {

int RunMakeModel(int argc, char** argv) {
  models::RandomModelOptions options;
  CLI::App app("Write a random-weight model folder in a real shape.", "invar make-model");
  app.add_option("--shape", options.shape,
                 fmt::format("a config.json, or one of: {}", fmt::join(models::RandomModelShapes(), ", ")))
      ->required();
  app.add_option("--out", options.folder, "folder to write")->required();
  app.add_option("--seed", options.seed)->capture_default_str();
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  ProgressBar bar("writing weights");
  int64_t bytes = 0;
  options.progress = [&](const int64_t done, const int64_t total) {
    bytes = total;
    bar.Show(done, total);
  };
  const Status status = models::MakeRandomModel(options);
  if (!status.ok()) return ExitOf("make-model", status);
  std::printf("%s: %.1f million parameters\n", options.folder.c_str(), static_cast<double>(bytes) / 2e6);
  return kExitOk;
}

}  // namespace invar::tools
