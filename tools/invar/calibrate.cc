// invar calibrate: fits a profile of semantic cache distillation to a pair of models, without a daemon, and says what
// it is worth.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

#include "base/file.h"
#include "engine/transfer/scd_profile_file.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/report.h"
#include "tools/invar/command.h"
#include "tools/invar/local_model.h"
#include "tools/invar/parse.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {
namespace {

struct Options {
  LocalModelOptions local;
  std::string producer;
  std::string consumer;
  calibrate::CalibrateOptions calibrate;
  std::string json_path;
  std::string plot_path;
};

Status WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return OkStatus();
  StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (Status s = file->Append(text); !s.ok()) return s;
  return file->Commit();
}

// Nobody waits for numbers that have no place: where a file cannot be made, that is said before the work.
Status CheckWritable(const std::string& path) {
  if (path.empty()) return OkStatus();
  return AtomicFile::Create(path).status();
}

StatusOr<LocalModel> Load(const Options& options, const std::string& folder) {
  LocalModelOptions local = options.local;
  local.folder = folder;
  local.mtp_head = false;
  return LocalModel::Load(local);
}

Status Run(const Options& options) {
  for (const std::string& path : {options.calibrate.out, options.json_path, options.plot_path}) {
    if (path == "-") continue;
    if (Status s = CheckWritable(path); !s.ok()) return s;
  }
  StatusOr<LocalModel> producer = Load(options, options.producer);
  if (!producer.ok()) return producer.status();
  StatusOr<LocalModel> consumer = Load(options, options.consumer);
  if (!consumer.ok()) return consumer.status();
  const StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer = models::LoadTokenizer(options.consumer);
  if (!tokenizer.ok()) return tokenizer.status();
  const int32_t rows_max = options.local.max_batch_tokens;
  ProgressBar bar("calibrating");
  const StatusOr<calibrate::Calibration> made = calibrate::Calibrate(
      {.model = producer->model(), .folder = options.producer, .rows_max = rows_max},
      {.model = consumer->model(), .folder = options.consumer, .rows_max = rows_max}, **tokenizer, options.calibrate,
      [&bar](const int64_t done, const int64_t total) { bar.Show(done, total); });
  if (!made.ok()) return made.status();
  if (Status s = engine::SaveScd(made->profile, options.calibrate.out); !s.ok()) return s;
  const std::string json = calibrate::ToJson(*made, options.calibrate).dump(1) + "\n";
  if (options.json_path == "-") {
    std::fputs(json.c_str(), stdout);
  } else {
    std::fputs(calibrate::ToTable(*made).c_str(), stdout);
    if (Status s = WriteFile(options.json_path, json); !s.ok()) return s;
  }
  return WriteFile(options.plot_path, calibrate::ToPicture(*made));
}

}  // namespace

int RunCalibrate(int argc, char** argv) {
  Options options;
  calibrate::CalibrateOptions& fit = options.calibrate;
  CLI::App app("Fit a profile of semantic cache distillation: prefill on one model, decode on another.",
               "invar calibrate");
  app.footer("What is sent, how it is fitted and how to read the report: docs/SCD.md.");
  app.add_option("--producer", options.producer, "folder of the model that prefills")->required();
  app.add_option("--consumer", options.consumer, "folder of the model that decodes: same architecture, other weights")
      ->required();
  app.add_option("--text", fit.text_paths, "UTF-8 files: 8 tenths to fit on, a tenth to choose, a tenth to judge")
      ->required();
  app.add_option("--out", fit.out, "FILE.scd to write; FILE.scd.progress lies beside it meanwhile")->required();
  const auto count = [&](const char* name, int32_t& value, const int32_t least, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(least, 1 << 20))->capture_default_str();
  };
  count("--rank-k", fit.rank_k, 0, "numbers a token of keys, where K and V are coded apart; 0: half their columns");
  count("--rank-v", fit.rank_v, 0, "and of values; 0: 7 tenths of their columns");
  count("--patch-layers", fit.patch_layers, -1, "most layers whose KV the consumer's weights make; -1: as many as pay");
  count("--features", fit.features, 0, "of nonlinear decoders; 0: linear ones only");
  count("--prefix-tokens", fit.prefix_tokens, 0, "of a window: what is sent; 0: up to 1024, as the text allows");
  count("--suffix-tokens", fit.suffix_tokens, 1, "of a window: what is predicted behind it");
  count("--windows", fit.fit_windows, 1, "that are fitted on");
  count("--choose-windows", fit.choose_windows, 1, "that layers' modes are chosen on");
  count("--judge-windows", fit.judge_windows, 1, "that the report is of");
  app.add_option("--tails", fit.tails,
                 "tokens whose recurrence runs again, to choose from; at most a quarter of the prefix")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--budgets", fit.budgets, "shares of the raw bytes: a point of the profile each, ascending")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--recompute-max", fit.recompute_share_max, "share of a prefill that the consumer may run again")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("!--even-weights", fit.by_mass, "every token counts alike, not by the attention it gets");
  app.add_option("--json", options.json_path, "file for all numbers; - for standard output, instead of the table");
  app.add_option("--plot", options.plot_path, "SVG file to write a picture to");
  AddLocalModelOptions(app, options.local);
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return ExitOf("calibrate", Run(options));
}

}  // namespace invar::tools
