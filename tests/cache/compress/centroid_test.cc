// CentroidKV: matching against an oracle, merges against their formula, schedules, and what must hold of degrees.
#include <gtest/gtest.h>

#include <map>

#include "cache/compress/chunked_matching.h"
#include "cache/compress/dot_columns.h"
#include "cache/compress/merge_schedule.h"
#include "tests/cache/compress/observed.h"
#include "tests/cache/compress/plain_attention.h"

namespace invar::cache {
namespace {

using kernels::DType;

SettledSlots SlotsOf(const Layer& layer) {
  SettledSlots slots(layer.shape, 0, layer.tokens, layer.tokens);
  for (int64_t h = 0; h < slots.heads(); ++h) {
    for (int64_t t = 0; t < layer.tokens; ++t) {
      std::copy_n(layer.rows().key(h, t), layer.dim(), slots.key(h, t));
      std::copy_n(layer.rows().value(h, t), layer.dim(), slots.value(h, t));
      slots.marks(h)[t] = SlotMark(static_cast<uint32_t>(t));
    }
  }
  return slots;
}

CompressedLayer Prefilled(const std::string& kind, const Layer& layer, const Budget& budget) {
  return std::move(MakeCompressor(kind).value())->Prefill(layer.shape, layer.rows(), {.budget = budget});
}

double Cosine(const float* a, const float* b, const int64_t dim) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (int64_t i = 0; i < dim; ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// 1 - |a - b|^2 / (2 s^2) of two keys of `range`, s^2 being the mean square of its keys from their mean.
double Nearness(const SettledSlots& slots, const MatchRange& range, const int64_t a, const int64_t b) {
  double spread = 0.0;
  double distance = 0.0;
  const auto count = static_cast<double>(range.end - range.begin);
  for (int64_t i = 0; i < slots.dim(); ++i) {
    double mean = 0.0;
    for (int64_t s = range.begin; s < range.end; ++s) mean += slots.key(1, s)[i] / count;
    for (int64_t s = range.begin; s < range.end; ++s) spread += std::pow(slots.key(1, s)[i] - mean, 2) / count;
    distance += std::pow(static_cast<double>(slots.key(1, a)[i]) - slots.key(1, b)[i], 2);
  }
  return 1.0 - distance / (2.0 * spread);
}

struct MatchCase {
  MatchRange range;
  int64_t dim;
};

class ChunkedMatching : public testing::TestWithParam<KeyLikeness> {};

INSTANTIATE_TEST_SUITE_P(Likenesses, ChunkedMatching, testing::Values(KeyLikeness::kDistance, KeyLikeness::kCosine),
                         [](const auto& info) { return info.param == KeyLikeness::kCosine ? "Cosine" : "Distance"; });

TEST_P(ChunkedMatching, FindsTheBestPartnerOfTheOtherHalf) {
  for (MatchCase c : {MatchCase{{0, 40, 8, 0, ChunkSplit::kAlternate}, 16}, MatchCase{{3, 38, 10, 5}, 5},
                      MatchCase{{1, 100, 64, 32}, 33}, MatchCase{{0, 90, 64, 0, ChunkSplit::kHalves}, 8},
                      MatchCase{{7, 8, 64, 0}, 8}, MatchCase{{0, 100, 7, 3, ChunkSplit::kHalves}, 16}}) {
    const Layer layer = MakeLayer({.shape = {2, static_cast<int32_t>(c.dim), DType::kF32}, .tokens = 100, .rho = 0.5});
    const SettledSlots slots = SlotsOf(layer);
    c.range.likeness = GetParam();
    const auto likeness = [&](const int64_t a, const int64_t b) {
      return GetParam() == KeyLikeness::kCosine ? Cosine(slots.key(1, a), slots.key(1, b), c.dim)
                                                : Nearness(slots, c.range, a, b);
    };
    const auto [pairs, best] = MatchChunks(slots, 1, c.range);
    size_t next = 0;
    std::vector<double> best_of(100, -INFINITY);
    for (int64_t begin = c.range.begin; begin < c.range.end;) {
      const int64_t first = c.range.begin + (c.range.phase > 0 ? c.range.phase : c.range.chunk);
      const int64_t end = std::min(c.range.end, begin == c.range.begin ? first : begin + c.range.chunk);
      const auto in_a = [&](const int64_t i) {
        return c.range.split == ChunkSplit::kAlternate ? (i - begin) % 2 == 0 : i - begin < (end - begin + 1) / 2;
      };
      for (int64_t a = begin; a < end; ++a) {
        if (!in_a(a)) continue;
        if (end - begin == 1) {
          best_of[a] = 1.0;
          continue;
        }
        double largest = -INFINITY;
        for (int64_t b = begin; b < end; ++b) {
          if (in_a(b)) continue;
          largest = std::max(largest, likeness(a, b));
          best_of[a] = std::max(best_of[a], likeness(a, b));
          best_of[b] = std::max(best_of[b], likeness(a, b));
        }
        ASSERT_LT(next, pairs.size());
        const SlotPair& pair = pairs[next++];
        EXPECT_EQ(pair.a, a);
        EXPECT_FALSE(in_a(pair.b));
        EXPECT_NEAR(likeness(a, pair.b), largest, 1e-5);
        EXPECT_NEAR(pair.similarity, largest, 1e-5);
      }
      begin = end;
    }
    EXPECT_EQ(next, pairs.size());
    for (int64_t i = c.range.begin; i < c.range.end; ++i) EXPECT_NEAR(best[i - c.range.begin], best_of[i], 1e-5);
  }
}

TEST(EqualKeys, MatchTheFirst) {
  Layer layer = MakeLayer({.shape = {1, 8, DType::kF32}, .tokens = 64});
  for (int64_t t = 1; t < 64; ++t) std::copy_n(layer.keys.data(), 8, layer.keys.data() + t * 8);
  for (const SlotPair& pair : MatchChunks(SlotsOf(layer), 0, {0, 64, 64, 0}).pairs) {
    EXPECT_EQ(pair.b, 1);
    EXPECT_EQ(pair.similarity, 1.0F);
  }
}

TEST(DotColumns, IsOneSumAProductInOrderOnEveryWidth) {
  SplitMix64 random(2);
  for (const int64_t dim : {1, 7, 64, 129}) {
    for (const int64_t count : {1, 2, 3, 4, 5, 9}) {
      std::vector<float> rows(count * 2 * dim);
      std::vector<float> columns(dim * kDotColumns);
      for (float& x : rows) x = static_cast<float>(Normal(random));
      for (float& x : columns) x = static_cast<float>(Normal(random));
      std::vector<float> out(count * kDotColumns, -1.0F);
      DotColumns(rows.data(), 2 * dim, count, columns.data(), dim, out.data());
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = 0; j < kDotColumns; ++j) {
          float sum = 0.0F;
          for (int64_t i = 0; i < dim; ++i) sum += rows[r * 2 * dim + i] * columns[i * kDotColumns + j];
          ASSERT_EQ(out[r * kDotColumns + j], sum) << dim << ' ' << count;
        }
      }
    }
  }
}

// Upkeep of a long text looks at its newest pages: the older ones keep their bytes, and nothing else changes.
TEST(Centroid, UpkeepMergesTheNewestWhereTheyAreSimilar) {
  const Layer layer = MakeLayer({.shape = {2, 64, DType::kBf16}, .tokens = 5000});
  const auto compressor = std::move(MakeCompressor("centroid:encoding=dense").value());
  const CompressContext context = {.budget = Budget::Share(0.5)};
  CompressedLayer view = compressor->Prefill(layer.shape, layer.rows(0, 4000), context);
  const CompressedLayer before = view;
  for (int64_t t = 4000; t < 4256; t += 64) {
    view.Append(layer.rows(t, 64));
    compressor->Maintain(view, t + 64, context);
    EXPECT_LE(view.slots(), (t + 64) / 2);
    EXPECT_EQ(view.missed_slots(), 0);
  }
  for (int64_t p = 0; p < before.body_pages() - 8; ++p) {
    EXPECT_TRUE(std::equal(before.page(p).begin(), before.page(p).end(), view.page(p).begin())) << p;
  }
  EXPECT_GT(view.body_pages(), before.body_pages());
  // Where the newest are not enough, all are looked at.
  compressor->Maintain(view, view.tokens(), {.budget = Budget::Share(0.2)});
  EXPECT_LE(view.slots(), view.tokens() / 5);
}

TEST(MergePairs, MeansAreWeightedByDegreesInTheOrderOfTokens) {
  const Layer layer = MakeLayer({.shape = {1, 8, DType::kF32}, .tokens = 6, .rho = 0.0});
  SettledSlots slots = SlotsOf(layer);
  slots.marks(0)[1].degree = 5;
  slots.marks(0)[4].degree = 3;
  std::vector<uint8_t> keep(6, 1);
  const std::vector<SlotPair> pairs = {{0, 1, 1.0F}, {2, 3, 1.0F}, {4, 1, 1.0F}};
  MergePairs(slots, 0, pairs, keep);
  EXPECT_EQ(keep, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(uint32_t{slots.marks(0)[1].degree}, 9u);
  EXPECT_EQ(uint32_t{slots.marks(0)[3].degree}, 2u);
  for (int64_t i = 0; i < 8; ++i) {
    const auto k = [&](const int64_t t) { return layer.rows().key(0, t)[i]; };
    const auto v = [&](const int64_t t) { return layer.rows().value(0, t)[i]; };
    EXPECT_EQ(slots.key(0, 1)[i], ((5.0F * k(1) + 1.0F * k(0)) + 3.0F * k(4)) / 9.0F);
    EXPECT_EQ(slots.value(0, 1)[i], ((5.0F * v(1) + 1.0F * v(0)) + 3.0F * v(4)) / 9.0F);
    EXPECT_EQ(slots.key(0, 3)[i], (k(3) + k(2)) / 2.0F);
    EXPECT_EQ(slots.key(0, 5)[i], k(5));
  }
}

// A head with `high` pairs at 0.9 and `low` at 0.5.
std::vector<float> Head(const int64_t high, const int64_t low) {
  std::vector<float> out(high, 0.9F);
  out.insert(out.end(), low, 0.5F);
  return out;
}

TEST(MergeSchedule, PaperTakesAFallingShareWhateverTheSimilarity) {
  MergeSchedule schedule({.share_max = 0.5, .is_paper = true, .share_step = 0.125});
  const std::vector<std::vector<float>> heads = {Head(0, 2048)};
  const auto pairs = [&](const int64_t round) {
    return schedule.Pairs({.similarities = heads, .slots = 4096, .need = 4096, .index = round, .rounds_max = 8});
  };
  EXPECT_EQ(pairs(0), 2048);
  EXPECT_EQ(pairs(1), 1536);
  EXPECT_EQ(pairs(3), 512);
  EXPECT_EQ(pairs(4), 0);
  EXPECT_EQ(pairs(7), 0);
}

TEST(MergeSchedule, FloorKeepsApartWhatIsUnlikeUntilTheBudgetAsksForIt) {
  const std::vector<std::vector<float>> heads = {Head(1300, 700), Head(1050, 950)};
  const auto pairs = [&](MergeSchedule& schedule, const int64_t need, const int64_t round) {
    return schedule.Pairs({.similarities = heads, .slots = 4096, .need = need, .index = round, .rounds_max = 8});
  };
  MergeSchedule schedule({});
  EXPECT_EQ(pairs(schedule, 4096, 0), 1024) << "the head with fewest similar pairs, whole pages";
  EXPECT_EQ(schedule.floor(), 0.8);
  EXPECT_EQ(pairs(schedule, 640, 1), 640) << "no more than needed";
  EXPECT_EQ(pairs(schedule, 1600, 7), 1600) << "in the last round all that is needed";
  EXPECT_LE(schedule.floor(), 0.5);
  MergeSchedule strict({.floor_min = 0.7});
  EXPECT_EQ(pairs(strict, 1600, 7), 1024) << "but nothing below the least floor";
  MergeSchedule impossible({.floor = 0.95, .floor_min = 0.95});
  EXPECT_EQ(pairs(impossible, 1600, 7), 0);
  MergeSchedule unlike({.floor = 0.95, .floor_min = 0.0});
  pairs(unlike, 64, 0);
  EXPECT_DOUBLE_EQ(unlike.floor(), 0.75) << "begins lower where the median pair is below the floor";
}

TEST(Centroid, WithoutMergesIsThePlainAttention) {
  const Layer layer = MakeLayer({.tokens = 500});
  const CompressedLayer view = Prefilled("centroid", layer, Budget::Share(1.0));
  EXPECT_FALSE(view.has_degrees());
  SplitMix64 random(1);
  for (int i = 0; i < 8; ++i) {
    const std::vector<float> q = QueryFor(layer, 0, 40 * i, 510, 1.0, 0.5, random);
    EXPECT_EQ(Attend(ViewRows(view).Head(0), q), Attend(FullRows(layer.rows(), 0), q));
  }
}

// Runs of 1 to 7 equal tokens: merging them must change nothing at all, which needs the log of unequal degrees.
TEST(Centroid, IsExactOnDuplicatesOfUnequalMultiplicity) {
  Layer layer = MakeLayer({.tokens = 1200, .rho = 0.0});
  SplitMix64 random(3);
  for (int64_t t = 4; t < 1100;) {
    const auto run = static_cast<int64_t>(random.Next() % 3 == 0 ? 7 : 1);
    for (int64_t i = 1; i < run && t + i < 1100; ++i) {
      std::copy_n(layer.keys.data() + t * 64, 64, layer.keys.data() + (t + i) * 64);
      std::copy_n(layer.values.data() + t * 64, 64, layer.values.data() + (t + i) * 64);
    }
    t += run;
  }
  const CompressedLayer view =
      Prefilled("centroid:floor=0.9999,floor_min=0.9999,outliers=0,encoding=dense", layer, Budget::Share(0.3));
  EXPECT_LT(view.slots(), 700);
  EXPECT_GT(view.missed_slots(), 0) << "what is not equal stays apart";
  std::map<uint32_t, int> degrees;
  for (int64_t s = 0; s < view.slots(); ++s) ++degrees[ViewRows(view).mark(0, s).degree];
  EXPECT_GE(degrees.size(), 3u) << "unequal multiplicities";
  std::vector<std::vector<float>> queries;
  for (int i = 0; i < 32; ++i) queries.push_back(QueryFor(layer, 0, random.Next() % 1100, 1210, 0.5, 0.5, random));
  const WeightedRows full = FullRows(layer.rows(), 0);
  EXPECT_LE(RelativeError(full, ViewRows(view).Head(0), queries), 1e-6);
  EXPECT_GE(RelativeError(full, ViewRows(view).Head(0, false), queries), 0.05);
}

TEST(Centroid, OutliersStayOutliersAndAlone) {
  const Layer layer = MakeLayer({.shape = {2, 64, DType::kBf16}, .tokens = 2400, .needles = 6, .needle_span = 8});
  const auto compressor = std::move(MakeCompressor("centroid:encoding=dense").value());
  const CompressContext context = {.budget = Budget::Share(0.3)};
  CompressedLayer view = compressor->Prefill(layer.shape, layer.rows(0, 2000), context);
  const auto outliers = [&] {
    std::vector<uint32_t> out;
    for (int64_t p = 0; p < view.body_pages(); ++p) {
      for (const SlotMark& mark : view.page_marks(p)) {
        if (mark.is_outlier == 0) continue;
        out.push_back(mark.position);
        EXPECT_EQ(uint32_t{mark.degree}, 1u);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  };
  const std::vector<uint32_t> first = outliers();
  EXPECT_GE(first.size(), 2u * 5 * 7) << "needles are found in both heads, but for few";
  for (int64_t tokens = 2000; tokens < 2400; tokens += 100) {
    view.Append(layer.rows(tokens, 100));
    compressor->Maintain(view, tokens + 100, context);
  }
  const std::vector<uint32_t> last = outliers();
  EXPECT_TRUE(std::includes(last.begin(), last.end(), first.begin(), first.end()));
  EXPECT_GT(last.size(), first.size()) << "the needle that came later";
}

TEST(Centroid, CountsTheSlotsItCouldNotMerge) {
  const Layer unlike = MakeLayer({.tokens = 2048, .rho = 0.0});
  const CompressedLayer missed = Prefilled("centroid:floor_min=0.6", unlike, Budget::Slots(512));
  EXPECT_GT(missed.missed_slots(), 1000);
  EXPECT_EQ(missed.missed_slots(), missed.slots() - 512);
  const Layer alike = MakeLayer({.tokens = 2048});
  for (const double share : {0.5, 0.25, 0.125}) {
    EXPECT_EQ(Prefilled("centroid", alike, Budget::Share(share)).missed_slots(), 0) << share;
  }
}

TEST(Centroid, DegreesAddUpAfterAnyOrderOfCalls) {
  const Layer layer = MakeLayer({.shape = {2, 16, DType::kBf16}, .tokens = 3000, .rho = 0.9, .needles = 5});
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SplitMix64 random(seed);
    const auto compressor =
        std::move(MakeCompressor(seed % 2 == 0 ? "centroid" : "centroid:recent=3,chunk=17").value());
    const CompressContext context = {.budget = Budget::Share(0.3 + 0.1 * static_cast<double>(seed % 4))};
    CompressedLayer view = compressor->Prefill(layer.shape, layer.rows(0, random.Next() % 1500), context);
    for (int step = 0; step < 60; ++step) {
      const auto room = layer.tokens - view.tokens();
      const auto provisional = view.tokens() - view.settled();
      switch (random.Next() % 4) {
        case 0:
        case 1:
          view.Append(layer.rows(view.tokens(), std::min<int64_t>(room, random.Next() % 60)));
          break;
        case 2:
          view.Truncate(view.settled() + static_cast<int64_t>(random.Next() % (provisional + 1)));
          break;
        case 3:
          compressor->Maintain(view, view.settled() + static_cast<int64_t>(random.Next() % (provisional + 1)), context);
          break;
      }
      view.CheckIntegrity();  // Sums of degrees among all else.
    }
  }
}

}  // namespace
}  // namespace invar::cache
