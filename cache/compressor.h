// Compressor: a lossy copy of one attention layer's KV that is cheaper to keep and to read. Used as the draft's view of
// lossless speculation, where the full KV verifies, and as a serving mode that says so.
//
// A compressor is a pure function of the rows, the observation, the budget and its settings: the same bytes on every
// run, for any number of threads and whatever else is computed. It sees rows as they lie in KV pages (keys after rope),
// all of one layer, tokens 0 .. n - 1. The three families:
//   select    keeps some rows, exactly (noop, random_drop, streaming, snapkv, h2o, tova, expected_attention, kvzip)
//   quantise  keeps all rows in fewer bits (int8, k8v4, kivi4, kivi2); budgets do not apply
//   merge     keeps means of rows with the number of tokens they stand for (centroid)
// Select and merge may also quantise what they keep (setting `encoding`).
// A new kind is one file in cache/compress and one line in its registry.cc; the conformance suite picks it up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "base/worker_pool.h"
#include "cache/compressed_layer.h"

namespace invar::cache {

class SettledSlots;

enum class CompressorFamily { kSelect, kQuantise, kMerge };

// What a compressor is and what it must be shown.
struct CompressorTraits {
  CompressorFamily family = CompressorFamily::kSelect;
  bool query_agnostic = true;      // The view depends on keys and values alone: one for all who share the prefix.
  bool keeps_all_tokens = false;   // Budgets do not apply.
  int32_t observation_window = 0;  // Queries of this many last tokens (Observation::queries); fewer are taken too.
  int32_t spread_queries = 0;      // At most so many of all tokens' (Observation::spread_queries).
  bool second_pass = false;        // Observation::second_pass
  bool query_moments = false;      // Observation::query_mean and query_covariance
  int32_t sinks = 0;               // First tokens that are kept as they are.
  int32_t recent = 0;              // Last tokens that are kept as they are, in the tail.
  // Of the body; none: the one that loses least of those that keep every token within the budget, else kivi4.
  std::optional<kernels::KvEncoding> encoding = kernels::KvEncoding::kDense;
};

// What attention saw. Only what the traits ask for is read. Where it is empty, Prefill goes by recency and Maintain
// drops nothing (and counts what it missed).
struct Observation {
  int32_t query_heads = 0;  // A multiple of kv_heads; head q reads KV head q / (query_heads / kv_heads).
  float scale = 0.0F;       // Of logits; 0: 1 / sqrt(head_dim).

  // Queries after rope of the last `window` tokens before the verified length: [query_heads][window][dim].
  std::span<const float> queries{};
  int32_t window = 0;

  // Queries after rope of tokens 0, stride, 2 stride and so on, all that are verified: [query_heads][of them][dim].
  std::span<const float> spread_queries{};
  int64_t spread_stride = 1;

  // Largest attention that each position received while the context was repeated (KVzip): [kv_heads][verified tokens].
  std::span<const float> second_pass{};

  // Mean [query_heads][dim] and covariance [query_heads][dim][dim] of queries still to come, after rope
  // (cache/expected_queries.h makes them from queries seen).
  std::span<const float> query_mean{};
  std::span<const float> query_covariance{};
};

// How far `queries` queries at most, spread over `tokens` tokens, stand apart: the smallest power of two that does. So
// what was kept of a shorter text has all that is wanted of a longer one.
int64_t SpreadStride(int64_t tokens, int64_t queries);

// What a view takes, of all heads of a layer.
struct ViewBytes {
  int64_t full_row = 0;  // A token's keys and values in the full KV.
  int64_t tail_row = 0;  // A slot of the tail.
  int64_t page = 0;      // A page of the body.
};

// How much a view may keep: slots of a KV head, all included, or a share of the bytes of the full KV, so that a body in
// fewer bits has more slots. Sinks, recent and provisional rows are kept in any case.
class Budget {
 public:
  static Budget Slots(int64_t slots) { return Budget(slots, 0.0); }
  static Budget Share(double share);
  // Of a wish that leaves it open for kinds that keep all tokens.
  static Budget ShareOrAll(const std::optional<float>& share) { return Share(share.value_or(1.0F)); }
  // Slots that `tokens` tokens may have, at most `tokens`, where `tail` of them are rows behind the body's whole pages.
  int64_t Of(int64_t tokens, const ViewBytes& bytes, int64_t tail) const;
  // Whether pages that take so much have room for all tokens, the few in the tail aside.
  bool HasPagesForAll(const ViewBytes& bytes) const;

 private:
  Budget(const int64_t slots, const double share) : slots_(slots), share_(share) {}
  int64_t slots_;  // Below 0: by the share.
  double share_;   // Of 0 .. 1.
};

// One call for one layer. `layer` keys noise. `workers` may split the work; `bodies` and `scratch` say where the body
// lies and where a float copy of the rows does while a view is made: none of the three changes bits.
struct CompressContext {
  LayerIndex layer{};
  Observation observation{};
  Budget budget = Budget::Share(1.0);
  WorkerPool* workers = nullptr;
  std::pmr::memory_resource* bodies = std::pmr::new_delete_resource();
  std::pmr::memory_resource* scratch = std::pmr::new_delete_resource();
};

// Writes the rows of tokens [first, first + into.slots) of a layer. Called in order of tokens, each once.
using RowsReader = std::function<void(int64_t first, const kernels::KvRows& into)>;

class Compressor {
 public:
  Compressor(CompressorTraits traits, std::string provenance);
  virtual ~Compressor() = default;

  const CompressorTraits& traits() const { return traits_; }
  // Name and all settings, canonical: "streaming:sinks=4,recent=64,encoding=dense". What Scope::provenance carries.
  const std::string& provenance() const { return provenance_; }

  // The view of tokens [0, tokens), all of them settled. No tokens: an empty view.
  // Memory: up to one float copy of the rows while it runs. Threads: any. Errors: none; any floats are taken.
  CompressedLayer Prefill(const kernels::PageShape& shape, int64_t tokens, const RowsReader& read,
                          const CompressContext& context) const;
  CompressedLayer Prefill(const kernels::PageShape& shape, const kernels::ConstKvRows& rows,
                          const CompressContext& context) const;

  // Whether the observation has all that the traits ask for.
  bool IsShownEnough(const Observation& observation) const;

  // Of the body of a layer's view of `tokens` tokens, log degrees aside, where the budget is met.
  int64_t BodyBytes(const kernels::PageShape& shape, int64_t tokens, const Budget& budget) const;

  // Settles tokens [0, verified): drops, merges or encodes what the budget of `verified` tokens asks for. At round
  // boundaries only, after Truncate and ReplaceTail; rows of later tokens stay as they are. Bytes never grow.
  // Requires: view.provenance() == provenance(), view.settled() <= verified <= view.tokens().
  void Maintain(CompressedLayer& view, int64_t verified, const CompressContext& context) const;

 protected:
  // Brings the slots of settled tokens down to `target` each head, those before `slots` included, if it can. Sinks and
  // the last traits().recent tokens are the kind's own to keep.
  virtual void Reduce(SettledSlots& slots, int64_t target, const CompressContext& context) const;

  // Whether upkeep may ask for the newest slots alone first: then Reduce is called for them (slots.before() > 0), and
  // for more only where it could not reach the target in good quality. So upkeep does not cost more the longer the text
  // is.
  virtual bool ReducesNewestFirst() const { return false; }

 private:
  kernels::KvEncoding EncodingFor(const kernels::PageShape& shape, const Budget& budget) const;
  // Slots of a head that the settled `tokens` tokens may have, of `slots` that they have.
  int64_t Target(const kernels::PageShape& shape, kernels::KvEncoding encoding, int64_t slots, int64_t tokens,
                 const Budget& budget) const;

  const CompressorTraits traits_;
  const std::string provenance_;
};

// From "name" or "name:key=value,...". Errors: INVALID_ARGUMENT that names the kind or key and says the choices.
StatusOr<std::unique_ptr<Compressor>> MakeCompressor(std::string_view text);

// All kinds, `noop` first.
std::span<const std::string_view> CompressorNames();
// Lines "key = default: what it does" of a kind, for help texts; empty for an unknown name.
std::string CompressorHelp(std::string_view name);

}  // namespace invar::cache
