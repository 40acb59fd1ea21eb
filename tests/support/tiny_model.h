// Small real models for tests: loading golden and embedded folders with a chosen backend, and the memory of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/worker_pool.h"
#include "kernels/backend.h"
#include "models/model.h"

namespace invar::testing {

// tests/golden/models/NAME
std::string GoldenFolder(const std::string& name);
// assets/NAME
std::string AssetFolder(const std::string& name);
// The model's name as a test may be called.
std::string TestNameOf(const std::string& folder);
// A new empty folder that is removed with everything in it when it dies.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TinyModelOptions {
  std::string backend = "reference";
  std::string isa;
  kernels::DType activations = kernels::DType::kF32;
  int threads = 1;
  int32_t max_batch_tokens = 512;
  int32_t max_logits_rows = 512;
  bool pack_to_file = false;  // Golden folders stay as they are.
  bool mtp_head = true;
};

// A model with what it runs on.
struct TinyModel {
  std::unique_ptr<WorkerPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<models::Model> model;
};
StatusOr<TinyModel> LoadTinyModel(const std::string& folder, const TinyModelOptions& options);

// Memory of `sequences` sequences of up to `tokens_max` tokens each. Pages of one sequence are scattered over the arena
// and those nobody owns are filled with garbage, so that a wrong page shows.
class SequenceArena {
 public:
  // `spare_slots` state slots follow the sequences' own, filled with garbage.
  SequenceArena(const models::ModelSpec& spec, int32_t sequences, int32_t tokens_max, int32_t spare_slots = 0);

  models::SequenceMemory memory();
  models::ForwardSpan Span(int32_t sequence, std::span<const TokenId> tokens, int32_t first, int32_t logits_rows) const;
  // Zeroes the state and the pages, as the engine does before a slot is used again.
  void Reset(int32_t sequence);
  std::span<const float> State(int32_t sequence, int64_t offset_bytes, int64_t count) const;
  // All bytes of one slot, or of all pages of one sequence, in order of positions.
  std::span<std::byte> Slot(int32_t slot);
  std::vector<std::byte> PageBytes(int32_t sequence) const;
  void SetPageBytes(int32_t sequence, std::span<const std::byte> bytes);

 private:
  struct FreeAligned {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{64}); }
  };
  const models::ModelSpec spec_;
  std::vector<std::vector<PageId>> pages_;
  std::unique_ptr<std::byte, FreeAligned> page_memory_;
  std::unique_ptr<std::byte, FreeAligned> state_memory_;
};

// Token list from plain numbers.
std::vector<TokenId> Tokens(std::span<const int32_t> ids);
// `count` ids below `vocabulary`, from `seed`.
std::vector<TokenId> RandomTokens(int32_t count, int32_t vocabulary, uint64_t seed);

}  // namespace invar::testing
