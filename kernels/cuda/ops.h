// The operations of kernels/backend.h as launches on a stream: plain numbers, and pointers to memory that the device
// reads. One file an operation, which says its formula, layouts and orders of sums; a launcher picks grid and block
// from the shape alone. A launch returns before its kernel has run; kernels of a stream run in order.
//
// The law: an output element depends on its own row only, and each sum has one order. Rows of a batch, cuts into spans
// and tiles never enter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_encoding.h"
#include "kernels/row_chooser.h"
#include "kernels/tensor.h"

namespace invar::kernels::cuda {

using Stream = void*;  // cudaStream_t.

// As kernels::KvSpan, with what encodings mean.
struct DeviceKvSpan {
  int32_t row_begin = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  int32_t write_from = 0;
  std::byte* arena = nullptr;
  int64_t page_stride_bytes = 0;
  int64_t layer_offset_bytes = 0;
  const int32_t* pages = nullptr;
  const std::byte* body = nullptr;
  int32_t body_pages = 0;
  int64_t body_page_bytes = 0;
  const float* log_degrees = nullptr;
  EncodedHeadLayout layout = {};
  EncodedCodes codes = {};  // 0 bits: rows.
};

struct DeviceEmit {
  int32_t rows = 0;
  float* conv = nullptr;
  float* recurrent = nullptr;
};

// As kernels::StateSpan; its emits are `emits` [emit_begin, emit_end).
struct DeviceStateSpan {
  int32_t row_begin = 0;
  int32_t rows = 0;
  float* conv = nullptr;
  float* recurrent = nullptr;
  int32_t emit_begin = 0;
  int32_t emit_end = 0;
};

// --- Rows by themselves ---
struct EmbedArgs {
  const void* table = nullptr;  // Packed (product.h).
  DType dtype = DType::kBf16;
  int64_t cols = 0;
  const int32_t* ids = nullptr;
  F32View out;
};
void Embed(const EmbedArgs& args, Stream stream);

struct NormArgs {
  ConstF32View x;
  ConstF32View z;                 // GatedRmsNorm only.
  const float* weight = nullptr;  // [x.cols], or [dim]
  int64_t dim = 0;                // GatedRmsNorm: of a head.
  float eps = 0.0F;
  Activations out;
};
void RmsNorm(const NormArgs& args, Stream stream);
void GatedRmsNorm(const NormArgs& args, Stream stream);

void SwiGlu(const ConstF32View& gate_up, const Activations& out, Stream stream);
void AddSigmoidScaled(const ConstF32View& x, const ConstF32View& gate, const F32View& out, Stream stream);

void Add(const ConstF32View& x, const F32View& out, Stream stream);

struct CopyLaunch {
  const CopyPiece* pieces = nullptr;
  int64_t count = 0;
  int64_t longest = 0;  // Bytes of the longest.
};
void Copy(const CopyLaunch& args, Stream stream);

struct RopeAnglesArgs {
  const int32_t* positions = nullptr;
  const double* inverse_frequencies = nullptr;
  double factor = 1.0;
  F32View cos;
  F32View sin;
};
void RopeAngles(const RopeAnglesArgs& args, Stream stream);

// --- Products ---
struct ProductArgs {
  Activations x;
  PackedMatrix weight;
  const float* bias = nullptr;
  bool add = false;
  F32View out;
};
void Linear(const ProductArgs& args, Stream stream);
// Of a matrix as this backend packs it: row-major, each row `PackedStride` elements, the last ones zero.
constexpr int64_t kPackedUnit = 32;
constexpr int64_t PackedStride(const int64_t cols) { return (cols + kPackedUnit - 1) / kPackedUnit * kPackedUnit; }

// One expert's matrices; data null: none.
struct DeviceExpert {
  const void* matrix = nullptr;
  const void* residual = nullptr;
};
// Memory that Experts works in, in the device's memory.
struct ExpertsScratch {
  int32_t* chosen = nullptr;      // [tokens, top_k] experts, ascending.
  float* weights = nullptr;       // [tokens, top_k]
  int32_t* slots = nullptr;       // [tokens, top_k] place among all choices, grouped by expert.
  int32_t* slot_rows = nullptr;   // [tokens * top_k] row of a slot.
  int32_t* first_slot = nullptr;  // [experts + 1]
  float* gate_up = nullptr;       // [tokens * top_k, 2 * inner]
  void* inner = nullptr;          // [tokens * top_k, inner] activations
  float* down = nullptr;          // [tokens * top_k, hidden]
};
struct ExpertsLaunch {
  Activations x;
  ConstF32View router_logits;
  int32_t top_k = 0;
  bool normalize_top_k = true;
  int64_t inner = 0;
  const DeviceExpert* gate_up = nullptr;  // [experts]
  const DeviceExpert* down = nullptr;
  DType dtype = DType::kBf16;           // Of the matrices.
  DType residual_dtype = DType::kBf16;  // Of the residuals.
  bool has_residuals = false;
  F32View out;
  ExpertsScratch scratch;
};
void Experts(const ExpertsLaunch& args, Stream stream);

// --- Attention ---
struct AttentionShapeArgs {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;
  float scale = 0.0F;
};
inline constexpr int32_t kMaxHeadDim = 256;

struct QkvLaunch {
  AttentionShapeArgs shape;
  ConstF32View q;
  int32_t q_head_stride = 0;
  ConstF32View k;
  ConstF32View v;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps = 0.0F;
  ConstF32View cos;
  ConstF32View sin;
  const DeviceKvSpan* spans = nullptr;
  const int32_t* row_spans = nullptr;  // [rows] the span of a row; -1: none, nothing is done.
  DType kv = DType::kBf16;
  Activations q_out;
};
void QkvPrepare(const QkvLaunch& args, Stream stream);

// Query rows of a span and KV head are numbered token * group + head of the group; a tile is kAttentionTileRows of
// them.
inline constexpr int32_t kAttentionTileRows = 16;
struct AttentionTile {
  int32_t span = 0;
  int32_t kv_head = 0;
  int32_t first_row = 0;
  int32_t first_superblock = 0;
  int32_t superblocks = 0;
  int32_t partial = -1;  // Place of its superblocks' partials, one after another; -1: not split.
};
// One block's work: all superblocks of a tile that is not split, or one of one that is.
struct AttentionTask {
  int32_t tile = 0;
  int32_t superblock = 0;  // Counted from the tile's first.
};
struct AttentionLaunch {
  AttentionShapeArgs shape;
  DType kv = DType::kBf16;
  Activations q;
  const DeviceKvSpan* spans = nullptr;
  const AttentionTile* tiles = nullptr;
  const AttentionTask* tasks = nullptr;
  int64_t task_count = 0;
  const int32_t* split_tiles = nullptr;  // Tiles whose partials are to be merged.
  int64_t split_count = 0;
  float* partials = nullptr;  // PartialFloats(head_dim) each.
  ConstF32View gate;
  int32_t gate_head_stride = 0;
  Activations out;
};
// Of the rows of a tile: values, largest and total.
constexpr int64_t PartialFloats(const int64_t head_dim) { return kAttentionTileRows * (head_dim + 2); }
void Attention(const AttentionLaunch& args, Stream stream);

// --- Recurrence ---
inline constexpr int32_t kMaxConvKernel = 8;
struct ConvLaunch {
  ConstF32View x;
  const float* weight = nullptr;
  int32_t kernel = 0;
  const DeviceStateSpan* spans = nullptr;
  int64_t span_count = 0;
  const DeviceEmit* emits = nullptr;
  const int32_t* row_spans = nullptr;
  F32View out;
};
void CausalConv(const ConvLaunch& args, Stream stream);

inline constexpr int32_t kMaxDeltaDimK = 256;
struct DeltaScratch {
  float* q = nullptr;  // [T, heads_k, dim_k]
  float* k = nullptr;
  float* qk = nullptr;    // [T, heads_k]
  float* beta = nullptr;  // [T, heads_v]
  float* decay = nullptr;
};
struct DeltaLaunch {
  int32_t heads_k = 0;
  int32_t heads_v = 0;
  int32_t dim_k = 0;
  int32_t dim_v = 0;
  ConstF32View qkv;
  ConstF32View b;
  ConstF32View a;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const DeviceStateSpan* spans = nullptr;
  int64_t span_count = 0;
  const DeviceEmit* emits = nullptr;
  F32View out;
  DeltaScratch scratch;
};
void DeltaScan(const DeltaLaunch& args, Stream stream);

// --- Choosing tokens ---
// As kernels::RowChoice, with memory to work in.
struct DeviceRowChoice {
  const float* logits = nullptr;
  const PenalisedToken* penalised = nullptr;
  int32_t penalised_count = 0;
  float repetition = 1.0F;
  float frequency = 0.0F;
  float presence = 0.0F;
  const BiasedToken* biased = nullptr;
  int32_t biased_count = 0;
  const int32_t* allowed = nullptr;
  int32_t allowed_count = 0;
  const int32_t* masked = nullptr;
  int32_t masked_count = 0;
  SampleSettings settings = {};
  NoiseKey key = {};
  bool scores = false;
  int32_t alternatives = 0;
  ScoredToken* top = nullptr;  // [alternatives]

  float* row = nullptr;       // [usable_ids + allowed_count]
  uint64_t* list = nullptr;   // [a power of two >= cols], where something is sorted: top_k, top_p, alternatives.
  float* partials = nullptr;  // [cols / kExpSumBlock, rounded up], where something is summed: top_p, scores.
};
inline constexpr int64_t kExpSumBlock = 1024;

// As kernels::ChosenRow.
struct DeviceChosenRow {
  int32_t finite = 1;
  int32_t token = -1;
  float logit = 0.0F;
  float log_sum = 0.0F;
  int32_t top_count = 0;
};
struct ChooseLaunch {
  int64_t cols = 0;
  int64_t usable_ids = 0;
  const DeviceRowChoice* choices = nullptr;
  int64_t count = 0;
  bool scores = false;                // Some row wants them.
  DeviceChosenRow* chosen = nullptr;  // [count]
};
void ChooseRows(const ChooseLaunch& args, Stream stream);

}  // namespace invar::kernels::cuda
