// Model: turns spans of tokens into rows of logits. It says shapes, never policy: which sequence runs when, which page
// or slot it holds, is told from outside. Real models (layer_stack.h) and the fingerprint model (fingerprint.cc) stand
// behind this one face.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/status.h"
#include "kernels/backend.h"

namespace invar::models {

class Tokenizer;  // text.h

// Where one recurrent layer's state lies inside a slot. Both parts are f32.
struct RecurrentLayerState {
  LayerIndex layer;  // Index in the whole stack.
  int64_t recurrent_offset_bytes = 0;
  int32_t heads_v = 0;  // Recurrent part: [heads_v, dim_k, dim_v].
  int32_t heads_k = 0;  // Value head h goes with key head h / (heads_v / heads_k).
  int32_t dim_k = 0;
  int32_t dim_v = 0;
  int64_t conv_offset_bytes = 0;
  int32_t conv_rows = 0;  // Convolution part: [conv_rows, conv_dim], oldest row first.
  int32_t conv_dim = 0;
  int64_t log_offset_bytes = 0;  // Inside a row of a state log.
  int32_t log_row_floats = 0;    // What one token adds to a state log.
};

// What one decode step of one token must move and multiply at least: for measurements against the machine's limits.
struct StepWork {
  int64_t weight_bytes = 0;                  // Packed weights read (of experts: the chosen ones).
  int64_t matmul_flops = 0;                  // 2 x weights used, head included.
  int64_t head_flops = 0;                    // Of these, the head: only rows with logits pay it.
  int64_t attention_flops_per_position = 0;  // Per KV position read, all layers.
  int64_t kv_bytes_per_position = 0;         // KV read per position of context, all layers.
};

// One attention layer's KV, for whoever reads or makes rows outside a forward. All layers have the same shape.
struct AttentionLayers {
  kernels::AttentionShape shape;            // Of all; `window` of the layer with the narrowest, 0: all see everything.
  std::vector<int64_t> page_offsets_bytes;  // Of each attention layer inside a page.
  std::vector<LayerIndex> layers = {};      // Of each: its index in the whole stack.
  std::vector<double> inverse_frequencies;  // Rope turns dims (i, i + size) of queries and keys by position * [i].
  double rope_factor = 1.0;                 // And stretches the turned dims by this.
};

// Matrix products of one token in one layer.
struct LayerFlops {
  int64_t all = 0;
  int64_t input = 0;  // Of its mixer's input projection, all that a layer needs to leave its KV or state.
};

// The multi-token head (Model::Guess).
struct MtpSpec {
  std::string why_not = "the model has no multi-token head";  // Why it does not guess; empty: it does.
  int32_t rows_max = 0;                                       // Of one call.

  bool served() const { return why_not.empty(); }
};

// What the engine must know to provide memory and to describe the model.
struct ModelSpec {
  std::string architecture;  // config.json's model_type, "qwen3_5_text"
  std::string fingerprint;   // Hex SHA-256 of the weights and the configuration.
  std::string numerics_id;
  int32_t vocabulary_size = 0;  // Columns of a logits row (padding rows of the embedding included).
  int32_t max_sequence_tokens = 0;
  int32_t hidden = 0;  // Columns of the residual stream; 0 for the fingerprint model.
  int32_t attention_layers = 0;
  int32_t recurrent_layers = 0;
  int64_t page_bytes = 0;   // One page of kernels::kPageTokens positions, all attention layers and the head's.
  int64_t state_bytes = 0;  // Recurrent + convolution state of one sequence, all layers; 0 for dense models.
  std::vector<RecurrentLayerState> recurrent_states;  // Empty for dense models and the fingerprint model.
  AttentionLayers attention;  // Without layers for the fingerprint model; without the multi-token head's.
  // What a state log takes before its rows and for each of them: multiples of kStateLogAlignment; both 0 for
  // dense models.
  int64_t state_log_head_bytes = 0;
  int64_t state_log_row_bytes = 0;
  MtpSpec mtp;
  StepWork work;
  std::vector<LayerFlops> layer_flops;  // Of each layer of the stack; empty for the fingerprint model.

  // Of a state log of so many rows; where the row behind them begins.
  int64_t StateLogBytes(const int64_t rows) const { return state_log_head_bytes + rows * state_log_row_bytes; }

  // What two processes must agree in to use each other's pages and states.
  std::string cache_identity() const { return fingerprint + " " + numerics_id + (mtp.served() ? " mtp" : ""); }
};

// Memory of all live sequences, allocated by the engine. Page p lies at pages + p * spec.page_bytes, slot s likewise.
struct SequenceMemory {
  std::byte* pages = nullptr;
  std::byte* states = nullptr;
};

// The recurrent and convolution state after the sequence's first `after` tokens also goes to slot `to`.
struct StateCopy {
  Position after;
  SlotId to;
};

// One attention layer of a compressed view (kernels/kv_view.h): so many slots stand for the positions before the span.
struct ViewLayer {
  kernels::KvBody body;
  int32_t slots = 0;  // At least those of the body; those behind it lie in the span's pages.
};

// Told of the rotated queries of a span, layer after layer, while it runs. Threads: the one that calls Forward.
class QueryObserver {
 public:
  virtual ~QueryObserver() = default;
  // `queries` [rows of the span, heads * head_dim] in Numerics::kv type, of the `layer`-th attention layer; valid
  // during the call. The span's own keys and values are in its pages.
  virtual void Queries(int32_t layer, const kernels::Activations& queries) = 0;
};

// Full KV of a sequence's first whole pages that lies elsewhere than in its pages, layer by layer. Whoever brings it
// may still be at it while the forward runs. Threads: the one that calls Forward.
class KvSource {
 public:
  virtual ~KvSource() = default;
  // Those pages of the `layer`-th attention layer, side by side, as kernels::KvEncoding::kDense has them; waits until
  // they are there. Asked for each layer once, in their order; valid until the next call.
  virtual const std::byte* Layer(int32_t layer) = 0;
};

// Told of what the layers of a span read while it runs: for whoever fits another model to this one, or sends layers on
// before the last has run. The fingerprint model, which has no layers, tells nothing. Views are valid during the call.
// Threads: the one that calls Forward.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // What enters `layer` of the stack: the residual stream and its norm, which the mixer reads. [rows of the span,
  // hidden], the norm in Numerics::activations type. Layers come in the order of the stack, and what those before this
  // one leave is final by then: the span's KV in their part of its pages, and their part of `state` (but for a span
  // with a `state_log`), have the bytes that Forward leaves. The multi-token head's own come behind the last layer.
  virtual void Inputs(int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) = 0;
  // What the recurrence of `layer` reads, behind its convolution: q heads, k heads, v heads.
  virtual void Scanned(int32_t layer, const kernels::ConstF32View& qkv) = 0;
};

// `tokens` at positions [first, first + tokens.size()) of one sequence.
// Requires: KV of [0, max(first, kv_from)) lies in `pages` (but for `view` and `away`), whose entries cover the span's
// last position; `state` holds the state after first tokens (all zero bytes when first is 0).
struct ForwardSpan {
  std::span<const TokenId> tokens;
  Position first;
  std::span<const PageId> pages;
  SlotId state;             // Unused by dense models.
  int32_t logits_rows = 0;  // Logits wanted of the last `logits_rows` tokens of the span.
  // States to keep of positions the span passes: all bytes of the slot become those that a forward ending there would
  // have left in `state`, without a cut. Ascending, first < after <= first + tokens.size(); no slot of another span or
  // checkpoint. Unused by dense models.
  std::span<const StateCopy> checkpoints = {};
  // Positions below have their KV in the pages, perhaps shared with other sequences: it is read and never written.
  // Lets a span run again only to rebuild the state. At most first + tokens.size(); 0 (or first): all rows are written.
  Position kv_from = {};
  // Given, an entry an attention layer: attention reads these and the slots behind them instead of the full KV, and the
  // span's rows become the next slots of each. `pages` then hold the slots behind the bodies: entry i those of
  // [64 (body.pages + i), ...). Requires: no layer has a window; kv_from is 0.
  std::span<const ViewLayer> view = {};
  // Given: KV of the sequence's first `away_pages` pages comes from here, all before `first`, and `pages` begin behind
  // them. The bits are those of KV in pages. Requires: no layer has a window; no view.
  KvSource* away = nullptr;
  int32_t away_pages = 0;
  QueryObserver* observer = nullptr;
  LayerObserver* layer_observer = nullptr;
  // Where given, the span's tokens are not certain yet: `state` is left as it was, and what takes it over the first n
  // of them is written here for Advance. Room for the span's rows, at kStateLogAlignment; no checkpoints then. Unused
  // by dense models.
  std::span<std::byte> state_log = {};
};

// `state` goes over the first `rows` rows of `log`, which a forward of a span from this very state has written.
struct StateAdvance {
  SlotId state;
  Position first;  // The span's.
  std::span<const std::byte> log;
  int32_t rows = 0;                             // 1..rows of the span
  std::span<const StateCopy> checkpoints = {};  // As of a ForwardSpan whose tokens are these rows.
};

// Layers [begin, end) of the stack over one span, from what enters the first of them. The last only leaves its KV or
// state: what it would add to the residual stream is not computed. At most one of the two views is given; none: from
// the span's tokens. Requires: begin < end; begin is 0 without a view.
struct StackPart {
  int32_t begin = 0;
  int32_t end = 0;
  kernels::ConstF32View residual = {};  // [rows, hidden], as a LayerObserver is told.
  kernels::ConstF32View inputs = {};    // [rows, hidden], the norm of it. Requires: end == begin + 1.
};

constexpr int64_t kStateLogAlignment = 64;  // Cache line, and the widest vector load.

// A token whose successor the multi-token head is to guess. Its hidden row, what the model knew before the token, is
// that of `state`, or comes from the head itself: the output of a row of the call before. Requires: KV of [0, position)
// lies in `pages`, by forwards and by guesses since the last one; entries cover `position`.
struct GuessRow {
  TokenId token;
  Position position;  // Of the token; at least 1.
  std::span<const PageId> pages;
  SlotId state;           // After `position` tokens. Unused with `from_row`.
  int32_t from_row = -1;  // Of the previous Guess, with no Forward in between; -1: none.
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;

  // Runs all spans in one forward. Effects: writes KV, states and checkpoints of the spans. Gives the wanted logits,
  // span after span, row after row, valid until the next call: [sum of logits_rows, vocabulary_size]. Requires: total
  // tokens <= the limit given at load. Threads: engine thread only.
  virtual kernels::ConstF32View Forward(const SequenceMemory& memory, std::span<const ForwardSpan> spans) = 0;

  // As Forward, for logits that the backend's chooser reads: it may still run when this returns, what it writes can be
  // read behind the backend's Wait, and the host does not read the logits.
  virtual kernels::ConstF32View StartForward(const SequenceMemory& memory, std::span<const ForwardSpan> spans) {
    return Forward(memory, spans);
  }

  // Part of a forward of one span, without logits: makes the KV and states of single layers from what another model
  // knew of the tokens. Effects: those of Forward on the layers of `part`. Requires: as Forward; no view, no log, no
  // checkpoints; not the fingerprint model. Threads: engine thread only.
  virtual void ForwardPart(const SequenceMemory& /*memory*/, const ForwardSpan& /*span*/, const StackPart& /*part*/) {
    Check(false, "only a stack of layers runs in parts");
  }

  // The multi-token head: logits for the token behind each row's, [rows, vocabulary_size], valid until the next call.
  // Effects: writes the head's KV at the rows' positions, which forwards over these positions write again. Requires:
  // spec().mtp.served(); rows of one call are of different sequences, at most spec().mtp.rows_max. Threads: engine
  // thread only.
  virtual kernels::ConstF32View Guess(const SequenceMemory& /*memory*/, std::span<const GuessRow> /*rows*/) {
    Check(false, "only a model with a multi-token head guesses", spec().mtp.why_not);
    return {};
  }

  // Reads and makes rows of KV in pages; null for the fingerprint model.
  virtual kernels::Backend* backend() const { return nullptr; }

  // Takes states over rows that turned out right. Effects: states and checkpoints, with the bits of a forward of these
  // rows alone; logs stay as they are. Nothing to do for dense models. Requires: total rows <= the limit given at load;
  // slots of no two entries are the same. Threads: engine thread only.
  virtual void Advance(const SequenceMemory& memory, std::span<const StateAdvance> advances) = 0;
};

struct ModelOptions {
  std::string folder;              // Hugging Face layout.
  int32_t max_batch_tokens = 512;  // Most rows of one forward: sizes the scratch memory.
  int32_t max_logits_rows = 64;
  bool mtp_head = true;      // Serve the multi-token head, if there is one: its layer's KV lies in the pages then.
  bool pack_to_file = true;  // Packed weights as a mapped file beside the model; false, or read-only folder: memory.
  // Called while weights are packed, from the loading thread, with bytes done and to do. May be empty.
  std::function<void(int64_t done, int64_t total)> progress;
  // Called on a thread of the model's own where its packed file, which is checked to its end while it already serves,
  // turns out to be damaged: DATA_LOSS, logged before. May be empty.
  std::function<void(const Status&)> damaged;
};

// Loads by config.json's model_type (registry.cc). Errors: within a second, naming file, key, wanted and found:
// NOT_FOUND, INVALID_ARGUMENT (config), DATA_LOSS (weights file lies). Requires: `backend` outlives the model.
StatusOr<std::unique_ptr<Model>> MakeModel(const ModelOptions& options, kernels::Backend& backend);

// generation_config.json merged with the stop tokens of config.json and tokenizer_config.json.
struct GenerationDefaults {
  bool do_sample = false;
  float temperature = 1.0F;
  float top_p = 1.0F;
  int32_t top_k = 0;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  std::vector<TokenId> eos;  // Ascending, without repeats.
};
// Missing file: defaults. `tokenizer` knows the id of a stop token that tokenizer_config.json only spells; null: such
// tokens are left out. Errors: INVALID_ARGUMENT naming file and key; RESOURCE_EXHAUSTED (a file beyond 16 MiB).
StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& folder, const Tokenizer* tokenizer);

// The test model of hashes (fingerprint.cc). KV entry = hash(layer, position, token, previous entry); state = rolling
// hash of all tokens; logits = a function of everything read. A stale page, a wrong state or a mix-up of rows changes
// the output at once, at about a microsecond a token.
struct FingerprintOptions {
  int32_t vocabulary_size = 64;
  int32_t attention_layers = 2;
  int32_t recurrent_layers = 2;  // 0: like a dense model.
  // More bytes of a state, all zero: makes states large beside pages, as those of real models are.
  int32_t state_padding_bytes = 0;
  int32_t max_sequence_tokens = 4096;
  int32_t max_logits_rows = 256;
};
std::unique_ptr<Model> MakeFingerprintModel(const FingerprintOptions& options);
// The oracle: the logits row after `tokens`, computed from the list alone.
std::vector<float> FingerprintLogits(const FingerprintOptions& options, std::span<const TokenId> tokens);

}  // namespace invar::models
