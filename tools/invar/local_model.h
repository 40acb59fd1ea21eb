// A model loaded into this process, with the memory of its sequences: for commands that need no daemon.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/worker_pool.h"
#include "base/zeroed_memory.h"
#include "kernels/backend.h"
#include "models/model.h"

namespace invar::tools {

struct LocalModelOptions {
  std::string folder;
  std::string backend = "cpu";
  std::string isa;                   // Empty: the best there is.
  std::string activations = "bf16";  // "bf16" or "fp32"
  int threads = 0;                   // 0: as many as the process may use.
  int32_t max_batch_tokens = 512;
  int32_t max_logits_rows = 512;
  bool mtp_head = true;  // Serve it, where there is one.
};

// --threads, --activations, --isa and --backend.
void AddLocalModelOptions(CLI::App& app, LocalModelOptions& options);

class LocalModel {
 public:
  // Shows a progress bar while weights are packed. Errors: as MakeBackend and MakeModel.
  static StatusOr<LocalModel> Load(const LocalModelOptions& options);

  models::Model& model() { return *model_; }
  kernels::Backend& backend() { return *backend_; }
  // For an engine, which this must outlive.
  std::unique_ptr<models::Model> TakeModel() { return std::move(model_); }
  // Makes zeroed memory for `sequences` sequences of `tokens_max` tokens each. Errors: RESOURCE_EXHAUSTED.
  Status Allocate(int32_t sequences, int32_t tokens_max);
  models::SequenceMemory memory() { return {.pages = pages_.get(), .states = states_.get()}; }
  models::ForwardSpan Span(int32_t sequence, std::span<const TokenId> tokens, int32_t first, int32_t logits_rows) const;

 private:
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<models::Model> model_;
  ZeroedMemory pages_;
  ZeroedMemory states_;
  std::vector<std::vector<PageId>> page_ids_;
};

// Cores this process may use.
int AvailableThreads();

}  // namespace invar::tools
