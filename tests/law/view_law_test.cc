// The law over compressed views: a view of all rows is the full KV, bit for bit; a row computed on a lossy view depends
// on the view and its own tokens, not on how many rows ran with it, who else did, threads or instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/dense_page.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using kernels::KvEncoding;
using testing::LoadTinyModel;
using testing::SequenceArena;
using testing::TinyModel;

constexpr int32_t kPrefix = 200;  // Three pages and some: what a body is made of, and its tail.
constexpr int32_t kDecoded = 20;

struct Subject {
  const char* name;
  std::string folder;
};
std::vector<Subject> Subjects() {
  return {{"hybrid", testing::AssetFolder("tiny-hybrid")},
          {"moe", testing::GoldenFolder("qwen3_5_moe")},
          {"dense", testing::GoldenFolder("qwen3")}};
}

// A view of the first pages of a sequence's KV, and the pages behind them.
struct View {
  std::vector<std::vector<std::byte>> bodies;
  std::vector<ViewLayer> layers;
  std::vector<PageId> pages;
};

View MakeView(const TinyModel& tiny, const SequenceMemory& memory, const ForwardSpan& full, const int32_t body_pages,
              const KvEncoding encoding) {
  const ModelSpec& spec = tiny.model->spec();
  const kernels::AttentionShape& shape = spec.attention.shape;
  const kernels::PageShape page = tiny.backend->KvPageShape(shape.kv_heads, shape.head_dim);
  const int64_t row = int64_t{shape.kv_heads} * shape.head_dim;
  std::vector<float> keys(static_cast<size_t>(64 * row));
  std::vector<float> values(keys.size());
  const kernels::KvRows rows{keys.data(), values.data(), 64, shape.head_dim, row};
  View view;
  const auto bytes = static_cast<size_t>(kernels::EncodedPageBytes(encoding, page));
  for (const int64_t offset : spec.attention.page_offsets_bytes) {
    std::vector<std::byte>& body = view.bodies.emplace_back(bytes * static_cast<size_t>(body_pages));
    for (int32_t p = 0; p < body_pages; ++p) {
      const int64_t at = int64_t{full.pages[static_cast<size_t>(p)].value()} * spec.page_bytes + offset;
      kernels::ReadRows(page, memory.pages + at, 0, rows);
      kernels::EncodePage(encoding, page, rows, {body.data() + bytes * static_cast<size_t>(p), bytes});
    }
    view.layers.push_back(
        {.body = {.bytes = body.data(), .pages = body_pages, .encoding = encoding, .log_degrees = nullptr},
         .slots = full.first.value()});
  }
  view.pages.assign(full.pages.begin() + body_pages, full.pages.end());
  return view;
}

// Logits of kDecoded tokens behind the prefix, in spans of `chunk`, on a view or on the full KV.
std::vector<float> Decode(const TinyModel& tiny, const int32_t chunk, const std::optional<KvEncoding> encoding,
                          const bool with_neighbour = false) {
  const ModelSpec& spec = tiny.model->spec();
  const std::vector<TokenId> tokens = testing::RandomTokens(kPrefix + kDecoded, spec.vocabulary_size, 5);
  SequenceArena arena(spec, 2, kPrefix + kDecoded);
  arena.Reset(0);
  arena.Reset(1);
  const ForwardSpan prefix = arena.Span(0, std::span(tokens).first(kPrefix), 0, 1);
  tiny.model->Forward(arena.memory(), {&prefix, 1});
  std::vector<float> all;
  for (int32_t at = kPrefix; at < kPrefix + kDecoded; at += chunk) {
    const int32_t rows = std::min(chunk, kPrefix + kDecoded - at);
    std::vector<ForwardSpan> spans = {
        arena.Span(0, std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), at, rows)};
    View view;
    if (encoding.has_value()) {
      view = MakeView(tiny, arena.memory(), spans[0], 3, *encoding);
      spans[0].view = view.layers;
      spans[0].pages = view.pages;
    }
    if (with_neighbour) {
      spans.insert(spans.begin(),
                   arena.Span(1, std::span(tokens).subspan(static_cast<size_t>(at - kPrefix), 1), at - kPrefix, 1));
    }
    const kernels::ConstF32View logits = tiny.model->Forward(arena.memory(), spans);
    for (int64_t r = with_neighbour ? 1 : 0; r < logits.rows; ++r) {
      all.insert(all.end(), logits.row(r), logits.row(r) + logits.cols);
    }
  }
  return all;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TinyModel Load(const std::string& folder, const std::string& isa, const int threads,
               const kernels::DType activations = kernels::DType::kBf16) {
  StatusOr<TinyModel> tiny =
      LoadTinyModel(folder, {.backend = isa == "reference" ? "reference" : "cpu",
                             .isa = isa == "reference" ? "" : isa,
                             .activations = isa == "reference" ? kernels::DType::kF32 : activations,
                             .threads = threads});
  Check(tiny.ok(), "the tiny model loads", tiny.ok() ? "" : tiny.status().message());
  return *std::move(tiny);
}

TEST(ViewLaw, AViewOfAllRowsIsTheFullKv) {
  std::vector<std::string> ways = kernels::SupportedIsas();
  ways.emplace_back("reference");
  for (const Subject& subject : Subjects()) {
    for (const std::string& isa : ways) {
      for (const kernels::DType activations : {kernels::DType::kBf16, kernels::DType::kF32}) {
        const TinyModel tiny = Load(subject.folder, isa, 2, activations);
        const std::vector<float> full = Decode(tiny, 1, std::nullopt);
        EXPECT_TRUE(SameBits(Decode(tiny, 1, KvEncoding::kDense), full)) << subject.name << " " << isa;
        EXPECT_TRUE(SameBits(Decode(tiny, 7, KvEncoding::kDense), full)) << subject.name << " " << isa;
      }
    }
  }
}

TEST(ViewLaw, RowsOnALossyViewDependOnItAlone) {
  for (const Subject& subject : Subjects()) {
    std::vector<float> first;
    for (const std::string& isa : kernels::SupportedIsas()) {
      for (const KvEncoding encoding : {KvEncoding::kInt8, KvEncoding::kKivi2}) {
        const TinyModel tiny = Load(subject.folder, isa, 2);
        const std::vector<float> want = Decode(tiny, 1, encoding);
        EXPECT_FALSE(SameBits(want, Decode(tiny, 1, std::nullopt))) << "the view loses something";
        EXPECT_TRUE(SameBits(Decode(tiny, kDecoded, encoding), want)) << subject.name << " " << isa;
        EXPECT_TRUE(SameBits(Decode(tiny, 3, encoding, true), want)) << subject.name << " " << isa;
        EXPECT_TRUE(SameBits(Decode(Load(subject.folder, isa, 1), 5, encoding), want)) << subject.name << " " << isa;
        if (encoding != KvEncoding::kInt8) continue;
        if (first.empty()) first = want;
        EXPECT_TRUE(SameBits(first, want)) << "another instruction set: " << subject.name << " " << isa;
      }
    }
  }
}

class Recorder final : public QueryObserver {
 public:
  void Queries(const int32_t layer, const kernels::Activations& queries) override {
    seen.push_back({layer, queries.rows});
    const std::byte* first = queries.row_bytes(0);
    bytes.insert(bytes.end(), first, first + queries.cols * kernels::BytesOf(queries.dtype));
  }
  std::vector<std::pair<int32_t, int64_t>> seen;
  std::vector<std::byte> bytes;
};

TEST(ViewLaw, AnObserverSeesTheQueriesOfItsSpanAlone) {
  const TinyModel tiny = Load(testing::AssetFolder("tiny-hybrid"), "", 2);
  const ModelSpec& spec = tiny.model->spec();
  const std::vector<TokenId> tokens = testing::RandomTokens(9, spec.vocabulary_size, 6);
  const auto observe = [&](const bool with_neighbour) {
    SequenceArena arena(spec, 2, 16);
    arena.Reset(0);
    arena.Reset(1);
    Recorder recorder;
    std::vector<ForwardSpan> spans;
    if (with_neighbour) spans.push_back(arena.Span(1, std::span(tokens).first(4), 0, 0));
    spans.push_back(arena.Span(0, tokens, 0, 1));
    spans.back().observer = &recorder;
    tiny.model->Forward(arena.memory(), spans);
    return recorder;
  };
  const Recorder alone = observe(false);
  ASSERT_EQ(static_cast<int32_t>(alone.seen.size()), spec.attention_layers);
  for (int32_t i = 0; i < spec.attention_layers; ++i)
    EXPECT_EQ(alone.seen[static_cast<size_t>(i)], (std::pair{i, int64_t{9}}));
  EXPECT_EQ(observe(true).bytes, alone.bytes);
}

}  // namespace
}  // namespace invar::models
