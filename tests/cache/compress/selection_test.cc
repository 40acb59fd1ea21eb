// What each kind that drops tokens keeps, on layers where it can be said by hand.
#include <gtest/gtest.h>

#include <set>

#include "cache/compressor.h"
#include "tests/cache/compress/generators.h"

namespace invar::cache {
namespace {

constexpr int64_t kTokens = 200;
constexpr kernels::PageShape kShape = {.kv_heads = 2, .head_dim = 64, .dense = kernels::DType::kF32};

const Layer& RandomLayer() {
  static const Layer layer = MakeLayer({.shape = kShape, .tokens = kTokens, .rho = 0.0});
  return layer;
}

// Positions that stay in a head.
std::set<uint32_t> Kept(const CompressedLayer& view, const int64_t h) {
  std::set<uint32_t> out;
  for (int64_t p = 0; p < view.body_pages(); ++p) {
    for (int64_t s = 0; s < 64; ++s) out.insert(view.page_marks(p)[h * 64 + s].position);
  }
  for (int64_t s = 0; s < view.tail_slots(); ++s) out.insert(view.tail_marks()[s * kShape.kv_heads + h].position);
  return out;
}

CompressedLayer Prefilled(const std::string& kind, const Observation& observation, const int64_t slots) {
  return std::move(MakeCompressor(kind).value())
      ->Prefill(kShape, RandomLayer().rows(), {.observation = observation, .budget = Budget::Slots(slots)});
}

TEST(Streaming, KeepsSinksAndTheLatest) {
  const CompressedLayer view = Prefilled("streaming:sinks=2,recent=3", {}, 6);
  EXPECT_EQ(Kept(view, 0), (std::set<uint32_t>{0, 1, 196, 197, 198, 199}));
  EXPECT_EQ(Kept(view, 1), Kept(view, 0));
}

TEST(KvZip, KeepsByHeadWhatTheSecondPassLookedAt) {
  std::vector<float> largest(2 * kTokens, 0.1F);
  largest[50] = largest[60] = 5.0F;
  largest[kTokens + 70] = largest[kTokens + 80] = 5.0F;
  const CompressedLayer view = Prefilled("kvzip:sinks=1,recent=2", {.second_pass = largest}, 5);
  EXPECT_EQ(Kept(view, 0), (std::set<uint32_t>{0, 50, 60, 198, 199}));
  EXPECT_EQ(Kept(view, 1), (std::set<uint32_t>{0, 70, 80, 198, 199}));
}

// Queries of every eighth token. Those of the first half look for one token, later ones for another; and some of the
// first half for one that comes after them, which they cannot see.
TEST(H2o, KeepsWhatQueriesOfAllTokensLookedAt) {
  constexpr int64_t kStride = 8;
  SplitMix64 random(7);
  std::vector<float> queries;
  for (int64_t q = 0; q < 2; ++q) {
    for (int64_t token = 0; token < kTokens; token += kStride) {
      const int64_t early = token % (2 * kStride) == 0 ? 5 + q : 190;
      const std::vector<float> query =
          QueryFor(RandomLayer(), q, token < kTokens / 2 ? early : 95 + q, token, 2.0, 0.1, random);
      queries.insert(queries.end(), query.begin(), query.end());
    }
  }
  const Observation observation = {.query_heads = 2, .spread_queries = queries, .spread_stride = kStride};
  const CompressedLayer view = Prefilled("h2o:sinks=0,recent=1", observation, 3);
  EXPECT_EQ(Kept(view, 0), (std::set<uint32_t>{5, 95, 199}));
  EXPECT_EQ(Kept(view, 1), (std::set<uint32_t>{6, 96, 199}));
}

TEST(SpreadStride, IsTheSmallestPowerOfTwoThatDoes) {
  EXPECT_EQ(SpreadStride(0, 4), 1);
  EXPECT_EQ(SpreadStride(4, 4), 1);
  EXPECT_EQ(SpreadStride(5, 4), 2);
  EXPECT_EQ(SpreadStride(8, 4), 2);
  EXPECT_EQ(SpreadStride(9, 4), 4);
  EXPECT_EQ(SpreadStride(8192, 128), 64);
}

// Queries of four heads, two a KV head: heads of KV head 0 look for token 40, of KV head 1 for token 90.
std::vector<float> Queries(const int64_t window) {
  SplitMix64 random(7);
  std::vector<float> out;
  for (int64_t q = 0; q < 4; ++q) {
    for (int64_t w = 0; w < window; ++w) {
      const std::vector<float> query =
          QueryFor(RandomLayer(), q / 2, q < 2 ? 40 : 90, kTokens - window + w, 2.0, 0.1, random);
      out.insert(out.end(), query.begin(), query.end());
    }
  }
  return out;
}

TEST(SnapKv, KeepsWhatTheWindowLooksAtWithItsNeighbours) {
  const std::vector<float> queries = Queries(16);
  const Observation observation = {.query_heads = 4, .queries = queries, .window = 16};
  const CompressedLayer view = Prefilled("snapkv:sinks=0,recent=1,pool=5", observation, 6);
  EXPECT_EQ(Kept(view, 0), (std::set<uint32_t>{38, 39, 40, 41, 42, 199}));
  EXPECT_EQ(Kept(view, 1), (std::set<uint32_t>{88, 89, 90, 91, 92, 199}));
  EXPECT_EQ(Kept(Prefilled("snapkv:sinks=0,recent=1,pool=1", observation, 2), 1), (std::set<uint32_t>{90, 199}));
}

TEST(Tova, KeepsTheSameInEveryHead) {
  const std::vector<float> queries = Queries(1);
  const CompressedLayer view = Prefilled("tova", {.query_heads = 4, .queries = queries, .window = 1}, 3);
  EXPECT_EQ(Kept(view, 0), (std::set<uint32_t>{40, 90, 199}));
  EXPECT_EQ(Kept(view, 1), Kept(view, 0));
}

TEST(SnapKv, QueriesDoNotSeeWhatComesAfterThem) {
  // All queries but the last look for the last token, which they cannot see.
  constexpr int64_t kWindow = 3;
  SplitMix64 random(7);
  std::vector<float> queries;
  for (int64_t q = 0; q < 2; ++q) {
    for (int64_t w = 0; w < kWindow; ++w) {
      const int64_t target = w < kWindow - 1 ? kTokens - 1 : 30;
      const std::vector<float> query = QueryFor(RandomLayer(), q, target, kTokens - kWindow + w, 2.0, 0.1, random);
      queries.insert(queries.end(), query.begin(), query.end());
    }
  }
  const Observation observation = {.query_heads = 2, .queries = queries, .window = kWindow};
  const CompressedLayer view = Prefilled("snapkv:sinks=0,recent=0,pool=1", observation, 1);
  EXPECT_EQ(Kept(view, 0), (std::set<uint32_t>{30}));
}

TEST(Budgets, CountAllSlots) {
  const ViewBytes rows{.full_row = 100, .tail_row = 100, .page = 6400};
  EXPECT_EQ(Budget::Share(0.25).Of(1001, rows, 64), 250);
  EXPECT_EQ(Budget::Share(2.0).Of(10, rows, 64), 10);
  EXPECT_EQ(Budget::Share(-1.0).Of(10, rows, 64), 0);
  EXPECT_EQ(Budget::Slots(7).Of(10, rows, 64), 7);
  EXPECT_EQ(Budget::Slots(70).Of(10, rows, 64), 10);
}

TEST(Budgets, AreBytesSoFewBitsLeaveMoreSlots) {
  const ViewBytes degrees{.full_row = 100, .tail_row = 104, .page = 6656};
  EXPECT_EQ(Budget::Share(0.25).Of(1040, degrees, 64), 250) << "what a slot takes beside its rows counts";
  const ViewBytes quarter{.full_row = 100, .tail_row = 100, .page = 1600};
  EXPECT_EQ(Budget::Share(0.25).Of(1000, quarter, 90), 10 * 64 + 90) << "whole pages, and the rows behind them";
  EXPECT_EQ(Budget::Share(0.25).Of(100, quarter, 90), 25) << "not even the tail fits";
  EXPECT_EQ(Budget::Share(0.9).Of(200, quarter, 90), 200);
  EXPECT_TRUE(Budget::Share(0.25).HasPagesForAll(quarter));
  EXPECT_FALSE(Budget::Share(0.24).HasPagesForAll(quarter));
  EXPECT_FALSE(Budget::Slots(1000).HasPagesForAll(quarter)) << "says nothing of bytes";
}

}  // namespace
}  // namespace invar::cache
