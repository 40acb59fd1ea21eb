// A tile is up to 60 query rows (tokens x heads of one KV head). Where a span is one tile and its context is long, its
// superblocks are computed as separate tasks and merged afterwards; else one task walks them all. Both merge the same
// partials in the same order, so the choice changes no bits.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/matmul.h"
#include "kernels/dense_page.h"

namespace invar::kernels::cpu {
namespace {

constexpr int64_t kTileRows = 60;

int64_t ValueStride(const int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

struct Tile {
  const KvSpan* span;
  int64_t kv_head;
  int64_t first_token;  // In the span.
  int64_t tokens;
  int64_t first_superblock;
  int64_t superblocks;
  int64_t partials;  // Floats before the first of its superblocks' partials, or -1: not split.
};

struct Task {
  const Tile* tile;
  int64_t superblock;  // Or -1: all.
};

// Whole vectors.
int64_t Aligned(const int64_t rows) { return (rows + 15) / 16 * 16; }

// Floats of one partial of `rows` rows: a long context has hundreds of them, so none is larger than its tile.
int64_t PartialFloats(const int64_t rows, const int64_t head_dim) {
  return 2 * Aligned(rows) + rows * ValueStride(head_dim);
}

AttentionPartial PartialAt(float* memory, const int64_t rows, const int64_t head_dim) {
  const int64_t aligned = Aligned(rows);
  return {.largest = memory,
          .total = memory + aligned,
          .values = memory + 2 * aligned,
          .value_stride = ValueStride(head_dim)};
}

std::vector<Tile> CutTiles(const AttentionArgs& args) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  const int64_t tile_tokens = std::max<int64_t>(1, kTileRows / group);
  std::vector<Tile> tiles;
  int64_t partials = 0;
  for (const KvSpan& span : args.spans) {
    const int64_t count = (span.rows + tile_tokens - 1) / tile_tokens;
    for (int64_t index = count - 1; index >= 0; --index) {  // The longest first: better balance.
      const int64_t first = index * tile_tokens;
      const int64_t tokens = std::min<int64_t>(tile_tokens, span.rows - first);
      const int64_t from =
          args.shape.window > 0 ? std::max<int64_t>(0, span.first_position + first - args.shape.window + 1) : 0;
      const int64_t first_superblock = from / kSuperblockTokens;
      const int64_t superblocks = (span.first_position + first + tokens - 1) / kSuperblockTokens - first_superblock + 1;
      for (int64_t head = 0; head < args.shape.kv_heads; ++head) {
        const bool split = count == 1 && superblocks > 1;
        tiles.push_back({&span, head, first, tokens, first_superblock, superblocks, split ? partials : -1});
        if (split) partials += superblocks * PartialFloats(tokens * group, args.shape.head_dim);
      }
    }
  }
  return tiles;
}

// How the head blocks of a body are read.
EncodedHeadBlock BlockFormat(const KvBody& body, const int32_t head_dim) {
  const EncodedHeadLayout layout = EncodedHead(body.encoding, head_dim);
  static_assert(kEncodedValueGroup == 32);  // Two tiles of attend_codes_inl.h.
  EncodedHeadBlock block{.key_ranges = layout.key_ranges,
                         .value_codes = layout.value_codes,
                         .value_ranges = layout.value_ranges,
                         .bytes = layout.bytes};
  const EncodedCodes codes = CodesOf(body.encoding);
  block.key_bits = codes.key_bits;
  block.value_bits = codes.value_bits;
  Check(codes.key_bits == 8 || codes.key_group == (codes.key_bits == 2 ? 32 : 64),
        "ranges of keys are as kernels read them");
  return block;
}

class Attention {
 public:
  Attention(const KernelTable& table, const AttentionArgs& args, const DType kv, const int threads)
      : table_(table),
        args_(args),
        threads_(threads),
        bf16_(kv == DType::kBf16),
        group_(args.shape.heads / args.shape.kv_heads),
        max_rows_(std::max<int64_t>(1, kTileRows / group_) * group_),
        page_{static_cast<int32_t>(args.shape.kv_heads), static_cast<int32_t>(args.shape.head_dim), kv,
              DenseOrder::kLanes},
        head_bytes_(DenseHeadBytes(page_)) {}

  // Floats of the partials of a split tile.
  int64_t SplitFloats(const Tile& tile) const { return tile.superblocks * PartialFloatsOf(tile); }

  void Run(const Task& task, float* shared) const {
    static thread_local Scratch local;
    const int64_t dim = args_.shape.head_dim;
    const Tile& tile = *task.tile;
    const bool is_coded = tile.span->kv.body.pages > 0 && tile.span->kv.body.encoding != KvEncoding::kDense;
    const int64_t row_floats = max_rows_ * (dim + 64 + 64) + Aligned(max_rows_) + 2 * PartialFloats(max_rows_, dim);
    float* memory = local.Floats(Aligned(row_floats) + (is_coded ? CodedFloats() : 0));
    float* q = memory;
    float* scores = q + max_rows_ * dim;
    float* weights = scores + max_rows_ * 64;
    float* correction = weights + max_rows_ * 64;
    float* own = correction + Aligned(max_rows_);
    CopyQueries(tile, q);
    AttentionTile t{.bf16 = bf16_,
                    .q = q,
                    .tokens = tile.tokens,
                    .group = group_,
                    .first_position = tile.span->first_position + tile.first_token,
                    .head_dim = dim,
                    .window = args_.shape.window,
                    .scale = args_.shape.scale,
                    .arena = tile.span->kv.arena,
                    .pages = tile.span->kv.pages.data(),
                    .page_stride = tile.span->kv.page_stride_bytes,
                    .offset = tile.span->kv.layer_offset_bytes + tile.kv_head * head_bytes_,
                    .scores = scores,
                    .weights = weights,
                    .correction = correction,
                    .likely_next = 0,
                    .body = BodyOf(tile, memory + Aligned(row_floats))};
    if (task.superblock >= 0) {
      t.likely_next = task.superblock + threads_;
      table_.attention_superblock(t, task.superblock,
                                  SplitPartial(tile, task.superblock - tile.first_superblock, shared));
      return;
    }
    const AttentionPartial whole = PartialAt(own, max_rows_, dim);
    const AttentionPartial part = PartialAt(own + PartialFloats(max_rows_, dim), max_rows_, dim);
    for (int64_t s = 0; s < tile.superblocks; ++s) {
      t.likely_next = tile.first_superblock + s + 1;
      table_.attention_superblock(t, tile.first_superblock + s, s == 0 ? whole : part);
      if (s > 0) table_.attention_merge(whole, part, tile.tokens * group_);
    }
    Finish(tile, whole);
  }

  void MergeSplit(const Tile& tile, float* shared) const {
    const AttentionPartial whole = SplitPartial(tile, 0, shared);
    for (int64_t s = 1; s < tile.superblocks; ++s) {
      table_.attention_merge(whole, SplitPartial(tile, s, shared), tile.tokens * group_);
    }
    Finish(tile, whole);
  }

 private:
  int64_t PartialFloatsOf(const Tile& tile) const { return PartialFloats(tile.tokens * group_, args_.shape.head_dim); }
  AttentionPartial SplitPartial(const Tile& tile, const int64_t index, float* shared) const {
    return PartialAt(shared + tile.partials + index * PartialFloatsOf(tile), tile.tokens * group_,
                     args_.shape.head_dim);
  }

  AttentionBody BodyOf(const Tile& tile, float* scratch) const {
    const KvBody& body = tile.span->kv.body;
    if (body.pages == 0) return {};
    AttentionBody out{.pages = body.pages, .log_degrees = body.log_degrees};
    out.page_stride = EncodedPageBytes(body.encoding, page_);
    if (body.encoding != KvEncoding::kDense) {
      Check(args_.shape.window == 0 && tile.span->first_position >= int64_t{body.pages} * kPageTokens,
            "all rows see all of a coded body", tile.span->first_position, body.pages);
      out.head = BlockFormat(body, page_.head_dim);
      out.coded = CodedAt(scratch);
    }
    out.head.block = body.bytes + tile.kv_head * (out.page_stride / page_.kv_heads);
    if (out.log_degrees != nullptr) out.log_degrees += tile.kv_head * kPageTokens;
    out.log_stride = int64_t{page_.kv_heads} * kPageTokens;
    return out;
  }

  // Whole vectors each, so that loads of sixteen may reach beyond what is there.
  int64_t CodedFloats() const {
    return max_rows_ * (CodedDims() + CodedDims() / 2) + 2 * Aligned(max_rows_) + CodedBlocks() * CodedBlockFloats();
  }
  int64_t CodedBlockFloats() const {
    return 2 * kCodedRowsMax * 64 + 2 * CodedDims() + ValueGroups() * (64 + 32) + 3 * 64;
  }
  // As many as stay in a first-level cache of 32 KiB with their scratch, of 4 bits.
  int CodedBlocks() const { return static_cast<int>(std::clamp<int64_t>(256 / CodedDims(), 1, kCodedBlocksMax)); }
  CodedScratch CodedAt(float* at) const {
    static_assert(kCodedRowsMax == 4);
    CodedScratch coded{.dims = CodedDims(), .blocks = CodedBlocks()};
    const auto take = [&at](const int64_t floats) { return std::exchange(at, at + floats); };
    const auto bytes = [](float* floats) { return reinterpret_cast<std::byte*>(floats); };
    coded.queries = take(max_rows_ * coded.dims);
    coded.query_numbers = bytes(take(max_rows_ * coded.dims / 2));
    coded.units = take(Aligned(max_rows_));
    coded.offsets = reinterpret_cast<int32_t*>(take(Aligned(max_rows_)));
    for (int i = 0; i < coded.blocks; ++i) {
      CodedBlockScratch& block = coded.block[i];
      block.scores = take(kCodedRowsMax * 64);
      block.weights = take(kCodedRowsMax * 64);
      block.query_numbers = bytes(take(2 * coded.dims));
      block.weight_numbers = bytes(take(ValueGroups() * 64 + 64));
      block.key_scales = take(64);
      block.value_scales = take(64);
      block.value_units = take(ValueGroups() * 16);
      block.value_dots = take(ValueGroups() * 16);
    }
    return coded;
  }
  int64_t CodedDims() const { return (args_.shape.head_dim + 63) / 64 * 64; }
  int64_t ValueGroups() const { return (args_.shape.head_dim + kEncodedValueGroup - 1) / kEncodedValueGroup; }

  // Rows of the tile in product form, one after another.
  void CopyQueries(const Tile& tile, float* q) const {
    const int64_t dim = args_.shape.head_dim;
    const int64_t element = bf16_ && !table_.expands ? 2 : 4;
    for (int64_t r = 0; r < tile.tokens * group_; ++r) {
      const int64_t row = tile.span->row_begin + tile.first_token + r / group_;
      const int64_t head = tile.kv_head * group_ + r % group_;
      const std::byte* from = args_.q.row_bytes(row) + head * dim * BytesOf(args_.q.dtype);
      table_.copy_row(from, dim, bf16_, reinterpret_cast<std::byte*>(q) + r * dim * element);
    }
  }

  void Finish(const Tile& tile, const AttentionPartial& whole) const {
    const int64_t dim = args_.shape.head_dim;
    for (int64_t r = 0; r < tile.tokens * group_; ++r) {
      const int64_t row = tile.span->row_begin + tile.first_token + r / group_;
      const int64_t head = tile.kv_head * group_ + r % group_;
      const float* gate = args_.gate.data != nullptr ? args_.gate.row(row) + head * args_.gate_head_stride : nullptr;
      void* out = args_.out.row_bytes(row) + head * dim * BytesOf(args_.out.dtype);
      table_.attention_finish(whole.values + r * whole.value_stride, whole.total[r], gate, dim, out,
                              args_.out.dtype == DType::kBf16);
    }
  }

  const KernelTable& table_;
  const AttentionArgs& args_;
  const int threads_;
  const bool bf16_;
  const int64_t group_;
  const int64_t max_rows_;
  const PageShape page_;
  const int64_t head_bytes_;
};

}  // namespace

void RunAttention(const KernelTable& table, WorkerPool& pool, const AttentionArgs& args, const DType kv,
                  Scratch& partials) {
  const std::vector<Tile> tiles = CutTiles(args);
  const Attention attention(table, args, kv, pool.threads());
  std::vector<Task> tasks;
  std::vector<const Tile*> split;
  int64_t floats = 0;
  for (const Tile& tile : tiles) {
    if (tile.partials < 0) {
      tasks.push_back({&tile, -1});
      continue;
    }
    for (int64_t s = 0; s < tile.superblocks; ++s) tasks.push_back({&tile, tile.first_superblock + s});
    split.push_back(&tile);
    floats = std::max(floats, tile.partials + attention.SplitFloats(tile));
  }
  float* shared = partials.Floats(floats);
  pool.ParallelFor(static_cast<int64_t>(tasks.size()), [&](const int64_t i) { attention.Run(tasks[i], shared); });
  pool.ParallelFor(static_cast<int64_t>(split.size()),
                   [&](const int64_t i) { attention.MergeSplit(*split[i], shared); });
}

}  // namespace invar::kernels::cpu
