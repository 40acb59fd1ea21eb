// Backend: the operations one forward needs, on one device. The layer stack is written once against this face.
//
// The law (docs/DETERMINISM.md): every output element depends on its own row's inputs only, in one fixed order of sums;
// batch, spans, chunking and threads never enter. Work is split over rows, heads and columns, never over a reduction.
//
// Operations run in the order of their calls, perhaps behind them. Lists that they are given (spans, page tables, ids,
// positions, pieces) are taken before they return; rows, pages, states, weights and bodies of views are not: until Wait
// the host neither changes what they read nor looks at what they write.
//
// Threads: the engine thread calls. Operations fork onto the pool given at creation. Errors: none while running; shapes
// are checked with Check, since only a bug can break them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/worker_pool.h"
#include "kernels/kv_encoding.h"
#include "kernels/kv_view.h"
#include "kernels/machine_limits.h"
#include "kernels/numerics.h"
#include "kernels/tensor.h"

namespace invar::kernels {

class RowChooser;

// Rows [row_begin, row_begin + rows) of the batch belong to one sequence, whose first row has position first_position.
struct KvSpan {
  int32_t row_begin = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  KvView kv;
  // Positions below it hold their k and v in the pages already: QkvPrepare leaves those bytes alone.
  int32_t write_from = 0;
};

// Where the state behind the first `rows` rows of a StateSpan goes, besides the span's own state.
struct EmittedState {
  int32_t rows = 0;  // 1..StateSpan::rows
  float* conv = nullptr;
  float* recurrent = nullptr;
};

// As KvSpan, for one recurrent layer: both states are read and written in place.
struct StateSpan {
  int32_t row_begin = 0;
  int32_t rows = 0;
  float* conv = nullptr;       // [kernel - 1, conv_dim], oldest row first: the last inputs of the convolution.
  float* recurrent = nullptr;  // [heads_v, dim_k, dim_v]
  // Rows strictly ascending. The bits are those a span ending at that row would leave.
  std::span<const EmittedState> emit = {};
};

struct AttentionShape {
  int32_t heads = 0;  // Query heads; head h reads KV head h / (heads / kv_heads).
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // A multiple of 2.
  int32_t window = 0;    // Key j is visible to query i iff i - j < window; 0: all.
  float scale = 0.0F;
};

// QkvPrepare: per-head norm and rope of q and k; q goes to `q_out`, k and v into the pages.
struct QkvArgs {
  AttentionShape shape;
  ConstF32View q;                 // [T, heads * q_head_stride]: head h starts at h * q_head_stride.
  int32_t q_head_stride = 0;      // head_dim, or 2 * head_dim where each head's gate follows its query.
  ConstF32View k;                 // [T, kv_heads * head_dim]
  ConstF32View v;                 // [T, kv_heads * head_dim]
  std::span<const float> q_norm;  // [head_dim] or empty.
  std::span<const float> k_norm;
  float norm_eps = 0.0F;
  ConstF32View cos;  // [T, rotary_dims / 2], scaled by the attention factor; pairs are (i, i + rotary_dims / 2).
  ConstF32View sin;
  std::span<const KvSpan> spans;
  Activations q_out;  // [T, heads * head_dim] in Numerics::kv type.
};

// Attention: softmax(q k^T * scale) v over positions [0, own], optionally times sigmoid(gate).
struct AttentionArgs {
  AttentionShape shape;
  Activations q;  // From QkvPrepare.
  std::span<const KvSpan> spans;
  ConstF32View gate;  // [T, ...]: head h's gate starts at h * gate_head_stride; data null: no gate.
  int32_t gate_head_stride = 0;
  Activations out;  // [T, heads * head_dim]
};

// CausalConv: depthwise over time, then SiLU. out[t, c] = silu(sum_j weight[c, j] x[t - kernel + 1 + j, c]).
struct ConvArgs {
  ConstF32View x;                 // [T, conv_dim]
  std::span<const float> weight;  // [conv_dim, kernel]
  int32_t kernel = 0;
  std::span<const StateSpan> spans;
  F32View out;  // [T, conv_dim]
};

struct DeltaShape {
  int32_t heads_k = 0;
  int32_t heads_v = 0;  // A multiple of heads_k; value head h uses key head h / (heads_v / heads_k).
  int32_t dim_k = 0;
  int32_t dim_v = 0;
};

// DeltaScan: the gated delta rule, one token after another, for prefill, decode, verify and resume alike.
//   q, k <- l2-normalised (1e-6 added to the sum of squares), q *= dim_k^-0.5
//   beta = sigmoid(b);  g = -exp(a_log) * softplus(a + dt_bias)
//   S *= exp(g);  e = beta (v - S^T k);  S += k e^T;  o = S^T q
struct DeltaArgs {
  DeltaShape shape;
  ConstF32View qkv;  // [T, 2 * heads_k * dim_k + heads_v * dim_v] from CausalConv: q heads, k heads, v heads.
  ConstF32View b;    // [T, heads_v]
  ConstF32View a;    // [T, heads_v]
  std::span<const float> a_log;    // [heads_v]
  std::span<const float> dt_bias;  // [heads_v]
  std::span<const StateSpan> spans;
  F32View out;  // [T, heads_v * dim_v]
};

// Experts: out[t] += sum over the top_k experts e of row t, in ascending e, of w_e * down_e(silu(gate_e x) * up_e x).
struct ExpertsArgs {
  Activations x;               // [T, hidden]
  ConstF32View router_logits;  // [T, experts]; softmax over all, ties to the lowest index.
  int32_t top_k = 0;
  bool normalize_top_k = true;            // Divide the chosen weights by their sum.
  std::span<const PackedMatrix> gate_up;  // Per expert [2 * inner, hidden]: gate rows, then up rows.
  std::span<const PackedMatrix> down;     // Per expert [hidden, inner]
  F32View out;                            // [T, hidden]
  // Per expert, or both empty: added to each product after its matrix. Data null: that one has none.
  std::span<const PackedMatrix> gate_up_residual = {};
  std::span<const PackedMatrix> down_residual = {};
};

// Memory for rows, given back where it came from.
using RowMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
// Who touches it: operations alone, or the host as well, behind Wait.
enum class RowUse { kOperations, kHostToo };

// A number of a shape that a backend does not compute with.
struct ShapeLimit {
  std::string_view field;  // As the shape calls it.
  std::string wanted;      // "at most 1024"
  int64_t found = 0;
};

enum class LinearMode { kStore, kAdd };  // out = x W^T (+ bias), or out += it.

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual const Numerics& numerics() const = 0;
  // Instruction set in use: a name of config/isa_names.h; empty where it has no meaning.
  virtual std::string_view isa() const = 0;
  virtual WorkerPool& pool() const = 0;
  // Working memory that this backend holds between operations: it grows to what the largest batch needed. Threads: any.
  virtual int64_t scratch_bytes() const = 0;

  // --- Shapes, at load: what an operation would stop at. Empty: this backend takes it. ---
  virtual std::optional<ShapeLimit> LimitOf(const AttentionShape& shape) const = 0;
  virtual std::optional<ShapeLimit> ConvLimit(int32_t kernel) const = 0;

  // --- Weights, at load ---
  // Type a matrix of `source` type is stored in: bf16 stays; f16 and f32 become bf16, or f32 where activations are f32.
  virtual DType PackedDType(DType source) const = 0;
  virtual int64_t PackedBytes(int64_t rows, int64_t cols, DType packed) const = 0;
  // Packs row-major `source` [rows, cols] into `dest` (PackedBytes, 64-byte aligned). Same bytes on every instruction
  // set.
  virtual PackedMatrix PackMatrix(const void* source, DType source_dtype, int64_t rows, int64_t cols,
                                  void* dest) const = 0;

  // Where operations are to find packed weights and vectors of a model: here, or a copy in the device's memory that
  // lives as long as this backend, and that the host must not read. Errors: RESOURCE_EXHAUSTED.
  virtual StatusOr<std::span<const std::byte>> PlaceWeights(std::span<const std::byte> packed) { return packed; }

  // --- Memory of rows, at load ---
  // Zeroed, 64-byte aligned; this must outlive it. Errors: RESOURCE_EXHAUSTED.
  virtual StatusOr<RowMemory> AllocateRows(int64_t bytes, RowUse use);
  // True: the host cannot touch rows of RowUse::kOperations, and copies what it wants to read.
  virtual bool rows_are_apart() const { return false; }

  // --- Memory of sequences ---
  // One layer's part of a page of 64 positions: kDense, in this type and order (kernels/dense_page.h). A page must be
  // zeroed before first use.
  virtual PageShape KvPageShape(int32_t kv_heads, int32_t head_dim) const = 0;
  int64_t KvPageBytes(const int32_t kv_heads, const int32_t head_dim) const {
    return EncodedPageBytes(KvEncoding::kDense, KvPageShape(kv_heads, head_dim));
  }

  // --- One forward; T = rows of the batch ---
  virtual void Embed(const PackedMatrix& table, std::span<const int32_t> ids, F32View out) = 0;
  // out = x / sqrt(mean(x^2) + eps) * weight; `weight` already holds 1 + w where the family wants it.
  virtual void RmsNorm(ConstF32View x, std::span<const float> weight, float eps, Activations out) = 0;
  // One accumulator chain over cols in one order per output element. `bias` [rows] or empty.
  virtual void Linear(const Activations& x, const PackedMatrix& weight, std::span<const float> bias, LinearMode mode,
                      F32View out) = 0;
  // cos and sin of position * inverse_frequency (in double, rounded once), times `factor`. [T, frequencies]
  virtual void RopeAngles(std::span<const int32_t> positions, std::span<const double> inverse_frequencies,
                          double factor, F32View cos, F32View sin) = 0;
  virtual void QkvPrepare(const QkvArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  virtual void CausalConv(const ConvArgs& args) = 0;
  virtual void DeltaScan(const DeltaArgs& args) = 0;
  // Per head of `weight.size()` columns: out = x / sqrt(mean(x^2) + eps) * weight * silu(z).
  virtual void GatedRmsNorm(ConstF32View x, ConstF32View z, std::span<const float> weight, float eps,
                            Activations out) = 0;
  // gate_up [T, 2 I]: out = silu(gate) * up. [T, I]
  virtual void SwiGlu(ConstF32View gate_up, Activations out) = 0;
  virtual void Experts(const ExpertsArgs& args) = 0;
  // out[t] += sigmoid(gate[t, 0]) * x[t].
  virtual void AddSigmoidScaled(ConstF32View x, ConstF32View gate, F32View out) = 0;
  // out += x.
  virtual void Add(ConstF32View x, F32View out);
  // Between any memory that operations touch. No piece is written that another one reads or writes.
  virtual void Copy(std::span<const CopyPiece> pieces);

  // --- Behind it ---
  // Returns when every operation has run.
  virtual void Wait() {}
  // Chooses tokens from rows of logits where they lie (kernels/row_chooser.h). Null: that is as near to the host, which
  // chooses by RowSampler.
  virtual RowChooser* chooser() const { return nullptr; }

  // --- Measuring ---
  // What the device can do at most; it should have nothing else to do. None: the device is this machine's cores, and
  // kernels/cpu/probe.h measures them. Errors: RESOURCE_EXHAUSTED.
  virtual std::optional<StatusOr<MachineLimits>> MeasureLimits() { return std::nullopt; }
};

struct BackendOptions {
  std::string name = "cpu";          // A name of config/backend_names.h.
  std::string isa = {};              // Empty: the best this machine has. Errors where the machine lacks it.
  DType activations = DType::kBf16;  // kBf16 or kF32; "reference" always computes in f32 or better.
  std::string module_folder = {};    // Where "cuda" looks for its module; empty: the usual places (cuda/module.h).
};

// "auto" is cuda where its module, a driver and a device are, else cpu, and a line in the log that says why.
// Errors: INVALID_ARGUMENT (unknown name, listing the known), FAILED_PRECONDITION (missing instruction set; of "cuda":
// what is missing). Requires: `pool` outlives the backend.
StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options, WorkerPool& pool);

// Instruction sets this machine can run, best first, always ending with "scalar".
std::vector<std::string> SupportedIsas();

}  // namespace invar::kernels
