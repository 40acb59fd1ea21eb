// See tiny_model.h.
#include "tests/support/tiny_model.h"

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/check.h"
#include "base/split_mix64.h"

namespace invar::testing {
namespace {

std::byte* NewAligned(const int64_t bytes) {
  return static_cast<std::byte*>(
      ::operator new (static_cast<size_t>(std::max<int64_t>(bytes, 64)), std::align_val_t{64}));
}

}  // namespace

std::string GoldenFolder(const std::string& name) {
  return std::string(INVAR_SOURCE_DIR) + "/tests/golden/models/" + name;
}
std::string AssetFolder(const std::string& name) { return std::string(INVAR_SOURCE_DIR) + "/assets/" + name; }

std::string TestNameOf(const std::string& folder) {
  std::string name = folder.substr(folder.rfind('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TemporaryFolder::TemporaryFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "invar.XXXXXX").string();
  Check(mkdtemp(path.data()) != nullptr, "a temporary folder can be made", path);
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

StatusOr<TinyModel> LoadTinyModel(const std::string& folder, const TinyModelOptions& options) {
  TinyModel tiny;
  tiny.pool = std::make_unique<WorkerPool>(options.threads);
  auto backend = kernels::MakeBackend({.name = options.backend, .isa = options.isa, .activations = options.activations},
                                      *tiny.pool);
  if (!backend.ok()) return backend.status();
  tiny.backend = *std::move(backend);
  models::ModelOptions model_options;
  model_options.folder = folder;
  model_options.max_batch_tokens = options.max_batch_tokens;
  model_options.max_logits_rows = options.max_logits_rows;
  model_options.pack_to_file = options.pack_to_file;
  model_options.mtp_head = options.mtp_head;
  auto model = models::MakeModel(model_options, *tiny.backend);
  if (!model.ok()) return model.status();
  tiny.model = *std::move(model);
  return tiny;
}

SequenceArena::SequenceArena(const models::ModelSpec& spec, const int32_t sequences, const int32_t tokens_max,
                             const int32_t spare_slots)
    : spec_(spec) {
  const int32_t pages_each = (tokens_max + kernels::kPageTokens - 1) / kernels::kPageTokens;
  const int32_t owned = sequences * pages_each;
  const int32_t total = owned + owned / 2 + 1;
  std::vector<PageId> ids;
  for (int32_t i = 0; i < total; ++i) ids.emplace_back(i);
  SplitMix64 random(7);
  for (size_t i = ids.size() - 1; i > 0; --i) std::swap(ids[i], ids[random.Next() % (i + 1)]);
  for (int32_t s = 0; s < sequences; ++s)
    pages_.emplace_back(ids.begin() + s * pages_each, ids.begin() + (s + 1) * pages_each);
  page_memory_.reset(NewAligned(total * spec.page_bytes));
  std::memset(page_memory_.get(), 0x7B, static_cast<size_t>(total * spec.page_bytes));
  const int64_t slots = int64_t{sequences} + spare_slots;
  state_memory_.reset(NewAligned(slots * spec.state_bytes));
  std::memset(state_memory_.get(), 0x7B, static_cast<size_t>(slots * spec.state_bytes));
  for (int32_t s = 0; s < sequences; ++s) Reset(s);
}

models::SequenceMemory SequenceArena::memory() { return {.pages = page_memory_.get(), .states = state_memory_.get()}; }

models::ForwardSpan SequenceArena::Span(const int32_t sequence, const std::span<const TokenId> tokens,
                                        const int32_t first, const int32_t logits_rows) const {
  return {.tokens = tokens,
          .first = Position(first),
          .pages = pages_[static_cast<size_t>(sequence)],
          .state = SlotId(sequence),
          .logits_rows = logits_rows};
}

void SequenceArena::Reset(const int32_t sequence) {
  std::memset(state_memory_.get() + sequence * spec_.state_bytes, 0, static_cast<size_t>(spec_.state_bytes));
  for (const PageId page : pages_[static_cast<size_t>(sequence)]) {
    std::memset(page_memory_.get() + page.value() * spec_.page_bytes, 0, static_cast<size_t>(spec_.page_bytes));
  }
}

std::span<const float> SequenceArena::State(const int32_t sequence, const int64_t offset_bytes,
                                            const int64_t count) const {
  const std::byte* data = state_memory_.get() + sequence * spec_.state_bytes + offset_bytes;
  return {reinterpret_cast<const float*>(data), static_cast<size_t>(count)};
}

std::span<std::byte> SequenceArena::Slot(const int32_t slot) {
  return {state_memory_.get() + slot * spec_.state_bytes, static_cast<size_t>(spec_.state_bytes)};
}

std::vector<std::byte> SequenceArena::PageBytes(const int32_t sequence) const {
  std::vector<std::byte> bytes;
  for (const PageId page : pages_[static_cast<size_t>(sequence)]) {
    const std::byte* data = page_memory_.get() + page.value() * spec_.page_bytes;
    bytes.insert(bytes.end(), data, data + spec_.page_bytes);
  }
  return bytes;
}

void SequenceArena::SetPageBytes(const int32_t sequence, std::span<const std::byte> bytes) {
  const auto page_bytes = static_cast<size_t>(spec_.page_bytes);
  for (const PageId page : pages_[static_cast<size_t>(sequence)]) {
    std::memcpy(page_memory_.get() + page.value() * spec_.page_bytes, bytes.data(), page_bytes);
    bytes = bytes.subspan(page_bytes);
  }
}

std::vector<TokenId> Tokens(const std::span<const int32_t> ids) {
  std::vector<TokenId> tokens;
  for (const int32_t id : ids) tokens.emplace_back(id);
  return tokens;
}

std::vector<TokenId> RandomTokens(const int32_t count, const int32_t vocabulary, const uint64_t seed) {
  std::vector<TokenId> tokens;
  SplitMix64 random(seed);
  for (int32_t i = 0; i < count; ++i) {
    tokens.emplace_back(static_cast<int32_t>(random.Next() % static_cast<uint64_t>(vocabulary)));
  }
  return tokens;
}

}  // namespace invar::testing
