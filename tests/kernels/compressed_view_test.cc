// Attention over compressed views: the dense kernel's bits wherever the view says the same rows, what the decoded rows
// give otherwise, and degrees that stand for so many equal positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/dense_page.h"
#include "tests/kernels/rig.h"

namespace invar::kernels {
namespace {

constexpr AttentionShape kShape{.heads = 4, .kv_heads = 2, .head_dim = 36, .window = 0, .scale = 0.2F};
constexpr int32_t kDim = kShape.head_dim;
constexpr int32_t kHeads = kShape.kv_heads;

// [kv_heads][slots][dim] keys and values.
struct Kv {
  Kv(const int32_t slots_in, const uint32_t seed)
      : slots(slots_in),
        keys(RandomBf16Floats(static_cast<size_t>(slots) * kHeads * kDim, seed, 2.0F)),
        values(RandomBf16Floats(static_cast<size_t>(slots) * kHeads * kDim, seed + 1)) {}

  KvRows rows() { return {keys.data(), values.data(), slots, int64_t{slots} * kDim, kDim}; }

  int32_t slots;
  std::vector<float> keys;
  std::vector<float> values;
};

struct ViewParts {
  int32_t body_pages = 0;
  KvEncoding encoding = KvEncoding::kDense;
  std::vector<float> log_degrees = {};
};

// The memory of a view: some pages encoded, the rest rows.
class OwnedView {
 public:
  OwnedView(const Rig& rig, Kv& kv, const ViewParts& parts)
      : page_(rig->KvPageShape(kHeads, kDim)), log_degrees_(parts.log_degrees) {
    const int64_t body_bytes = EncodedPageBytes(parts.encoding, page_);
    const int64_t tail_bytes = rig->KvPageBytes(kHeads, kDim);
    const int32_t all = (kv.slots + kPageTokens - 1) / kPageTokens;
    body_.resize(static_cast<size_t>(parts.body_pages * body_bytes));
    tail_.resize(static_cast<size_t>((all - parts.body_pages) * tail_bytes));
    for (int32_t p = 0; p < all; ++p) {
      const int64_t first = int64_t{p} * kPageTokens;
      const KvRows rows = kv.rows().Slots(first, std::min<int64_t>(kPageTokens, kv.slots - first));
      if (p < parts.body_pages) {
        EncodePage(parts.encoding, page_, rows, {body_.data() + p * body_bytes, static_cast<size_t>(body_bytes)});
      } else {
        WriteRows(page_, 0, rows, tail_.data() + (p - parts.body_pages) * tail_bytes);
        table_.push_back(p - parts.body_pages);
      }
    }
    view_ = {.arena = tail_.data(),
             .page_stride_bytes = tail_bytes,
             .layer_offset_bytes = 0,
             .pages = table_,
             .body = {.bytes = body_.data(),
                      .pages = parts.body_pages,
                      .encoding = parts.encoding,
                      .log_degrees = log_degrees_.empty() ? nullptr : log_degrees_.data()}};
  }
  const KvView& view() const { return view_; }

 private:
  PageShape page_;
  std::vector<float> log_degrees_;
  std::vector<std::byte> body_;
  std::vector<std::byte> tail_;
  std::vector<int32_t> table_;
  KvView view_;
};

// The last `rows` slots' queries, in spans of `cut` rows.
std::vector<float> Attend(const Rig& rig, Kv& kv, const ViewParts& parts, const int32_t rows, const int32_t cut = 64) {
  const OwnedView owned(rig, kv, parts);
  const OwnedActivations q(rig->numerics().kv, rows, kShape.heads * kDim,
                           RandomBf16Floats(static_cast<size_t>(rows) * kShape.heads * kDim, 77));
  const OwnedActivations out(rig.activations(), rows, kShape.heads * kDim);
  for (int32_t row = 0; row < rows; row += cut) {
    const int32_t count = std::min(cut, rows - row);
    const KvSpan span{0, count, kv.slots - rows + row, owned.view()};
    rig->Attention({.shape = kShape,
                    .q = q.Rows(row, count),
                    .spans = {&span, 1},
                    .gate = {},
                    .gate_head_stride = 0,
                    .out = out.Rows(row, count)});
  }
  return out.values();
}

constexpr KvEncoding kCoded[] = {KvEncoding::kInt8, KvEncoding::kK8V4, KvEncoding::kKivi4, KvEncoding::kKivi2};

// What an encoded view means, as rows.
Kv Decoded(const Rig& rig, Kv kv, const ViewParts& parts) {
  const PageShape page = rig->KvPageShape(kHeads, kDim);
  std::vector<std::byte> bytes(static_cast<size_t>(EncodedPageBytes(parts.encoding, page)));
  for (int32_t p = 0; p < parts.body_pages; ++p) {
    const KvRows rows = kv.rows().Slots(int64_t{p} * kPageTokens, kPageTokens);
    EncodePage(parts.encoding, page, rows, bytes);
    DecodePage(parts.encoding, page, bytes, rows);
  }
  return kv;
}

class CompressedView : public testing::TestWithParam<BackendOptions> {};

TEST_P(CompressedView, OfRowsHasTheBitsOfTheDenseKernel) {
  const Rig rig(GetParam());
  for (const int32_t slots : {70, 129, 1100}) {
    Kv kv(slots, 1);
    const auto want = BitsOf(Attend(rig, kv, {}, 5));
    for (const int32_t body : {1, slots / 64}) {
      EXPECT_EQ(BitsOf(Attend(rig, kv, {.body_pages = body}, 5)), want) << slots << " " << body;
      const std::vector<float> zeros(static_cast<size_t>(body) * kHeads * 64, 0.0F);
      EXPECT_EQ(BitsOf(Attend(rig, kv, {.body_pages = body, .log_degrees = zeros}, 5)), want);
    }
  }
}

// How far attention over codes may lie from that over decoded rows. In f32 it errs by rounding a query's and a weight's
// 2^-16 of the largest: scores by scale * sqrt(dim / 3) * 2^-16 * largest |q| * rms |k| (0.2 * 3.5 * 1.5e-5 * 2 * 2),
// values by twice as much and 1.5e-5 of their own; tenfold for the worst of many. In bf16 the rows' own rounding is
// what shows. Codes below 8 bits meet numbers of 8: an element of a query errs by 0.29 / 127 of the largest and meets
// codes that lie 0.37 of the range of keys (4) from their middle, so scores err by scale * sqrt(dim) * 2 * 0.29 / 127 *
// 0.37 * 4 = 0.007, outputs by half of that times the values' spread over the root of ten slots or more: 7e-4;
// elevenfold for the worst of many and for weights.
double MostApart(const BackendOptions& options, const KvEncoding encoding) {
  if (options.activations == DType::kBf16) return 0.02;
  return CodesOf(encoding).value_bits < 8 ? 8e-3 : 5e-4;
}

TEST_P(CompressedView, MeansWhatItsRowsDecodeTo) {
  const Rig rig(GetParam());
  for (const KvEncoding encoding : kCoded) {
    for (const int32_t slots : {66, 200, 1100}) {
      Kv kv(slots, 2);
      const ViewParts parts{.body_pages = slots / 64, .encoding = encoding};
      Kv decoded = Decoded(rig, kv, parts);
      const std::vector<float> got = Attend(rig, kv, parts, 2);
      const std::vector<float> want = Attend(rig, decoded, {}, 2);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], MostApart(GetParam(), encoding)) << KvEncodingName(encoding) << " " << slots;
      }
      EXPECT_NE(BitsOf(got), BitsOf(Attend(rig, kv, {}, 2))) << "the encoding loses something";
    }
  }
}

// Heads whose last tile, range or pair of tiles is short, and groups of one to nine rows.
TEST(CompressedViewOfAnyHead, MeansWhatItsRowsDecodeTo) {
  for (const BackendOptions& options : AllOptions()) {
    if (options.activations != DType::kF32) continue;
    const Rig rig(options);
    for (const int32_t dim : {2, 6, 16, 40, 48, 64, 80, 256}) {
      for (const KvEncoding encoding : kCoded) {
        const AttentionShape shape{.heads = 2 + dim % 9,
                                   .kv_heads = 1,
                                   .head_dim = dim,
                                   .window = 0,
                                   .scale = 1.0F / std::sqrt(static_cast<float>(dim))};
        const PageShape page = rig->KvPageShape(1, dim);
        std::vector<float> keys = RandomBf16Floats(static_cast<size_t>(128 * dim), 3, 2.0F);
        std::vector<float> values = RandomBf16Floats(static_cast<size_t>(128 * dim), 4);
        const KvRows rows{keys.data(), values.data(), 128, 128 * dim, dim};
        const int64_t bytes = EncodedPageBytes(encoding, page);
        std::vector<std::byte> body(static_cast<size_t>(2 * bytes));
        std::vector<std::byte> plain(static_cast<size_t>(3 * rig->KvPageBytes(1, dim)));
        for (int64_t p = 0; p < 2; ++p) {
          const std::span<std::byte> at =
              std::span(body).subspan(static_cast<size_t>(p * bytes), static_cast<size_t>(bytes));
          EncodePage(encoding, page, rows.Slots(64 * p, 64), at);
          DecodePage(encoding, page, at, rows.Slots(64 * p, 64));
          WriteRows(page, 0, rows.Slots(64 * p, 64), plain.data() + p * rig->KvPageBytes(1, dim));
        }
        WriteRows(page, 0, rows.Slots(0, 1), plain.data() + 2 * rig->KvPageBytes(1, dim));
        const std::vector<int32_t> all = {0, 1, 2};
        const KvView full{.arena = plain.data(), .page_stride_bytes = rig->KvPageBytes(1, dim), .pages = all};
        KvView view = full;
        view.pages = std::span(all).subspan(2);
        view.body = {.bytes = body.data(), .pages = 2, .encoding = encoding};
        std::vector<float> out[2];
        const KvView views[2] = {full, view};
        for (const int which : {0, 1}) {
          const OwnedActivations q(DType::kF32, 1, shape.heads * dim,
                                   RandomBf16Floats(static_cast<size_t>(shape.heads * dim), 5, 2.0F));
          const OwnedActivations result(DType::kF32, 1, shape.heads * dim);
          const KvSpan span{0, 1, 128, views[which]};
          rig->Attention({.shape = shape,
                          .q = q.Rows(0, 1),
                          .spans = {&span, 1},
                          .gate = {},
                          .gate_head_stride = 0,
                          .out = result.Rows(0, 1)});
          out[which] = result.values();
        }
        for (size_t i = 0; i < out[0].size(); ++i) {
          ASSERT_NEAR(out[1][i], out[0][i], MostApart(options, encoding))
              << options.name << options.isa << " " << dim << " " << KvEncodingName(encoding);
        }
      }
    }
  }
}

TEST(CompressedViewOfAnyHead, AnInfiniteQueryHasNoNumberForAnAnswer) {
  for (const BackendOptions& options : AllOptions()) {
    if (options.activations != DType::kF32) continue;
    const Rig rig(options);
    Kv kv(70, 2);
    const OwnedView owned(rig, kv, {.body_pages = 1, .encoding = KvEncoding::kKivi4});
    std::vector<float> queries(kShape.heads * kDim, 1.0F);
    queries[3] = INFINITY;
    const OwnedActivations q(DType::kF32, 1, kShape.heads * kDim, queries);
    const OwnedActivations out(DType::kF32, 1, kShape.heads * kDim);
    const KvSpan span{0, 1, 69, owned.view()};
    rig->Attention({.shape = kShape,
                    .q = q.Rows(0, 1),
                    .spans = {&span, 1},
                    .gate = {},
                    .gate_head_stride = 0,
                    .out = out.Rows(0, 1)});
    EXPECT_TRUE(std::isnan(out.values()[0])) << options.name << options.isa;
    EXPECT_FALSE(std::isnan(out.values()[kDim])) << "of another head";
  }
}

TEST_P(CompressedView, RowsDoNotSeeTheirBatchNorThreads) {
  const Rig rig(GetParam());
  const Rig other(GetParam(), 1);
  Kv kv(1100, 3);
  std::vector<float> degrees(17 * kHeads * 64);
  for (size_t i = 0; i < degrees.size(); ++i) degrees[i] = std::log(static_cast<float>(1 + i % 5));
  for (const KvEncoding encoding : {KvEncoding::kDense, KvEncoding::kInt8, KvEncoding::kKivi4}) {
    const ViewParts parts{.body_pages = 16, .encoding = encoding, .log_degrees = degrees};
    const auto want = BitsOf(Attend(rig, kv, parts, 40, 1));
    EXPECT_EQ(BitsOf(Attend(rig, kv, parts, 40, 40)), want);
    EXPECT_EQ(BitsOf(Attend(other, kv, parts, 40, 7)), want);
  }
}

TEST_P(CompressedView, ADegreeStandsForSoManyEqualPositions) {
  const Rig rig(GetParam());
  // Slot s of the small view lies 1 + s % 4 times in the large one.
  Kv small(96, 4);
  std::vector<int32_t> source;
  std::vector<float> log_degrees(kHeads * 64);
  for (int32_t s = 0; s < 64; ++s) {
    for (int32_t copy = 0; copy < 1 + s % 4; ++copy) source.push_back(s);
    for (int32_t h = 0; h < kHeads; ++h) log_degrees[h * 64 + s] = std::log(1.0F + static_cast<float>(s % 4));
  }
  for (int32_t s = 64; s < 96; ++s) source.push_back(s);
  Kv large(static_cast<int32_t>(source.size()), 5);
  for (int32_t i = 0; i < large.slots; ++i) {
    for (int32_t h = 0; h < kHeads; ++h) {
      std::copy_n(small.rows().key(h, source[i]), kDim, large.rows().key(h, i));
      std::copy_n(small.rows().value(h, source[i]), kDim, large.rows().value(h, i));
    }
  }
  const std::vector<float> want = Attend(rig, large, {}, 1);
  const std::vector<float> with = Attend(rig, small, {.body_pages = 1, .log_degrees = log_degrees}, 1);
  const std::vector<float> without = Attend(rig, small, {.body_pages = 1}, 1);
  double worst = 0;
  double worst_without = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max<double>(worst, std::abs(with[i] - want[i]));
    worst_without = std::max<double>(worst_without, std::abs(without[i] - want[i]));
  }
  EXPECT_LE(worst, GetParam().activations == DType::kBf16 ? 0.01 : 2e-6);
  EXPECT_GE(worst_without, 0.05) << "the degrees must matter here";
}

TEST_P(CompressedView, AgreesWithTheReference) {
  const Rig rig(GetParam());
  const Rig reference = ReferenceRig();
  Kv kv(200, 6);
  std::vector<float> degrees(3 * kHeads * 64);
  for (size_t i = 0; i < degrees.size(); ++i) degrees[i] = std::log(static_cast<float>(1 + i % 7));
  for (int32_t e = 0; e < kEncodings; ++e) {
    const ViewParts parts{.body_pages = 3, .encoding = static_cast<KvEncoding>(e), .log_degrees = degrees};
    const std::vector<float> got = Attend(rig, kv, parts, 4);
    const std::vector<float> want = Attend(reference, kv, parts, 4);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i],
                  e == 0 && GetParam().activations == DType::kF32 ? 1e-5 : MostApart(GetParam(), parts.encoding))
          << KvEncodingNames()[e];
    }
  }
}

TEST_P(CompressedView, RowsOfPagesComeBackAsTheyWere) {
  const Rig rig(GetParam());
  const PageShape page = rig->KvPageShape(kHeads, kDim);
  Kv kv(64, 7);
  std::vector<std::byte> first(static_cast<size_t>(rig->KvPageBytes(kHeads, kDim)));
  std::vector<std::byte> second(first.size());
  WriteRows(page, 0, kv.rows(), first.data());
  Kv back(64, 8);
  ReadRows(page, first.data(), 0, back.rows());
  EXPECT_EQ(BitsOf(back.keys), BitsOf(kv.keys));
  EXPECT_EQ(BitsOf(back.values), BitsOf(kv.values));
  for (const auto& [place, count] : {std::pair{5, 13}, std::pair{20, 44}}) {
    Kv some(64, 10);
    ReadRows(page, first.data(), place, some.rows().Slots(0, count));
    for (int32_t h = 0; h < kHeads; ++h) {
      for (int32_t s = 0; s < count; ++s) {
        EXPECT_TRUE(std::equal(some.rows().key(h, s), some.rows().key(h, s) + kDim, kv.rows().key(h, place + s)));
        EXPECT_TRUE(std::equal(some.rows().value(h, s), some.rows().value(h, s) + kDim, kv.rows().value(h, place + s)));
      }
    }
  }
  for (const int32_t cut : {0, 20}) {
    WriteRows(page, cut, back.rows().Slots(cut, cut == 0 ? 20 : 44), second.data());
  }
  EXPECT_EQ(first, second);
}

INSTANTIATE_TEST_SUITE_P(Backends, CompressedView, testing::ValuesIn(AllOptions()), OptionsName);

// Heads of one to four passes of 64 dims, so of four blocks together to one; groups that leave one, two or three rows
// for the last pass; the last superblock cut short.
TEST(CompressedViewOfAnyHead, HasTheSameBitsOnEveryInstructionSet) {
  for (const int32_t dim : {36, 64, 80, 128, 256}) {
    for (const KvEncoding encoding : kCoded) {
      const AttentionShape shape{.heads = 1 + dim % 7, .kv_heads = 1, .head_dim = dim, .window = 0, .scale = 0.1F};
      constexpr int32_t kPages = 21;
      std::vector<float> keys = RandomBf16Floats(static_cast<size_t>(kPages * 64 * dim), 3, 2.0F);
      std::vector<float> values = RandomBf16Floats(static_cast<size_t>(kPages * 64 * dim), 4);
      const KvRows rows{keys.data(), values.data(), kPages * 64, kPages * 64 * dim, dim};
      std::vector<float> degrees(kPages * 64);
      for (size_t i = 0; i < degrees.size(); ++i) degrees[i] = std::log(static_cast<float>(1 + i % 3));
      std::vector<std::vector<uint32_t>> found;
      for (const std::string& isa : SupportedIsas()) {
        const Rig rig({"cpu", isa, DType::kBf16});
        const PageShape page = rig->KvPageShape(1, dim);
        const int64_t bytes = EncodedPageBytes(encoding, page);
        std::vector<std::byte> body(static_cast<size_t>(kPages * bytes));
        for (int64_t p = 0; p < kPages; ++p) {
          EncodePage(encoding, page, rows.Slots(64 * p, 64),
                     std::span(body).subspan(static_cast<size_t>(p * bytes), static_cast<size_t>(bytes)));
        }
        std::vector<std::byte> tail(static_cast<size_t>(rig->KvPageBytes(1, dim)));
        WriteRows(page, 0, rows.Slots(0, 3), tail.data());
        const std::vector<int32_t> table = {0};
        const KvView view{
            .arena = tail.data(),
            .page_stride_bytes = rig->KvPageBytes(1, dim),
            .pages = table,
            .body = {.bytes = body.data(), .pages = kPages, .encoding = encoding, .log_degrees = degrees.data()}};
        const OwnedActivations q(DType::kBf16, 3, shape.heads * dim,
                                 RandomBf16Floats(static_cast<size_t>(3 * shape.heads * dim), 5, 2.0F));
        const OwnedActivations result(DType::kBf16, 3, shape.heads * dim);
        const KvSpan span{0, 3, kPages * 64, view};
        rig->Attention({.shape = shape,
                        .q = q.Rows(0, 3),
                        .spans = {&span, 1},
                        .gate = {},
                        .gate_head_stride = 0,
                        .out = result.Rows(0, 3)});
        found.push_back(BitsOf(result.values()));
        EXPECT_EQ(found.back(), found.front()) << isa << " " << dim << " " << KvEncodingName(encoding);
      }
    }
  }
}

TEST(CompressedViews, HaveTheSameBitsOnEveryInstructionSet) {
  for (const DType activations : {DType::kBf16, DType::kF32}) {
    Kv kv(300, 9);
    for (const KvEncoding encoding : kCoded) {
      const ViewParts parts{.body_pages = 4, .encoding = encoding};
      const Rig scalar({"cpu", "scalar", activations});
      const auto want = BitsOf(Attend(scalar, kv, parts, 3));
      for (const std::string& isa : SupportedIsas()) {
        EXPECT_EQ(BitsOf(Attend(Rig({"cpu", isa, activations}), kv, parts, 3)), want) << isa;
      }
    }
  }
}

}  // namespace
}  // namespace invar::kernels
