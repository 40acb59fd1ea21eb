// Binds configuration to loaders and engine: the only place where config fields become options of the layers below.
#include "server/served_model.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>

namespace invar::server {
namespace {

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// One row a running request; at least 64, so that prompt_logprobs get on.
int32_t LogitsRows(const config::Config::Engine& options) {
  return static_cast<int32_t>(std::max<int64_t>(options.running_max, 64));
}

std::string NameOf(const config::Config::Model& model) {
  if (!model.name.empty()) return model.name;
  std::filesystem::path path = std::filesystem::path(model.path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  return path.filename().string();
}

}  // namespace

StatusOr<ModelParts> LoadModelFolder(const config::Config& config) {
  ModelParts parts;
  parts.name = NameOf(config.model);
  // The text side is quick to load and to refuse: first, so that a wrong folder fails before the weights are read.
  StatusOr<std::unique_ptr<models::Tokenizer>> tokenizer = models::LoadTokenizer(config.model.path);
  if (!tokenizer.ok()) return tokenizer.status();
  parts.tokenizer = *std::move(tokenizer);
  StatusOr<std::unique_ptr<models::ChatTemplate>> chat_template = models::LoadChatTemplate(config.model.path);
  if (!chat_template.ok()) return chat_template.status();
  parts.chat_template = *std::move(chat_template);
  StatusOr<models::GenerationDefaults> defaults = models::LoadGenerationDefaults(config.model.path);
  if (!defaults.ok()) return defaults.status();
  parts.defaults = *std::move(defaults);

  const auto& options = config.engine;
  parts.pool = std::make_unique<WorkerPool>(options.threads > 0 ? static_cast<int>(options.threads) : UsableCores());
  StatusOr<std::unique_ptr<kernels::Backend>> backend = kernels::MakeBackend(
      {.name = options.backend,
       .isa = options.isa == "auto" ? "" : options.isa,
       .activations = options.activations == "fp32" ? kernels::DType::kF32 : kernels::DType::kBf16},
      *parts.pool);
  if (!backend.ok()) return backend.status();
  parts.backend = *std::move(backend);
  StatusOr<std::unique_ptr<models::Model>> model =
      models::MakeModel({.folder = config.model.path,
                         .max_batch_tokens = static_cast<int32_t>(options.batch_tokens),
                         .max_logits_rows = LogitsRows(options),
                         .pack_to_file = options.pack_to_file,
                         .progress = {}},
                        *parts.backend);
  if (!model.ok()) return model.status();
  parts.model = *std::move(model);
  return parts;
}

StatusOr<std::unique_ptr<ServedModel>> StartEngine(const config::Config& config, ModelParts parts, const Clock& clock) {
  auto served = std::make_unique<ServedModel>();
  served->parts = std::move(parts);
  const auto& options = config.engine;
  StatusOr<std::unique_ptr<engine::Engine>> created = engine::Engine::Create(
      {.max_batch_tokens = static_cast<int32_t>(options.batch_tokens),
       .max_logits_rows = LogitsRows(options),
       .max_running = static_cast<int32_t>(options.running_max),
       .max_queued = static_cast<int32_t>(options.queue_max),
       .kv_budget_bytes = options.kv_budget,
       .prefill_chunk_tokens = static_cast<int32_t>(options.prefill_chunk_tokens),
       .stalled_reader_limit = std::chrono::nanoseconds(config.limits.slow_reader_timeout).count()},
      std::move(served->parts.model), served->parts.tokenizer.get(), clock);
  if (!created.ok()) return created.status();
  served->engine = *std::move(created);
  served->engine->StartThread();
  return served;
}

}  // namespace invar::server
