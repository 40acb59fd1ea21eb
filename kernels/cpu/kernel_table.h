// The functions each instruction set provides, and their arguments: plain structs of pointers and numbers.
// Nothing here is an inline function: one shared between files built for different machines would be linked once,
// perhaps in the copy built for the newer machine. All functions require denormals flushed (WorkerPool) and allocate
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/philox.h"  // For the vector code, which includes nothing by itself.

namespace invar::kernels::cpu {

// Values one maximum of block_maxima covers: a thousand maxima for a large vocabulary.
inline constexpr int kMaximaBlock = 256;

// How activations meet weights in a product.
enum class Product : uint8_t {
  kBf16,   // bf16 pairs x bf16 pairs
  kWiden,  // f32 x bf16 pairs, in the same order of sums
  kF32,    // f32 x f32
};

inline constexpr int kPanelColumns = 64;  // Outputs in one packed panel.
inline constexpr int kBlockRows = 258;    // Rows one call handles at most: 43 tiles of 6.

// out[r, c] (+)= sum_k a[r, k] panel[k, c] (+ bias[c]) for one panel.
struct PanelProduct {
  Product product = Product::kBf16;
  const void* a = nullptr;      // [rows, k rounded up to 2]: bf16 or, where KernelTable::expands, f32.
  int64_t a_stride = 0;         // Elements.
  int64_t rows = 0;             // 1..kBlockRows
  const void* panel = nullptr;  // bf16 [k / 2][64][2], or f32 [k][64].
  int64_t k = 0;
  int64_t columns = 0;          // Valid outputs, 1..64.
  const float* bias = nullptr;  // [columns] or null.
  bool add = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct QkvRow {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t q_head_stride = 0;
  const float* q_norm = nullptr;  // Or null.
  const float* k_norm = nullptr;
  float eps = 0.0F;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t half = 0;  // rotary dims / 2
  bool bf16 = true;  // Type of q_out and page.
  void* q_out = nullptr;
  std::byte* page =
      nullptr;        // This layer's part of the page (layout in attention_inl.h); null: k and v stay unwritten.
  int64_t place = 0;  // Position in the page.
};

// One KV head of one encoded page: its block and how to read it (kernels/kv_encoding.h). Offsets in bytes.
struct EncodedHeadBlock {
  const std::byte* block = nullptr;
  int key_bits = 0;
  int value_bits = 0;
  int64_t key_ranges = 0;
  int64_t value_codes = 0;
  int64_t value_ranges = 0;
  int64_t bytes = 0;
};

// Encoded blocks that are gone over together, so that one's chains of sums run beside another's, and rows of a pass.
inline constexpr int kCodedBlocksMax = 4;
inline constexpr int kCodedRowsMax = 4;

// Scratch of one of them, of the rows of a pass (attend_codes_inl.h). `groups`: of 32 dims.
struct CodedBlockScratch {
  float* scores = nullptr;              // [4 rows][64]
  float* weights = nullptr;             // [4 rows][64]
  std::byte* query_numbers = nullptr;   // [2][4 rows][dims]; of keys of 8 bits none.
  std::byte* weight_numbers = nullptr;  // [groups][4 rows][64]; of values of 8 bits [4 rows][2 * 64].
  float* key_scales = nullptr;          // [64], of 8 bits.
  float* value_scales = nullptr;        // [64], of 8 bits.
  float* value_units = nullptr;         // [groups][16]; of 8 bits [1].
  float* value_dots = nullptr;          // [groups][16]
};

// Of a tile.
struct CodedScratch {
  int64_t dims = 0;                    // head_dim rounded up to 64.
  float* queries = nullptr;            // [rows][dims]
  float* units = nullptr;              // [rows]; these three of keys of 8 bits.
  int32_t* offsets = nullptr;          // [rows]
  std::byte* query_numbers = nullptr;  // [rows][2 dims]
  int blocks = 1;                      // How many are gone over together.
  CodedBlockScratch block[kCodedBlocksMax] = {};
};

// The first blocks of a compressed view, of one KV head; `pages` 0: all blocks are rows of pages.
struct AttentionBody {
  int64_t pages = 0;
  int64_t page_stride = 0;
  EncodedHeadBlock head = {};          // Of the first page; key_bits 0: in the layout of pages.
  const float* log_degrees = nullptr;  // [pages][log_stride], 64 each; null: all 0.
  int64_t log_stride = 0;
  CodedScratch coded = {};  // Where key_bits is not 0.
};

// Query rows of one tile: token-major, `group` heads of one KV head a token.
struct AttentionTile {
  bool bf16 = true;
  const void* q = nullptr;  // Packed copy [rows, head_dim] in product form (KernelTable::copy_row).
  int64_t tokens = 0;
  int64_t group = 0;
  int64_t first_position = 0;  // Of the tile's first token.
  int64_t head_dim = 0;
  int64_t window = 0;
  float scale = 0.0F;
  const std::byte* arena = nullptr;
  const int32_t* pages = nullptr;  // Of the blocks behind the body's.
  int64_t page_stride = 0;
  int64_t offset = 0;           // Of this layer and KV head inside a page.
  float* scores = nullptr;      // [rows, 64] scratch.
  float* weights = nullptr;     // [rows, 64] scratch (bf16 or f32).
  float* correction = nullptr;  // [rows] scratch.
  int64_t likely_next = 0;      // The superblock that the thread is likely to go on with: brought closer, never read.
  AttentionBody body = {};
};

// Softmax partial of some rows: largest score, sum of weights, weighted values.
struct AttentionPartial {
  float* largest = nullptr;  // [rows]; -inf: nothing seen.
  float* total = nullptr;    // [rows]
  float* values = nullptr;   // [rows, value_stride]
  int64_t value_stride = 0;  // head_dim rounded up to 16.
};

// Largest head of attention: what its buffers on the stack hold.
inline constexpr int kMaxHeadDim = 1024;

// What one call of conv takes at most.
inline constexpr int kMaxConvKernel = 8;
inline constexpr int kMaxConvChannels = 256;

struct ConvChannels {        // `out` is not `x`: inputs are read again.
  const float* x = nullptr;  // First row of the span, at the first channel.
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t channels = 0;           // 1..kMaxConvChannels
  const float* weight = nullptr;  // [channels, kernel]
  int64_t kernel = 0;             // 1..kMaxConvKernel
  float* state = nullptr;         // [kernel - 1, state_stride]
  int64_t state_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct DeltaPrepare {  // Some tokens, one key head.
  const float* q = nullptr;
  const float* k = nullptr;
  int64_t stride = 0;  // Of both.
  int64_t rows = 0;
  int64_t dim_k = 0;
  float* q_out = nullptr;  // [rows, dim_k]
  float* k_out = nullptr;
  float* qk = nullptr;  // [rows]: q . k after normalisation.
};

// State columns and heads that one call of delta_tokens takes at most.
inline constexpr int kMaxTokenColumns = 128;
inline constexpr int kMaxTokenHeads = 16;

struct DeltaColumns {        // One sequence, one value head, some columns of its state.
  const float* q = nullptr;  // [rows, dim_k], normalised.
  const float* k = nullptr;
  const float* qk = nullptr;     // [rows]
  const float* decay = nullptr;  // [rows]: exp(g)
  const float* beta = nullptr;   // [rows]
  int64_t rows = 0;
  int64_t dim_k = 0;
  const float* v = nullptr;
  int64_t v_stride = 0;
  float* state = nullptr;  // [dim_k, state_stride]
  int64_t state_stride = 0;
  int64_t columns = 0;  // 1..KernelTable::delta_columns_max
  // Where the thread is likely to go on, in a state of the same stride: brought closer meanwhile. Never read from.
  const float* ahead = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  float* scratch = nullptr;  // [dim_k, columns rounded up to 16], 64-byte aligned.
};

// Tokens [first, first + n), whose logits are x, and a key of noise (base/noise.h).
struct NoiseSift {
  const float* x = nullptr;
  int64_t n = 0;
  int32_t first = 0;  // A multiple of 4.
  float least_logit = 0.0F;
  uint32_t least_word = 0;
  uint64_t seed = 0;
  uint32_t output_index = 0;
  uint32_t position = 0;
};
struct NoisyToken {
  int32_t id;
  uint32_t word;
};

struct KernelTable {
  const char* name;
  bool expands;  // bf16 activations are widened to f32 rows before a product.
  // Copies n bf16 (or f32 where !bf16) into product form, zero-padded to an even count.
  void (*copy_row)(const void* from, int64_t n, bool bf16, void* to);
  void (*panel_product)(const PanelProduct&);
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, void* out, bool bf16);
  void (*gated_rms_norm)(const float* x, const float* z, const float* weight, int64_t n, float eps, void* out,
                         bool bf16);
  void (*swiglu)(const float* gate, const float* up, int64_t n, void* out, bool bf16);
  void (*add_sigmoid_scaled)(const float* x, float gate, int64_t n, float* out);
  void (*add_scaled)(const float* x, float scale, int64_t n, float* out);  // out = fma(scale, x, out)
  void (*softmax)(const float* x, int64_t n, float* out);
  // The largest of each kMaximaBlock values, NaN left out; -infinity where there is none.
  void (*block_maxima)(const float* x, int64_t n, float* maxima);
  // Sum of exp((x - largest) / temperature) over what is not NaN, in blocks of 1024; each term where `terms` is not
  // null.
  double (*exp_sum)(const float* x, int64_t n, float largest, float temperature, float* terms);
  // Tokens whose logit is at least least_logit and whose word of noise at least least_word, in any order; `out` has
  // room for n. Returns how many.
  int64_t (*sift_noise)(const NoiseSift& sift, NoisyToken* out);
  void (*qkv_row)(const QkvRow&);
  // Tiles of neighbouring KV heads, alike but for q, offset and body, with a partial each; they share scratch.
  void (*attention_superblock)(const AttentionTile* tiles, const AttentionPartial* partials, int64_t heads,
                               int64_t superblock);
  void (*attention_merge)(const AttentionPartial& into, const AttentionPartial& from, int64_t rows);
  // out = values / total (* sigmoid(gate)) for one row.
  void (*attention_finish)(const float* values, float total, const float* gate, int64_t n, void* out, bool bf16);
  void (*conv)(const ConvChannels&);
  void (*delta_prepare)(const DeltaPrepare&);
  // beta = sigmoid(b); decay = exp(-exp(a_log) softplus(a + dt_bias)), element by element.
  void (*delta_gates)(const float* b, const float* a, const float* a_log, const float* dt_bias, int64_t count,
                      float* beta, float* decay);
  void (*delta_columns)(const DeltaColumns&);
  int delta_columns_max;
  // As delta_columns, of one row of each of 1..kMaxTokenHeads heads that differ in nothing but where they lie: takes no
  // scratch, looks at no `ahead`, and up to kMaxTokenColumns columns.
  void (*delta_tokens)(const DeltaColumns* heads, int64_t count);
  // `steps` rounds of the bf16 product's inner operation, and of fused multiply-adds, on registers alone. Return flops.
  double (*product_peak)(int64_t steps, float* sink);
  double (*fma_peak)(int64_t steps, float* sink);
  // Probes of bandwidth. `read` gives the sum of n floats (a multiple of 64 x streams), `streams` parts of them
  // abreast, each brought nearer `ahead` floats before it is read (0: not). `update` adds one to each of n floats (of
  // 16).
  float (*read)(const float* x, int64_t n, int64_t streams, int64_t ahead);
  void (*update)(float* x, int64_t n);
};

// Each file's table. Calling its functions needs a machine that runs them (isa.h chooses).
const KernelTable& ScalarTable();
const KernelTable& Avx2Table();
const KernelTable& Avx512Table();
const KernelTable& Avx512Bf16Table();

// The scalar build's fma without the instruction, 16 lanes: tests compare it with the instruction.
void ExactFma16(const float* a, const float* b, const float* c, float* out);

}  // namespace invar::kernels::cpu
