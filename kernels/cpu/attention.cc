// A tile is up to 60 query rows (tokens x heads of one KV head). Where a span is one tile and its context is long, its
// superblocks are computed as separate tasks and merged afterwards; else one task walks them all. Both merge the same
// partials in the same order, so the choice changes no bits. Tiles of neighbouring KV heads are gone over together, so
// that pages are read in order (reading_inl.h), where that leaves tasks enough.
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

// KV heads gone over together at most: they read some 100 KiB at a stretch even where heads are small.
constexpr int64_t kMostHeads = 8;
constexpr int64_t kTasksPerThread = 4;  // So many at least, so that no thread ends much later than the others.

// The tiles of some neighbouring KV heads.
struct Tile {
  const KvSpan* span;
  int64_t first_head;
  int64_t heads;        // 1..kMostHeads
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

struct Superblocks {
  int64_t first;
  int64_t count;
};

// What some tokens of a span see.
Superblocks SeenBy(const AttentionShape& shape, const KvSpan& span, const int64_t first, const int64_t tokens) {
  const int64_t position = span.first_position + first;
  const int64_t from = shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) : 0;
  const int64_t begin = from / kSuperblockTokens;
  return {begin, (position + tokens - 1) / kSuperblockTokens - begin + 1};
}

int64_t HeadsTogether(const AttentionArgs& args, const int threads) {
  int64_t tasks = 0;  // With a head each.
  for (const KvSpan& span : args.spans) tasks += SeenBy(args.shape, span, 0, span.rows).count * args.shape.kv_heads;
  const int64_t most = std::min<int64_t>(args.shape.kv_heads, kMostHeads);
  return std::clamp<int64_t>(tasks / (kTasksPerThread * threads), 1, most);
}

std::vector<Tile> CutTiles(const AttentionArgs& args, const int threads) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  const int64_t tile_tokens = std::max<int64_t>(1, kTileRows / group);
  const int64_t heads_together = HeadsTogether(args, threads);
  std::vector<Tile> tiles;
  int64_t partials = 0;
  for (const KvSpan& span : args.spans) {
    const int64_t count = (span.rows + tile_tokens - 1) / tile_tokens;
    const int64_t heads = count == 1 ? heads_together : 1;  // One tile alone waits for memory.
    for (int64_t index = count - 1; index >= 0; --index) {  // The longest first: better balance.
      const int64_t first = index * tile_tokens;
      const int64_t tokens = std::min<int64_t>(tile_tokens, span.rows - first);
      const Superblocks seen = SeenBy(args.shape, span, first, tokens);
      for (int64_t head = 0; head < args.shape.kv_heads; head += heads) {
        const bool split = count == 1 && seen.count > 1;
        const int64_t these = std::min(heads, args.shape.kv_heads - head);
        tiles.push_back({&span, head, these, first, tokens, seen.first, seen.count, split ? partials : -1});
        if (split) partials += seen.count * these * PartialFloats(tokens * group, args.shape.head_dim);
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
  int64_t SplitFloats(const Tile& tile) const { return tile.superblocks * tile.heads * PartialFloatsOf(tile); }

  void Run(const Task& task, float* shared) const {
    static thread_local Scratch local;
    const int64_t dim = args_.shape.head_dim;
    const Tile& tile = *task.tile;
    const bool is_coded = tile.span->kv.body.pages > 0 && tile.span->kv.body.encoding != KvEncoding::kDense;
    const int64_t rows = tile.tokens * group_;
    const int64_t q_floats = Aligned(rows * dim);
    const int64_t scratch_floats = 2 * rows * 64 + Aligned(rows);
    const int64_t own_floats = 2 * tile.heads * PartialFloatsOf(tile);
    float* const q = local.Floats(tile.heads * q_floats + scratch_floats + own_floats + (is_coded ? CodedFloats() : 0));
    float* const scores = q + tile.heads * q_floats;
    float* const own = scores + scratch_floats;
    AttentionTile tiles[kMostHeads];
    for (int64_t h = 0; h < tile.heads; ++h) {
      const int64_t head = tile.first_head + h;
      CopyQueries(tile, head, q + h * q_floats);
      tiles[h] = {.bf16 = bf16_,
                  .q = q + h * q_floats,
                  .tokens = tile.tokens,
                  .group = group_,
                  .first_position = tile.span->first_position + tile.first_token,
                  .head_dim = dim,
                  .window = args_.shape.window,
                  .scale = args_.shape.scale,
                  .arena = tile.span->kv.arena,
                  .pages = tile.span->kv.pages.data(),
                  .page_stride = tile.span->kv.page_stride_bytes,
                  .offset = tile.span->kv.layer_offset_bytes + head * head_bytes_,
                  .scores = scores,
                  .weights = scores + rows * 64,
                  .correction = scores + 2 * rows * 64,
                  .likely_next = 0,
                  .body = BodyOf(*tile.span, head, own + own_floats)};
    }
    AttentionPartial partials[kMostHeads];
    const auto run = [&](const int64_t superblock, const int64_t likely_next) {
      for (int64_t h = 0; h < tile.heads; ++h) tiles[h].likely_next = likely_next;
      table_.attention_superblock(tiles, partials, tile.heads, superblock);
    };
    if (task.superblock >= 0) {
      for (int64_t h = 0; h < tile.heads; ++h) {
        partials[h] = SplitPartial(tile, task.superblock - tile.first_superblock, h, shared);
      }
      run(task.superblock, task.superblock + threads_);
      return;
    }
    const auto own_partial = [&](const int64_t index) {
      return PartialAt(own + index * PartialFloatsOf(tile), rows, dim);
    };
    for (int64_t s = 0; s < tile.superblocks; ++s) {
      for (int64_t h = 0; h < tile.heads; ++h) partials[h] = own_partial(s == 0 ? h : tile.heads + h);
      run(tile.first_superblock + s, tile.first_superblock + s + 1);
      for (int64_t h = 0; s > 0 && h < tile.heads; ++h) table_.attention_merge(own_partial(h), partials[h], rows);
    }
    for (int64_t h = 0; h < tile.heads; ++h) Finish(tile, h, own_partial(h));
  }

  void MergeSplit(const Tile& tile, float* shared) const {
    for (int64_t h = 0; h < tile.heads; ++h) {
      const AttentionPartial whole = SplitPartial(tile, 0, h, shared);
      for (int64_t s = 1; s < tile.superblocks; ++s) {
        table_.attention_merge(whole, SplitPartial(tile, s, h, shared), tile.tokens * group_);
      }
      Finish(tile, h, whole);
    }
  }

 private:
  int64_t PartialFloatsOf(const Tile& tile) const { return PartialFloats(tile.tokens * group_, args_.shape.head_dim); }
  AttentionPartial SplitPartial(const Tile& tile, const int64_t index, const int64_t h, float* shared) const {
    return PartialAt(shared + tile.partials + (index * tile.heads + h) * PartialFloatsOf(tile), tile.tokens * group_,
                     args_.shape.head_dim);
  }

  AttentionBody BodyOf(const KvSpan& span, const int64_t head, float* scratch) const {
    const KvBody& body = span.kv.body;
    if (body.pages == 0) return {};
    AttentionBody out{.pages = body.pages, .log_degrees = body.log_degrees};
    out.page_stride = EncodedPageBytes(body.encoding, page_);
    if (body.encoding != KvEncoding::kDense) {
      Check(args_.shape.window == 0 && span.first_position >= int64_t{body.pages} * kPageTokens,
            "all rows see all of a coded body", span.first_position, body.pages);
      out.head = BlockFormat(body, page_.head_dim);
      out.coded = CodedAt(scratch);
    }
    out.head.block = body.bytes + head * (out.page_stride / page_.kv_heads);
    if (out.log_degrees != nullptr) out.log_degrees += head * kPageTokens;
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
  void CopyQueries(const Tile& tile, const int64_t kv_head, float* q) const {
    const int64_t dim = args_.shape.head_dim;
    const int64_t element = bf16_ && !table_.expands ? 2 : 4;
    for (int64_t r = 0; r < tile.tokens * group_; ++r) {
      const int64_t row = tile.span->row_begin + tile.first_token + r / group_;
      const int64_t head = kv_head * group_ + r % group_;
      const std::byte* from = args_.q.row_bytes(row) + head * dim * BytesOf(args_.q.dtype);
      table_.copy_row(from, dim, bf16_, reinterpret_cast<std::byte*>(q) + r * dim * element);
    }
  }

  void Finish(const Tile& tile, const int64_t h, const AttentionPartial& whole) const {
    const int64_t dim = args_.shape.head_dim;
    for (int64_t r = 0; r < tile.tokens * group_; ++r) {
      const int64_t row = tile.span->row_begin + tile.first_token + r / group_;
      const int64_t head = (tile.first_head + h) * group_ + r % group_;
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
  const std::vector<Tile> tiles = CutTiles(args, pool.threads());
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
