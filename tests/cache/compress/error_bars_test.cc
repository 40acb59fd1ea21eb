// How far attention over a view lies from attention over all rows, on made-up layers of 4,096 tokens: relative error of
// the output, queries still to come, mean of three seeds. The bars hold the order of methods and the worth of each part
// of CentroidKV; they say nothing about a model.
#include <gtest/gtest.h>

#include "cache/compressor.h"
#include "tests/cache/compress/generators.h"
#include "tests/cache/compress/plain_attention.h"

namespace invar::cache {
namespace {

constexpr int kSeeds = 3;
const std::string kMerging = "centroid:encoding=dense";
const std::string kPaper = "centroid:schedule=paper,outliers=0,likeness=cosine,chunk=64,encoding=dense";

struct Errors {
  double all = 0.0;     // Of queries for any tokens.
  double needle = 0.0;  // Of queries for needles.
};

// Of eight queries seven look into 32 spans that the window looks into too, one anywhere: what was observed says much
// about what comes, but not all.
struct Scene {
  Scene(const uint64_t seed, const int32_t needles)
      : layer(MakeLayer({.needles = needles, .needle_span = 32, .seed = seed})) {
    SplitMix64 random(seed + 100);
    std::vector<int64_t> spans;
    for (int i = 0; i < 32; ++i) spans.push_back(static_cast<int64_t>(random.Next() % (layer.tokens - 16)));
    const auto target = [&] {
      if (random.Next() % 8 != 0) return spans[random.Next() % 32] + static_cast<int64_t>(random.Next() % 16);
      return static_cast<int64_t>(random.Next() % layer.tokens);
    };
    for (int64_t w = 0; w < 64; ++w) {
      const int64_t own = layer.tokens - 64 + w;
      const std::vector<float> q = QueryFor(layer, 0, std::min(target(), own), own, 1.0, 0.5, random);
      window.insert(window.end(), q.begin(), q.end());
    }
    for (int64_t i = 0; i < 96; ++i) {
      queries.push_back(QueryFor(layer, 0, target(), layer.tokens + i, 1.0, 0.5, random));
    }
    for (size_t i = 0; i < layer.needles.size(); i += 5) {
      needle_queries.push_back(QueryFor(layer, 0, layer.needles[i], layer.tokens + 5, 2.0, 0.5, random));
      queries.push_back(needle_queries.back());
    }
    full = FullRows(layer.rows(), 0);
  }

  Layer layer;
  std::vector<float> window;
  std::vector<std::vector<float>> queries;
  std::vector<std::vector<float>> needle_queries;
  WeightedRows full;
};

const std::vector<Scene>& Scenes(const int32_t needles) {
  const auto make = [](const int32_t count) {
    std::vector<Scene> scenes;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) scenes.emplace_back(seed, count);
    return scenes;
  };
  static const std::vector<Scene> plain = make(0);
  static const std::vector<Scene> with_needles = make(16);
  return needles == 0 ? plain : with_needles;
}

Errors ErrorsOf(const std::string& kind, const double share, const int32_t needles, const bool log_degrees = true) {
  const auto compressor = std::move(MakeCompressor(kind).value());
  Errors errors;
  for (const Scene& scene : Scenes(needles)) {
    const CompressContext context = {.observation = {.query_heads = 1, .queries = scene.window, .window = 64},
                                     .budget = Budget::Share(share)};
    const CompressedLayer view = compressor->Prefill(scene.layer.shape, scene.layer.rows(), context);
    EXPECT_EQ(view.missed_slots(), 0) << kind;
    const ViewRows view_rows(view);
    const WeightedRows rows = view_rows.Head(0, log_degrees);
    errors.all += RelativeError(scene.full, rows, scene.queries) / kSeeds;
    if (needles > 0) errors.needle += RelativeError(scene.full, rows, scene.needle_queries) / kSeeds;
  }
  std::printf("%5.3f %-50s all %.3f needle %.3f\n", share, kind.c_str(), errors.all, errors.needle);
  return errors;
}

TEST(ErrorBars, CentroidsBeatDroppingOnLocalKeys) {
  const struct {
    double share;
    double most;
  } bars[] = {{0.5, 0.06}, {0.25, 0.10}, {0.125, 0.15}};
  for (const auto& bar : bars) {
    const double centroid = ErrorsOf(kMerging, bar.share, 0).all;
    EXPECT_LE(centroid, bar.most);
    EXPECT_LE(centroid, ErrorsOf("snapkv", bar.share, 0).all / 3);
    EXPECT_LE(centroid, ErrorsOf("streaming", bar.share, 0).all / 4);
    EXPECT_LE(centroid, ErrorsOf("random_drop", bar.share, 0).all / 2);
    EXPECT_GE(ErrorsOf(kMerging, bar.share, 0, false).all, 2 * centroid) << "without log degrees";
  }
}

TEST(ErrorBars, AlternatingBeatsHalvesTwice) {
  for (const double share : {0.5, 0.25}) {
    EXPECT_GE(ErrorsOf(kPaper + ",split=halves", share, 0).all, 2 * ErrorsOf(kPaper, share, 0).all);
  }
}

TEST(ErrorBars, AFloorSavesNeedlesThatAFixedShareDestroys) {
  const Errors fixed = ErrorsOf(kPaper, 0.25, 16);
  EXPECT_GE(fixed.all, 0.25) << "or the test shows nothing";
  EXPECT_GE(fixed.needle, 0.8);
  const Errors ours = ErrorsOf(kMerging, 0.25, 16);
  EXPECT_LE(ours.all, 0.12);
  EXPECT_LE(ours.needle, 0.25);
}

// Where the floor has to fall, what protects a needle is that it was judged before.
TEST(ErrorBars, JudgedOutliersAreSavedEvenFromAFixedShare) {
  const Errors fixed = ErrorsOf(kPaper, 0.25, 16);
  const Errors judged =
      ErrorsOf("centroid:schedule=paper,outliers=0.2,likeness=cosine,chunk=64,encoding=dense", 0.25, 16);
  EXPECT_LE(judged.needle, 0.75 * fixed.needle);
}

// What CentroidKV is measured against: merging values alone, and clusters without regard to the text's order.
TEST(ErrorBars, CentroidsBeatMergingValuesAlone) {
  for (const double share : {0.5, 0.25}) {
    const double centroid = ErrorsOf(kMerging, share, 0).all;
    EXPECT_LE(centroid, ErrorsOf("value_merge", share, 0).all);
    EXPECT_LE(ErrorsOf("kmeans", share, 0).all, ErrorsOf("random_drop", share, 0).all);
  }
  ErrorsOf("kmeans", 0.25, 16);
  ErrorsOf("value_merge", 0.25, 16);
}

TEST(ErrorBars, EncodingsComposeWithMerging) {
  const double dense = ErrorsOf(kMerging, 0.5, 0).all;
  // Rows are floats here: about as many slots in a fourth and in a seventh of the bytes.
  EXPECT_LE(ErrorsOf("centroid:encoding=int8", 0.14, 0).all, dense + 0.01);
  EXPECT_LE(ErrorsOf("centroid:encoding=kivi4", 0.1, 0).all, 0.1);
}

// A budget is bytes: few bits for many slots lose less than many bits for few.
TEST(ErrorBars, ChoosingTheEncodingByTheBudgetLosesLess) {
  for (const double share : {0.5, 0.25, 0.125}) {
    EXPECT_LE(ErrorsOf("centroid", share, 0).all, ErrorsOf(kMerging, share, 0).all) << share;
    const Errors ours = ErrorsOf("centroid", share, 16);
    const Errors paper = ErrorsOf(kPaper, share, 16);
    EXPECT_LE(ours.all, 0.5 * paper.all) << share;
    EXPECT_LE(ours.needle, 0.5 * paper.needle) << share;
  }
}

TEST(ErrorBars, QuantisersErrInTheOrderOfTheirBits) {
  const double int8 = ErrorsOf("int8", 1.0, 0).all;
  const double k8v4 = ErrorsOf("k8v4", 1.0, 0).all;
  const double kivi4 = ErrorsOf("kivi4", 1.0, 0).all;
  const double kivi2 = ErrorsOf("kivi2", 1.0, 0).all;
  EXPECT_EQ(ErrorsOf("noop", 0.1, 0).all, 0.0);
  EXPECT_LE(int8, 0.01);
  EXPECT_LE(int8, k8v4);
  EXPECT_LE(k8v4, kivi4);
  EXPECT_LE(kivi4, 0.1);
  EXPECT_LE(kivi4, kivi2);
  EXPECT_LE(kivi2, 0.5);
}

}  // namespace
}  // namespace invar::cache
