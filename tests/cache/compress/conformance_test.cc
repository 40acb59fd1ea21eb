// What every kind of compressor must do, whatever it keeps: the registry's kinds as they are, and some with other
// settings.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/cache/compress/observed.h"
#include "tests/cache/compress/plain_attention.h"

namespace invar::cache {
namespace {

using kernels::ConstKvRows;
using kernels::DType;
using kernels::KvEncoding;

std::vector<std::string> Kinds() {
  std::vector<std::string> kinds(CompressorNames().begin(), CompressorNames().end());
  for (const char* more :
       {"snapkv:encoding=kivi4", "streaming:encoding=int8,recent=10,sinks=0", "h2o:encoding=kivi2",
        "centroid:encoding=k8v4", "centroid:schedule=paper,outliers=0,likeness=cosine,chunk=64,encoding=dense",
        "snapkv:encoding=auto", "value_merge:encoding=auto", "centroid:recent=7,sinks=1,chunk=16,split=halves"}) {
    kinds.push_back(more);
  }
  return kinds;
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

constexpr kernels::PageShape kShape = {.kv_heads = 2, .head_dim = 32, .dense = DType::kBf16};
constexpr int64_t kTokens = 1000;
constexpr int64_t kMore = 400;  // Tokens that come after the prefill.

const Layer& TestLayer() {
  static const Layer layer = MakeLayer({.shape = kShape, .tokens = kTokens + kMore, .needles = 3, .seed = 11});
  return layer;
}

class Compressors : public testing::TestWithParam<std::string> {
 protected:
  Compressors() : compressor_(std::move(MakeCompressor(GetParam()).value())) {}

  const CompressorTraits& traits() const { return compressor_->traits(); }
  CompressContext Context(const Observed& observed, const Budget budget) const {
    return {.layer = LayerIndex(3), .observation = observed.view(), .budget = budget};
  }
  CompressedLayer Prefilled(const int64_t tokens, const Budget budget) const {
    const Observed observed(TestLayer(), tokens, 5);
    return compressor_->Prefill(kShape, TestLayer().rows(0, tokens), Context(observed, budget));
  }
  static int64_t FullBytes(const int64_t tokens) { return tokens * 2 * kShape.kv_heads * kShape.head_dim * 2; }

  std::unique_ptr<Compressor> compressor_;
};

bool SameRow(const float* a, const float* b) { return std::equal(a, a + kShape.head_dim, b); }

TEST_P(Compressors, MeetTheBudget) {
  for (const int64_t slots : {kTokens, int64_t{300}, int64_t{0}}) {
    const CompressedLayer view = Prefilled(kTokens, Budget::Slots(slots));
    const int64_t least = traits().sinks + traits().recent;
    const int64_t target = traits().keeps_all_tokens ? kTokens : std::max(slots, least);
    EXPECT_EQ(view.missed_slots(), std::max<int64_t>(0, view.slots() - target));
    if (traits().family != CompressorFamily::kMerge) {
      EXPECT_EQ(view.slots(), target);
    } else if (target >= 250) {  // Budgets that keys of this similarity can be merged down to.
      EXPECT_LE(view.slots(), target);
      EXPECT_GT(view.slots(), target - 64) << "no more than a page too few";
    }
    EXPECT_EQ(view.tokens(), kTokens);
    EXPECT_EQ(view.settled(), kTokens);
    view.CheckIntegrity();
  }
}

TEST_P(Compressors, MeetTheBudgetInBytes) {
  if (traits().keeps_all_tokens) return;
  for (const double share : {0.7, 0.5, 0.3}) {
    const CompressedLayer view = Prefilled(kTokens, Budget::Share(share));
    const double limit = share * static_cast<double>(FullBytes(kTokens));
    EXPECT_EQ(view.missed_slots(), 0) << share;
    EXPECT_LE(view.bytes(), limit) << share;
    if (view.slots() == kTokens) continue;
    // A page too few, and rows behind the pages that are counted before they are there.
    EXPECT_GT(view.bytes() + 2 * FullBytes(64), limit) << share;
  }
}

TEST_P(Compressors, KeepSinksRecentAndOrder) {
  const CompressedLayer view = Prefilled(kTokens, Budget::Share(0.3));
  const ViewRows rows(view);
  EXPECT_GE(view.tail_slots(), std::min<int64_t>(traits().recent, kTokens));
  for (int64_t h = 0; h < kShape.kv_heads; ++h) {
    std::set<uint32_t> positions;
    for (int64_t s = 0; s < view.slots(); ++s) {
      EXPECT_TRUE(positions.empty() || rows.mark(h, s).position > *positions.rbegin());
      positions.insert(rows.mark(h, s).position);
      if (rows.mark(h, s).degree > 1) {
        EXPECT_GE(rows.mark(h, s).position, traits().sinks);
        EXPECT_LT(rows.mark(h, s).position, kTokens - traits().recent);
      }
    }
    for (uint32_t p = 0; p < traits().sinks; ++p) EXPECT_EQ(positions.count(p), 1u);
    for (uint32_t p = kTokens - traits().recent; p < kTokens; ++p) EXPECT_EQ(positions.count(p), 1u);
  }
}

TEST_P(Compressors, KeepRowsExactlyWhereTheyAreNeitherMergedNorEncoded) {
  const CompressedLayer view = Prefilled(kTokens, Budget::Share(0.3));
  const ViewRows rows(view);
  int64_t exact = 0;
  for (int64_t h = 0; h < kShape.kv_heads; ++h) {
    for (int64_t s = 0; s < view.slots(); ++s) {
      const bool is_encoded = view.encoding() != KvEncoding::kDense && s < view.body_slots();
      if (is_encoded || rows.mark(h, s).degree > 1) continue;
      const uint32_t position = rows.mark(h, s).position;
      ASSERT_TRUE(SameRow(rows.key(h, s), TestLayer().rows().key(h, position))) << h << ' ' << s;
      ASSERT_TRUE(SameRow(rows.value(h, s), TestLayer().rows().value(h, position)));
      ++exact;
    }
  }
  EXPECT_GE(exact, kShape.kv_heads * std::min<int64_t>(view.slots(), traits().recent));
}

TEST_P(Compressors, StandForAllTokensWhereTheyMergeAndForOneEachElsewhere) {
  const CompressedLayer view = Prefilled(kTokens, Budget::Share(0.25));
  const ViewRows rows(view);
  for (int64_t h = 0; h < kShape.kv_heads; ++h) {
    int64_t sum = 0;
    for (int64_t s = 0; s < view.slots(); ++s) sum += rows.mark(h, s).degree;
    EXPECT_EQ(sum, traits().family == CompressorFamily::kMerge ? kTokens : view.slots());
  }
  EXPECT_EQ(view.has_degrees(), traits().family == CompressorFamily::kMerge);
}

TEST_P(Compressors, GiveTheSameBytesForAnyNumberOfThreads) {
  const Observed observed(TestLayer(), kTokens, 5);
  CompressContext context = Context(observed, Budget::Share(0.3));
  const std::vector<std::byte> expected = compressor_->Prefill(kShape, TestLayer().rows(0, kTokens), context).Export();
  for (const int threads : {1, 3}) {
    WorkerPool workers(threads);
    context.workers = &workers;
    EXPECT_EQ(compressor_->Prefill(kShape, TestLayer().rows(0, kTokens), context).Export(), expected) << threads;
  }
  // Another compressor object, rows slot by slot instead of head by head.
  std::vector<float> keys;
  std::vector<float> values;
  const ConstKvRows rows = TestLayer().rows();
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kShape.kv_heads; ++h) {
      keys.insert(keys.end(), rows.key(h, t), rows.key(h, t) + kShape.head_dim);
      values.insert(values.end(), rows.value(h, t), rows.value(h, t) + kShape.head_dim);
    }
  }
  context.workers = nullptr;
  const auto again = std::move(MakeCompressor(GetParam()).value());
  const ConstKvRows by_slot = {keys.data(), values.data(), kTokens, kShape.head_dim,
                               int64_t{kShape.kv_heads} * kShape.head_dim};
  EXPECT_EQ(again->Prefill(kShape, by_slot, context).Export(), expected);
}

TEST_P(Compressors, SeeQueriesOnlyWhereTheySaySo) {
  if (!traits().query_agnostic) return;  // The others are asked below.
  Observed other(TestLayer(), kTokens, 6);
  other.second_pass = Observed(TestLayer(), kTokens, 5).second_pass;
  EXPECT_EQ(
      compressor_->Prefill(kShape, TestLayer().rows(0, kTokens), Context(other, Budget::Share(0.3))).ContentHash(),
      Prefilled(kTokens, Budget::Share(0.3)).ContentHash());
}

TEST_P(Compressors, AreNotTouchedByRowsThatWereForgotten) {
  CompressedLayer view = Prefilled(kTokens, Budget::Share(0.5));
  const CompressedLayer before = view;
  view.Append(TestLayer().rows(kTokens, 9));
  EXPECT_EQ(view.tokens(), kTokens + 9);
  EXPECT_EQ(view.settled(), kTokens);
  EXPECT_EQ(view.slots(), before.slots() + 9);
  view.CheckIntegrity();
  view.Truncate(kTokens + 4);
  view.CheckIntegrity();
  view.Truncate(kTokens);
  EXPECT_EQ(view, before);
}

TEST_P(Compressors, TakeVerifiedRowsInThePlaceOfProvisionalOnes) {
  CompressedLayer right = Prefilled(kTokens, Budget::Share(0.5));
  CompressedLayer wrong = right;
  right.Append(TestLayer().rows(kTokens, 8));
  wrong.Append(TestLayer().rows(kTokens, 3));
  wrong.Append(TestLayer().rows(0, 5));  // Not what the verifier will say.
  EXPECT_NE(wrong.ContentHash(), right.ContentHash());
  wrong.ReplaceTail(kTokens + 3, TestLayer().rows(kTokens + 3, 5));
  EXPECT_EQ(wrong.ContentHash(), right.ContentHash());
  const Observed observed(TestLayer(), kTokens + 8, 9);
  for (CompressedLayer* view : {&right, &wrong}) {
    compressor_->Maintain(*view, kTokens + 8, Context(observed, Budget::Share(0.5)));
  }
  EXPECT_EQ(wrong, right);
}

TEST_P(Compressors, HoldTheBudgetOverRoundsAndNeverGrowInOne) {
  const Budget budget = Budget::Share(0.5);
  CompressedLayer view = Prefilled(kTokens, budget);
  SplitMix64 random(4);
  while (view.tokens() + 40 <= kTokens + kMore) {
    const int64_t drafted = 1 + static_cast<int64_t>(random.Next() % 40);
    const int64_t first = view.tokens();
    view.Append(TestLayer().rows(first, drafted));
    const int64_t accepted = first + static_cast<int64_t>(random.Next() % (drafted + 1));
    view.Truncate(accepted);
    view.Append(TestLayer().rows(accepted, 2));  // Drafted already, not verified.
    const int64_t bytes = view.bytes();
    const Observed observed(TestLayer(), accepted, random.Next());
    compressor_->Maintain(view, accepted, Context(observed, budget));
    EXPECT_LE(view.bytes(), bytes);
    EXPECT_EQ(view.settled(), accepted);
    const double share = traits().keeps_all_tokens ? 1.0 : 0.5;
    EXPECT_LE(view.bytes(), share * static_cast<double>(FullBytes(accepted)) + static_cast<double>(FullBytes(3)));
    EXPECT_EQ(view.missed_slots(), 0);
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t slot = view.tail_slots() - 2 + i;
      for (int64_t h = 0; h < kShape.kv_heads; ++h) {
        ASSERT_TRUE(SameRow(view.tail().key(h, slot), TestLayer().rows().key(h, accepted + i)));
      }
    }
    view.Truncate(accepted);
  }
  EXPECT_GT(view.tokens(), kTokens + kMore / 2);
  EXPECT_LE(view.tail_slots(), traits().recent + 63 + (traits().family == CompressorFamily::kMerge ? 64 : 0));
}

TEST_P(Compressors, ComeBackFromTheirBytes) {
  CompressedLayer view = Prefilled(kTokens, Budget::Share(0.3));
  view.Append(TestLayer().rows(kTokens, 5));
  const std::vector<std::byte> bytes = view.Export();
  const StatusOr<CompressedLayer> back = CompressedLayer::Import(bytes, kShape, compressor_->provenance());
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, view);
  EXPECT_EQ(back->ContentHash(), view.ContentHash());
  EXPECT_EQ(back->bytes(), view.bytes());
  EXPECT_EQ(back->has_degrees(), view.has_degrees());
  EXPECT_EQ(CompressedLayer::Import(bytes, kShape, "other").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CompressedLayer::Import(bytes, {2, 16, DType::kBf16}, compressor_->provenance()).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_P(Compressors, RefuseDamagedBytes) {
  const std::vector<std::byte> bytes = Prefilled(300, Budget::Share(0.5)).Export();
  SplitMix64 random(8);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[random.Next() % damaged.size()] ^= static_cast<std::byte>(1U << (random.Next() % 8));
    EXPECT_EQ(CompressedLayer::Import(damaged, kShape, compressor_->provenance()).status().code(),
              StatusCode::kDataLoss);
  }
  for (const size_t length : {size_t{0}, size_t{31}, size_t{32}, size_t{100}, bytes.size() - 1}) {
    EXPECT_EQ(
        CompressedLayer::Import(std::span(bytes).first(length), kShape, compressor_->provenance()).status().code(),
        StatusCode::kDataLoss);
  }
}

TEST_P(Compressors, TakeAnyLengthAndBudget) {
  for (const int64_t tokens : {0, 1, 2, 63, 64, 65, 128, 129, 200}) {
    for (const Budget& budget :
         {Budget::Share(1.0), Budget::Share(0.5), Budget::Share(0.0), Budget::Share(7.0), Budget::Share(std::nan("")),
          Budget::Slots(0), Budget::Slots(1), Budget::Slots(1 << 20)}) {
      CompressedLayer view = Prefilled(tokens, budget);
      view.CheckIntegrity();
      EXPECT_EQ(view.tokens(), tokens);
      EXPECT_LE(view.slots(), tokens);
      view.Append(TestLayer().rows(tokens, 1));
      const Observed observed(TestLayer(), tokens + 1, 3);
      compressor_->Maintain(view, tokens + 1, Context(observed, budget));
      view.CheckIntegrity();
      EXPECT_EQ(view.settled(), tokens + 1);
    }
  }
}

TEST_P(Compressors, StandGarbage) {
  Layer layer = MakeLayer({.shape = kShape, .tokens = 400, .seed = 2});
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       3e38F,
                       1e-44F,
                       0.0F};
  for (size_t i = 0; i < layer.keys.size(); i += 37) layer.keys[i] = layer.values[i / 2] = bad[i % std::size(bad)];
  std::fill_n(layer.keys.begin() + 100 * kShape.head_dim, 50 * kShape.head_dim, 0.0F);
  Observed observed(layer, 400, 1);
  for (std::vector<float>* x :
       {&observed.queries, &observed.spread, &observed.second_pass, &observed.mean, &observed.covariance}) {
    for (size_t i = 0; i < x->size(); i += 41) (*x)[i] = bad[i % std::size(bad)];
  }
  const auto hash = [&] {
    CompressedLayer view =
        compressor_->Prefill(kShape, layer.rows(0, 300), Context(Observed(layer, 300, 1), Budget::Share(0.4)));
    view.Append(layer.rows(300, 100));
    compressor_->Maintain(view, 400, Context(observed, Budget::Share(0.4)));
    view.CheckIntegrity();
    EXPECT_TRUE(CompressedLayer::Import(view.Export(), kShape, compressor_->provenance()).ok());
    return view.ContentHash();
  };
  EXPECT_EQ(hash(), hash());
}

TEST_P(Compressors, GoByRecencyWhereNothingWasObserved) {
  const CompressContext blind = {.layer = LayerIndex(3), .budget = Budget::Slots(500)};
  CompressedLayer view = compressor_->Prefill(kShape, TestLayer().rows(0, kTokens), blind);
  EXPECT_EQ(compressor_->IsShownEnough({}), !traits().second_pass && traits().spread_queries == 0 &&
                                                !traits().query_moments && traits().observation_window == 0);
  if (compressor_->IsShownEnough({})) {
    EXPECT_EQ(view, Prefilled(kTokens, Budget::Slots(500)));
    return;
  }
  const auto latest = ViewRows(view).mark(0, traits().sinks).position;
  EXPECT_EQ(latest, kTokens - view.slots() + traits().sinks) << "sinks, then the latest";
  view.Append(TestLayer().rows(kTokens, 100));
  compressor_->Maintain(view, kTokens + 100, blind);
  EXPECT_EQ(view.slots(), 600) << "nothing is dropped unseen";
  EXPECT_EQ(view.missed_slots(), 100) << "and it is counted";
}

TEST_P(Compressors, SayWhoMadeTheView) {
  EXPECT_EQ(Prefilled(10, Budget::Share(1.0)).provenance(), compressor_->provenance());
  const auto again = MakeCompressor(compressor_->provenance());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ((*again)->provenance(), compressor_->provenance()) << "canonical text reads back as itself";
}

INSTANTIATE_TEST_SUITE_P(All, Compressors, testing::ValuesIn(Kinds()), NameOf);

// All but random_drop, whose noise is keyed by the head.
class CompressorsOfHeads : public Compressors {};

TEST_P(CompressorsOfHeads, DoNotMindTheOrderOfHeads) {
  Layer swapped = TestLayer();
  const auto half = static_cast<int64_t>(swapped.keys.size() / 2);
  std::rotate(swapped.keys.begin(), swapped.keys.begin() + half, swapped.keys.end());
  std::rotate(swapped.values.begin(), swapped.values.begin() + half, swapped.values.end());
  Observed observed(TestLayer(), kTokens, 5);
  for (std::vector<float>* x :
       {&observed.queries, &observed.spread, &observed.second_pass, &observed.mean, &observed.covariance}) {
    std::rotate(x->begin(), x->begin() + static_cast<int64_t>(x->size() / 2), x->end());
  }
  const CompressedLayer view = Prefilled(kTokens, Budget::Share(0.3));
  const CompressedLayer other =
      compressor_->Prefill(kShape, swapped.rows(0, kTokens), Context(observed, Budget::Share(0.3)));
  const ViewRows a(view);
  const ViewRows b(other);
  ASSERT_EQ(view.slots(), other.slots());
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t s = 0; s < view.slots(); ++s) {
      ASSERT_EQ(a.mark(h, s), b.mark(1 - h, s)) << h << ' ' << s;
      ASSERT_TRUE(SameRow(a.key(h, s), b.key(1 - h, s)));
      ASSERT_TRUE(SameRow(a.value(h, s), b.value(1 - h, s)));
    }
  }
}

std::vector<std::string> KindsWithoutNoise() {
  std::vector<std::string> kinds = Kinds();
  std::erase(kinds, "random_drop");
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(All, CompressorsOfHeads, testing::ValuesIn(KindsWithoutNoise()), NameOf);

TEST(RandomDrop, ChoosesByLayerHeadAndSeedAndThinsOutWhatItChose) {
  const auto positions = [](const char* kind, const int32_t layer, const double share) {
    const auto compressor = std::move(MakeCompressor(kind).value());
    const CompressedLayer view = compressor->Prefill(kShape, TestLayer().rows(0, kTokens),
                                                     {.layer = LayerIndex(layer), .budget = Budget::Share(share)});
    std::vector<std::set<uint32_t>> out(2);
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t s = 0; s < view.slots(); ++s) out[h].insert(ViewRows(view).mark(h, s).position);
    }
    return out;
  };
  const auto some = positions("random_drop", 1, 0.5);
  EXPECT_NE(some[0], some[1]);
  EXPECT_NE(some, positions("random_drop", 2, 0.5));
  EXPECT_NE(some, positions("random_drop:seed=2", 1, 0.5));
  const auto fewer = positions("random_drop", 1, 0.25);
  EXPECT_TRUE(std::includes(some[0].begin(), some[0].end(), fewer[0].begin(), fewer[0].end()));
}

}  // namespace
}  // namespace invar::cache
