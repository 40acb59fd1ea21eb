// invar eval: what compressed views of KV lose on a model: tasks on free text, the perplexity of what follows a
// compressed prefix, and how many tokens of drafts on a view are right. Without a daemon.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "base/file.h"
#include "tools/eval/report.h"
#include "tools/eval/task.h"
#include "tools/invar/command.h"
#include "tools/invar/local_model.h"
#include "tools/invar/parse.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {
namespace {

struct Options {
  LocalModelOptions local;
  eval::EvalOptions eval;
  std::string json_path;
  std::string plot_path;
  bool served = false;
};

// A file that is written at the end, but opened before the work: nobody waits for numbers that have no place. Without a
// path nothing is.
class OutFile {
 public:
  static StatusOr<OutFile> Open(const std::string& path) {
    OutFile out;
    if (path.empty()) return out;
    StatusOr<AtomicFile> file = AtomicFile::Create(path);
    if (!file.ok()) return file.status();
    out.file_.emplace(*std::move(file));
    return out;
  }
  Status Write(const std::string& text) {
    if (!file_) return OkStatus();
    if (Status s = file_->Append(text); !s.ok()) return s;
    return file_->Commit();
  }

 private:
  std::optional<AtomicFile> file_;
};

Status Run(const Options& options) {
  if (Status s = eval::CheckOptions(options.eval); !s.ok()) return s;
  StatusOr<OutFile> json = OutFile::Open(options.json_path);
  if (!json.ok()) return json.status();
  StatusOr<OutFile> plot = OutFile::Open(options.plot_path);
  if (!plot.ok()) return plot.status();
  StatusOr<LocalModel> local = LocalModel::Load(options.local);
  if (!local.ok()) return local.status();
  const std::string& folder = options.local.folder;
  StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer = models::LoadTokenizer(folder);
  if (!tokenizer.ok()) return tokenizer.status();
  StatusOr<std::unique_ptr<models::ChatTemplate>> chat = models::LoadChatTemplate(folder);
  if (!chat.ok()) return chat.status();
  StatusOr<models::GenerationDefaults> defaults = models::LoadGenerationDefaults(folder, tokenizer->get());
  if (!defaults.ok()) return defaults.status();
  StatusOr<kernels::RowSampler> sampler = kernels::RowSampler::Create(options.local.isa);
  if (!sampler.ok()) return sampler.status();
  ProgressBar bar("evaluating");
  const auto progress = [&bar](const int64_t done, const int64_t total) { bar.Show(done, total); };
  const models::ModelSpec& spec = local->model().spec();
  const eval::EvalHeading heading{.model = folder,
                                  .fingerprint = spec.fingerprint,
                                  .numerics_id = spec.numerics_id,
                                  .date = fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::now()))};
  const eval::EvalModel model{.model = local->model(),
                              .backend = local->backend(),
                              .tokenizer = **tokenizer,
                              .chat = chat->get(),
                              .stops = defaults->eos,
                              .sampler = *sampler,
                              .rows_max = options.local.max_batch_tokens};
  if (options.served) {
    const StatusOr<eval::ServedResults> served = eval::RunServed(model, local->TakeModel(), options.eval, progress);
    if (!served.ok()) return served.status();
    std::fputs(eval::ToTable(*served).c_str(), stdout);
    return json->Write(eval::ToJson(heading, options.eval, *served).dump(1) + "\n");
  }
  const StatusOr<eval::EvalResults> results = eval::RunEval(model, options.eval, progress);
  if (!results.ok()) return results.status();
  std::fputs(eval::ToTable(options.eval, *results).c_str(), stdout);
  if (Status s = json->Write(eval::ToJson(heading, options.eval, *results).dump(1) + "\n"); !s.ok()) return s;
  return plot->Write(eval::ToPicture(heading, options.eval, *results));
}

std::string TasksHelp() {
  std::string help = "Tasks:\n";
  for (const eval::TaskKind& kind : eval::TaskKinds()) help += fmt::format("  {:<16} {}\n", kind.name, kind.summary);
  return help + "Compressors and their settings: docs/COMPRESSION.md; what the columns mean: docs/EVAL.md.";
}

}  // namespace

int RunEval(int argc, char** argv) {
  Options options;
  eval::EvalOptions& eval = options.eval;
  CLI::App app("What compressed views of KV lose on a model, beside the full KV and random dropping.", "invar eval");
  app.footer(TasksHelp());
  app.add_option("--model", options.local.folder, "model folder")->required();
  app.add_option("--compressor", eval.compressors, "KIND[:settings], as often as wanted")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--budget", eval.budgets, "shares of the full KV's bytes that stay")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--context-tokens", eval.context_tokens, "tokens that are compressed, of every task and text")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("--samples", eval.samples, "of every task, and windows of text")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--seed", eval.seed, "of everything drawn")->capture_default_str();
  app.add_option("--tasks", eval.tasks, "all, if not given; none")->delimiter(',');
  app.add_option("--text", eval.text_paths, "UTF-8 files: noise, texts to predict and to draft on");
  app.add_option("--suffix-tokens", eval.suffix_tokens, "predicted behind each context of a text")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--draft-tokens", eval.draft_tokens, "lengths of drafts")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--path-tokens", eval.path_tokens, "greedy tokens that drafts are judged by")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_flag("--plain", eval.plain, "without the model's chat template");
  CLI::Option* const served =
      app.add_flag("--served", options.served,
                   "answer the tasks through the engine instead: on full KV, APPROXIMATE, and LOSSLESS with drafts of "
                   "--draft-tokens");
  app.add_option("--json", options.json_path, "file to write all numbers to");
  app.add_option("--plot", options.plot_path, "SVG file to write a picture to")->excludes(served);
  AddLocalModelOptions(app, options.local);
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return ExitOf("eval", Run(options));
}

}  // namespace invar::tools
