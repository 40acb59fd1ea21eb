// Attention over one encoded block of a compressed view (kernels/kv_encoding.h), without decoding it: codes are
// multiplied as they are with queries and weights in whole numbers, and ranges are applied to the sums: of codes of 8
// bits in attend_wide_codes_inl.h, of fewer in attend_small_codes_inl.h.
//   w = 2^(score - the block's largest), scores in multiples of ln 2: so the largest weight is 1. The power errs by
//   7e-6, which both sums of a weight share.
// Sums of whole numbers are exact: any instruction and order gives the same bits. Floats: one operation each, sums over
// dims and slots in sixteen lanes ascending, then by halves. A block's values enter the partial once, times
// exp(block's largest - running one). All rows see all of the block, and each has the bits it has alone.

static constexpr float kBias = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number, which the low bits are.
static constexpr int64_t kRangeDims = 32;    // Dims of values that share ranges: two tiles.
static constexpr int64_t kTile = 64;         // Bytes.

// Sums of up to 512 products with codes - 128 stay inside 32 bits; of longer rows with half the levels. High bytes of
// numbers end at 127.
static inline float LevelsOf(const int64_t dim) { return dim <= 512 ? 32639.0F : 16319.0F; }
static constexpr float kWeightLevels = 32639.0F;

static constexpr float kLog2E = 1.44269504F;
static constexpr float kLn2 = 0.693147181F;

static inline v16 FirstLanes(const v16& a, const int64_t n) {
  return n >= 16 ? a : KeepLanes(a, 0, static_cast<int>(n), 0.0F);
}

static inline v16 QueryAt(const AttentionTile& t, const int64_t row, const int64_t i) {
  const int64_t at = row * t.head_dim + i;
  if constexpr (!kExpands) {
    if (t.bf16) return FirstLanes(LoadBf16(static_cast<const uint16_t*>(t.q) + at), t.head_dim - i);
  }
  return FirstLanes(Load(static_cast<const float*>(t.q) + at), t.head_dim - i);
}

// Queries times the scale of attention over ln 2; for keys of 8 bits as numbers. One that is no number, or infinite,
// makes all scores of its row NaN: its first is that, and the others are zero.
static void PrepareQueries(const AttentionTile& t) {
  const CodedScratch& c = t.body.coded;
  const float levels = LevelsOf(t.head_dim);
  const v16 scale = Set1(t.scale * kLog2E);
  for (int64_t r = 0; r < t.tokens * t.group; ++r) {
    float* query = c.queries + r * c.dims;
    v16 most = Zero();
    v16 poison = Zero();
    for (int64_t i = 0; i < c.dims; i += 16) {
      const v16 q = i < t.head_dim ? QueryAt(t, r, i) : Zero();
      most = Max(most, Max(q, Sub(Zero(), q)));
      poison = Add(poison, Mul(q, Zero()));
      Store(query + i, Mul(q, scale));
    }
    const float bad = SumLanes(poison);
    if (bad != 0.0F) {
      for (int64_t i = 0; i < c.dims; i += 16) Store(query + i, Zero());
      query[0] = bad;
    }
    if (t.body.head.key_bits < 8) continue;
    const float largest = MaxLanes(most);
    const bool counts = bad == 0.0F && largest >= 1e-30F;
    c.units[r] = (counts ? largest / levels : bad) * (t.scale * kLog2E);
    const v16 factor = Set1(counts ? levels / largest : 0.0F);
    v16 sum = Zero();
    for (int64_t i = 0; i < t.head_dim; i += 16) {
      const v16 biased = Fma(counts ? QueryAt(t, r, i) : Zero(), factor, Set1(kBias));
      PutNumbers(c.query_numbers + r * 2 * c.dims, c.dims, i, biased);
      sum = Add(sum, Sub(biased, Set1(kBias)));
    }
    c.offsets[r] = 128 * static_cast<int32_t>(SumLanes(sum));
  }
}

// A KV head's part of a block.
static inline const std::byte* BlockAt(const AttentionTile& t, const int64_t block) {
  return block < t.body.pages ? t.body.head.block + block * t.body.page_stride
                              : t.arena + t.pages[block - t.body.pages] * t.page_stride + t.offset;
}

static inline const float* LogDegreesOf(const AttentionTile& t, const int64_t block) {
  return block < t.body.pages && t.body.log_degrees != nullptr ? t.body.log_degrees + block * t.body.log_stride
                                                               : nullptr;
}

// Sixteen f16 from `index` on; zeros behind `count`.
static inline v16 RangesAt(const std::byte* from, const int64_t index, const int64_t count) {
  return FirstLanes(LoadF16(from + 2 * index), count - index);
}

// What comes next is brought into the second-level cache while this is computed, as the loops' own strides hide it from
// the processor, and evenly: more lines at once than the processor keeps on their way hold up everything else. (Into
// the first-level cache takes as long again: 638 ns a head page of 64 dims instead of 447.)
struct NextLines {
  const char* at;
  const char* end;
  const char* due;
  int64_t each;  // Bytes a time.

  // `weight`: of four dims of keys' codes, or a tile of two of values', 1.
  void Bring(const int weight = 1) {
    due += each * weight;
    for (; at < due && at < end; at += kTile) PrefetchFar(at);
  }
};

// A block while it is attended to, by the rows of a pass. Of row r at [4 r].
struct CodedBlock {
  const std::byte* bytes;
  const float* log_degrees;
  const CodedBlockScratch* scratch;
  NextLines ahead;
  alignas(64) float query_units[2][16];
  alignas(64) float query_dots[2][16];
  alignas(64) float largest[16];  // Scores.
  alignas(64) float totals[16];   // Weights.
  alignas(64) float takes[16];    // What its values count for in the partial, and what was there before.
  alignas(64) float corrections[16];
};

#include "kernels/cpu/attend_small_codes_inl.h"
#include "kernels/cpu/attend_wide_codes_inl.h"

// 2^x of x <= 0: 2^n times a polynomial of degree 4 in |r| <= 1/2, which is 1 at 0. At least 2^-120.
static inline v16 Power(const v16 x) {
  const v16 y = Max(Set1(-120.0F), x);
  const v16 biased = Add(y, Set1(kBias));
  const v16 r = Sub(y, Sub(biased, Set1(kBias)));
  v16 p = Set1(0.00965671029F);
  p = Fma(p, r, Set1(0.0558382829F));
  p = Fma(p, r, Set1(0.240225301F));
  p = Fma(p, r, Set1(0.693136734F));
  p = Fma(p, r, Set1(1.0F));
  return Mul(p, Pow2OfBiased(biased));
}

// Weights of rows relative to their largest scores of a block.
template <int kRows>
static inline void WeighRows(CodedBlock& b) {
  v16 s[kRows][4];
  v16 lanes[kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 4; ++i) {
      s[r][i] = Load(b.scratch->scores + r * 64 + i * 16);
      if (b.log_degrees != nullptr) s[r][i] = Fma(Load(b.log_degrees + i * 16), Set1(kLog2E), s[r][i]);
    }
    lanes[r] = Max(Max(s[r][0], s[r][1]), Max(s[r][2], s[r][3]));
  }
  MaxLanesOf<kRows>(lanes, b.largest);
  for (int r = 0; r < kRows; ++r) {
    const v16 largest = Set1(b.largest[4 * r]);
    for (int i = 0; i < 4; ++i) {
      s[r][i] = Power(Sub(s[r][i], largest));
      Store(b.scratch->weights + r * 64 + i * 16, s[r][i]);
    }
    lanes[r] = Add(Add(s[r][0], s[r][1]), Add(s[r][2], s[r][3]));
  }
  SumLanesOf<kRows>(lanes, b.totals);
  b.ahead.Bring(kRows);
}

// What partials and blocks count for from each block on.
template <int kRows>
static inline void Rescale(const AttentionPartial& p, const int64_t row, CodedBlock* blocks, const int count) {
  alignas(64) float largest[16] = {};
  alignas(64) float total[16] = {};
  for (int r = 0; r < kRows; ++r) {
    largest[4 * r] = p.largest[row + r];
    total[4 * r] = p.total[row + r];
  }
  v16 most = Load(largest);
  v16 sum = Load(total);
  for (CodedBlock* b = blocks; b < blocks + count; ++b) {
    const v16 before = most;
    const v16 block = Mul(Load(b->largest), Set1(kLn2));
    most = Max(before, block);
    const v16 correction = Exp(Sub(before, most));
    const v16 take = Exp(Sub(block, most));
    Store(b->corrections, correction);
    Store(b->takes, take);
    sum = Add(Mul(sum, correction), Mul(Load(b->totals), take));
  }
  Store(largest, most);
  Store(total, sum);
  for (int r = 0; r < kRows; ++r) {
    p.largest[row + r] = largest[4 * r];
    p.total[row + r] = total[4 * r];
  }
}

// Step by step for all blocks: the steps of one depend on each other, those of several do not.
template <int kKeyBits, int kValueBits, int kRows>
static void AttendRows(const AttentionTile& t, const AttentionPartial& p, CodedBlock* blocks, const int count,
                       const int64_t row) {
  CodedBlock* const end = blocks + count;
  if constexpr (kKeyBits < 8) {
    for (CodedBlock* b = blocks; b < end; ++b) PutQueryBytes<kKeyBits, kRows>(t, *b, row);
    for (CodedBlock* b = blocks; b < end; ++b) SmallScores<kKeyBits, kRows>(t, *b);
  } else {
    for (CodedBlock* b = blocks; b < end; ++b) WideScores<kRows>(t, *b, row);
  }
  for (CodedBlock* b = blocks; b < end; ++b) WeighRows<kRows>(*b);
  Rescale<kRows>(p, row, blocks, count);
  if constexpr (kValueBits < 8) {
    for (CodedBlock* b = blocks; b < end; ++b) PutWeightBytes<kValueBits, kRows>(t, *b);
    for (CodedBlock* b = blocks; b < end; ++b) AddSmallValues<kValueBits, kRows>(t, p, *b, row);
  } else {
    for (CodedBlock* b = blocks; b < end; ++b) {
      PutWideWeights<kRows>(*b);
      AddWideValues<kRows>(t, p, *b, row);
    }
  }
}

template <int kKeyBits, int kValueBits>
static void AttendCodesOf(const AttentionTile& t, const AttentionPartial& p, CodedBlock* blocks, const int count) {
  for (CodedBlock* b = blocks; b < blocks + count; ++b) {
    if constexpr (kKeyBits == 8) PrepareWideKeys(t, *b);
    if constexpr (kValueBits == 8) PrepareWideValues(t, *b);
  }
  static_assert(kCodeRows <= kCodedRowsMax);
  const int64_t rows = t.tokens * t.group;
  int64_t row = 0;
  for (; row + kCodeRows <= rows; row += kCodeRows) {
    AttendRows<kKeyBits, kValueBits, kCodeRows>(t, p, blocks, count, row);
  }
  if constexpr (kCodeRows > 3) {
    if (rows - row == 3) return AttendRows<kKeyBits, kValueBits, 3>(t, p, blocks, count, row);
  }
  if constexpr (kCodeRows > 2) {
    if (rows - row == 2) return AttendRows<kKeyBits, kValueBits, 2>(t, p, blocks, count, row);
  }
  if (row < rows) AttendRows<kKeyBits, kValueBits, 1>(t, p, blocks, count, row);
}

// Blocks [first, end) of a body, of `superblock`.
static void AttendCodes(const AttentionTile& t, const AttentionPartial& p, const int64_t first, const int64_t end,
                        const int64_t superblock) {
  const EncodedHeadBlock& head = t.body.head;
  CodedBlock blocks[kCodedBlocksMax] = {};
  // The fewest times that lines are brought: once four dims of keys, once a tile of two of values, and between them.
  const int64_t groups = RoundUp(t.head_dim, kRangeDims) / kRangeDims;
  const int64_t rows = Least(t.tokens * t.group, kCodeRows);
  const int64_t times =
      (t.head_dim + 3) / 4 + groups * 2 * head.value_bits + rows * (2 + (head.value_bits < 8 ? groups : 0));
  const int64_t each = (head.bytes + times - 1) / times;
  for (int64_t block = first; block < end; block += t.body.coded.blocks) {
    const int count = static_cast<int>(Least(t.body.coded.blocks, end - block));
    for (int i = 0; i < count; ++i) {
      // Of the blocks after these, or of those that the thread is likely to go on with.
      int64_t ahead = block + i + t.body.coded.blocks;
      if (ahead >= 16 * (superblock + 1)) ahead += 16 * (t.likely_next - superblock - 1);
      const bool is_known = ahead < t.body.pages;
      const auto* lines = reinterpret_cast<const char*>(is_known ? BlockAt(t, ahead) : nullptr);
      blocks[i].bytes = BlockAt(t, block + i);
      blocks[i].log_degrees = LogDegreesOf(t, block + i);
      blocks[i].scratch = &t.body.coded.block[i];
      blocks[i].ahead = {lines, is_known ? lines + head.bytes : lines, lines, each};
      const float* degrees = is_known ? LogDegreesOf(t, ahead) : nullptr;
      for (int j = 0; j < 64 && degrees != nullptr; j += 16) PrefetchFar(degrees + j);
    }
    if (head.key_bits == 8 && head.value_bits == 8) {
      AttendCodesOf<8, 8>(t, p, blocks, count);
    } else if (head.key_bits == 8) {
      AttendCodesOf<8, 4>(t, p, blocks, count);
    } else if (head.key_bits == 4) {
      AttendCodesOf<4, 4>(t, p, blocks, count);
    } else {
      AttendCodesOf<2, 2>(t, p, blocks, count);
    }
  }
}
