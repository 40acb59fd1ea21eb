// See local_model.h.
#include "tools/invar/local_model.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "config/backend_names.h"
#include "config/isa_names.h"
#include "tools/invar/progress_bar.h"

namespace invar::tools {

int AvailableThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

void AddLocalModelOptions(CLI::App& app, LocalModelOptions& options) {
  app.add_option("--threads", options.threads, "compute threads; all there are if not given")
      ->check(CLI::Range(1, 1024));
  app.add_option("--activations", options.activations)->check(CLI::IsMember({"bf16", "fp32"}))->capture_default_str();
  app.add_option("--isa", options.isa)->check(CLI::IsMember(kIsaNames));
  app.add_option("--backend", options.backend, "who computes")
      ->check(CLI::IsMember(kBackendNames))
      ->capture_default_str();
}

StatusOr<LocalModel> LocalModel::Load(const LocalModelOptions& options) {
  if (options.activations != "bf16" && options.activations != "fp32") {
    return InvalidArgument(fmt::format("activations: wanted bf16 or fp32, found \"{}\"", options.activations),
                           "activations");
  }
  LocalModel local;
  local.pool_ =
      std::make_unique<WorkerPool>(options.threads > 0 ? options.threads : AvailableThreads(), Pinning::kWorkers);
  const kernels::DType activations = options.activations == "fp32" ? kernels::DType::kF32 : kernels::DType::kBf16;
  auto backend =
      kernels::MakeBackend({.name = options.backend, .isa = options.isa, .activations = activations}, *local.pool_);
  if (!backend.ok()) return backend.status();
  local.backend_ = *std::move(backend);
  ProgressBar bar("packing weights");
  models::ModelOptions model_options;
  model_options.folder = options.folder;
  model_options.max_batch_tokens = options.max_batch_tokens;
  model_options.max_logits_rows = options.max_logits_rows;
  model_options.mtp_head = options.mtp_head;
  model_options.progress = [&bar](const int64_t done, const int64_t total) { bar.Show(done, total); };
  auto model = models::MakeModel(model_options, *local.backend_);
  if (!model.ok()) return model.status();
  local.model_ = *std::move(model);
  return local;
}

Status LocalModel::Allocate(const int32_t sequences, const int32_t tokens_max) {
  const models::ModelSpec& spec = model_->spec();
  const int32_t pages_each = (tokens_max + kernels::kPageTokens - 1) / kernels::kPageTokens;
  auto pages = MakeZeroedMemory(int64_t{sequences} * pages_each * spec.page_bytes);
  if (!pages.ok()) return pages.status();
  pages_ = *std::move(pages);
  auto states = MakeZeroedMemory(int64_t{sequences} * spec.state_bytes);
  if (!states.ok()) return states.status();
  states_ = *std::move(states);
  page_ids_.assign(static_cast<size_t>(sequences), {});
  for (int32_t s = 0; s < sequences; ++s) {
    for (int32_t p = 0; p < pages_each; ++p) page_ids_[static_cast<size_t>(s)].emplace_back(s * pages_each + p);
  }
  return OkStatus();
}

models::ForwardSpan LocalModel::Span(const int32_t sequence, const std::span<const TokenId> tokens, const int32_t first,
                                     const int32_t logits_rows) const {
  return {.tokens = tokens,
          .first = Position(first),
          .pages = page_ids_[static_cast<size_t>(sequence)],
          .state = SlotId(sequence),
          .logits_rows = logits_rows};
}

}  // namespace invar::tools
