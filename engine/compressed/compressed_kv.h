// CompressedKv: the compressed view of one sequence's attention KV, all layers of it, as forwards read it
// (models::ForwardSpan::view): bodies here, the slots behind them in pages of whoever holds it. Which positions it
// stands for and when it is brought up to date is the holder's to say.
//
//   positions   [0, tokens())                         [tokens(), ...)
//   slots       | bodies | tail: in the pages         | rows that forwards on the view write behind it
//
// Threads: engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "cache/body_arena.h"
#include "cache/compressor.h"
#include "engine/compressed/query_log.h"
#include "engine/slow/block_buffer.h"
#include "kernels/numerics.h"
#include "models/model.h"

namespace invar::engine {

// Where pages lie: of a pool of whole pages of the model (spec().page_bytes).
struct PageRows {
  std::byte* arena = nullptr;
  std::span<const PageId> pages;
  int32_t first = 0;  // Place that the first of them begins with: a whole page's.
};

// A layer of the pages before them, page after page: where it lies, or read into the buffer; from several threads at
// once.
using ReadLayer = std::function<StatusOr<const std::byte*>(size_t layer, BlockBuffer& into)>;

// Why no view can stand for this model's KV; empty where one can.
std::string WhyNoViews(const models::ModelSpec& spec);

class CompressedKv {
 public:
  // Tokens from one Settle to the next: a page of pairs to merge several times over, for a share of upkeep that does
  // not show.
  static constexpr int32_t kUpkeepTokens = kernels::kPageTokens;

  // Requires: `model` and `compressor` outlive this; the model has a backend, and no layer has a window.
  CompressedKv(const models::Model& model, const cache::Compressor& compressor, cache::Budget budget);

  int32_t tokens() const { return tokens_; }
  // Slots behind the body, of the layer with the most of them.
  int32_t tail_slots() const;
  // Of all bodies: pages and log degrees. What only upkeep reads is not counted: marks, and the tail's rows in float.
  int64_t body_bytes() const;

  // The view of positions [0, tokens), whose full KV lies in `full`. Replaces what there was. `log`: their latest
  // queries, for kinds that are shown them; null: nobody saw them.
  void Make(const PageRows& full, int32_t tokens, const QueryLog* log = nullptr);
  // Alike where what lies before `full` is elsewhere. Errors: those of `before`; there is no view then.
  Status MakeBehind(const ReadLayer& before, const PageRows& full, int32_t tokens);
  // Takes one that was made elsewhere, of all attention layers. Requires: each is of `tokens` tokens, all settled, of
  // this model's shape and by this compressor.
  void Adopt(std::vector<cache::CompressedLayer> layers, int32_t tokens);
  // The next `rows` positions become the tail's end: of full KV, or as a forward on this view wrote them into `tail`.
  void TakeFull(const PageRows& full, int32_t rows);
  void TakeTail(const PageRows& tail, int32_t rows);
  // Drops, merges and encodes what the budget of tokens() tokens asks for: the end of a round.
  void Settle(const QueryLog* log = nullptr);
  // Writes the tail's slots from `from_slot` on to where forwards read them: the first places of `tail`.
  void WriteTail(int32_t from_slot, const PageRows& tail) const;
  // The last `rows` of them only. Requires: what stands before them is there.
  void WriteTailEnd(int32_t rows, const PageRows& tail) const;

  // Forgets all.
  void Clear();

  // What a span of the sequence that begins at `first` reads; valid until the next call. Requires: its pages hold the
  // tail and the rows of [tokens(), first).
  std::span<const models::ViewLayer> At(Position first);

 private:
  // Layer by layer: `layer_of` gives the view of one, nullopt where it could not be made.
  template <typename LayerOf>
  bool MakeOf(int32_t tokens, const LayerOf& layer_of);
  template <typename Work>
  void ForEach(size_t count, const Work& work) const;
  template <typename FirstPlace>
  void Take(const PageRows& from, int32_t rows, const FirstPlace& first_place);
  template <typename FromSlot>
  void Write(const PageRows& tail, const FromSlot& from_slot) const;
  template <typename Visit>
  void ForPieces(size_t layer, const PageRows& rows, int64_t first, int64_t end, const Visit& visit) const;
  // Rows of places [first, first + count) of a layer, as floats, [places][kv_heads][dim].
  struct Floats {
    std::vector<float> keys;
    std::vector<float> values;
    kernels::KvRows rows{};
  };
  Floats Read(size_t layer, const PageRows& from, int64_t first, int64_t count) const;
  void ReadInto(size_t layer, const PageRows& from, int64_t first, const kernels::KvRows& into) const;
  cache::CompressContext ContextOf(size_t layer, const Shown& shown,
                                   std::pmr::memory_resource* scratch = std::pmr::new_delete_resource()) const;
  void UpdateDegrees();

  // Set at construction.
  const models::Model& model_;
  const cache::Compressor& compressor_;
  const cache::Budget budget_;
  const kernels::PageShape shape_;

  // Outlives what lies in it.
  std::unique_ptr<cache::BodyArena> bodies_;
  int32_t tokens_ = 0;
  std::vector<cache::CompressedLayer> layers_;
  std::vector<std::pmr::vector<float>> log_degrees_;  // Of each body, [pages][kv_heads][64]; empty: one each.
  std::vector<models::ViewLayer> described_;          // What At gave.
};

}  // namespace invar::engine
