// CompressedKv with a compressor that keeps everything: forwards on its view, tails written and taken back, rounds
// settled, give the bits of full KV. That is how it is known that no row is lost or moved on the way.
#include "engine/compressed/compressed_kv.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/tiny_model.h"

namespace invar::engine {
namespace {

constexpr int32_t kPrompt = 200;
constexpr int32_t kDecoded = 150;

class CompressedKvOf : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  CompressedKvOf() {
    const auto& [folder, reference] = GetParam();
    tiny_ = testing::LoadTinyModel(testing::GoldenFolder(folder),
                                   {.backend = reference ? "reference" : "cpu",
                                    .isa = {},
                                    .activations = reference ? kernels::DType::kF32 : kernels::DType::kBf16,
                                    .threads = 2})
                .value();
    tokens_ = testing::RandomTokens(kPrompt + kDecoded, tiny_.model->spec().vocabulary_size, 5);
    compressor_ = cache::MakeCompressor("noop").value();
  }
  // Logits of one token, on a view where one is given.
  std::vector<float> Run(testing::SequenceArena& arena, const int32_t at, CompressedKv* const view,
                         const std::span<const PageId> tail) {
    models::ForwardSpan span = arena.Span(0, std::span(tokens_).subspan(static_cast<size_t>(at), 1), at, 1);
    if (view != nullptr) {
      span.view = view->At(Position(at));
      span.pages = tail;
    }
    const kernels::ConstF32View logits = tiny_.model->Forward(arena.memory(), {&span, 1});
    return {logits.row(0), logits.row(0) + logits.cols};
  }
  void Prefill(testing::SequenceArena& arena) {
    arena.Reset(0);
    const models::ForwardSpan span = arena.Span(0, std::span(tokens_).first(kPrompt), 0, 1);
    tiny_.model->Forward(arena.memory(), {&span, 1});
  }

  testing::TinyModel tiny_;
  std::vector<TokenId> tokens_;
  std::unique_ptr<cache::Compressor> compressor_;
};

TEST_P(CompressedKvOf, AllRowsIsFullKvAcrossRounds) {
  testing::SequenceArena full(tiny_.model->spec(), 1, kPrompt + kDecoded);
  testing::SequenceArena viewed(tiny_.model->spec(), 2, kPrompt + kDecoded);  // The second sequence's pages: the tail.
  Prefill(full);
  Prefill(viewed);
  viewed.Reset(1);
  const std::span<const PageId> whole = viewed.Span(0, std::span(tokens_).first(1), 0, 0).pages;
  const std::span<const PageId> tail = viewed.Span(1, std::span(tokens_).first(1), 0, 0).pages;
  CompressedKv view(*tiny_.model, *compressor_, cache::Budget::Share(1));
  view.Make({viewed.memory().pages, whole}, kPrompt);
  EXPECT_EQ(view.tokens(), kPrompt);
  EXPECT_EQ(view.tail_slots(), kPrompt % 64) << "whole pages are in the body";
  view.WriteTail(0, {viewed.memory().pages, tail});
  for (int32_t at = kPrompt; at < kPrompt + kDecoded; ++at) {
    const std::vector<float> want = Run(full, at, nullptr, {});
    const std::vector<float> got = Run(viewed, at, &view, tail);
    ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << at;
    // Rounds of several lengths.
    if (const int32_t since = at + 1 - view.tokens(); since == 64 || at == kPrompt + 6) {
      view.TakeTail({viewed.memory().pages, tail}, since);
      view.Settle();
      view.WriteTail(0, {viewed.memory().pages, tail});
    }
  }
  EXPECT_GT(view.tokens(), kPrompt + 64);
}

std::vector<std::byte> BodiesOf(CompressedKv& view) {
  std::vector<std::byte> bytes;
  for (const models::ViewLayer& layer : view.At(Position(kPrompt))) {
    EXPECT_EQ(layer.slots, kPrompt);
    const int64_t per_page = view.body_bytes() / layer.body.pages / std::ssize(view.At(Position(kPrompt)));
    bytes.insert(bytes.end(), layer.body.bytes, layer.body.bytes + per_page * layer.body.pages);
  }
  return bytes;
}

// What was verified elsewhere replaces what a draft left in the tail.
TEST_P(CompressedKvOf, TakesRowsOfFullKv) {
  testing::SequenceArena full(tiny_.model->spec(), 2, kPrompt + kDecoded);
  Prefill(full);
  full.Reset(1);
  const std::span<const PageId> whole = full.Span(0, std::span(tokens_).first(1), 0, 0).pages;
  const std::span<const PageId> tail = full.Span(1, std::span(tokens_).first(1), 0, 0).pages;
  CompressedKv whole_view(*tiny_.model, *compressor_, cache::Budget::Share(1));
  CompressedKv grown(*tiny_.model, *compressor_, cache::Budget::Share(1));
  whole_view.Make({full.memory().pages, whole}, kPrompt);
  grown.Make({full.memory().pages, whole}, 130);
  grown.TakeFull({full.memory().pages, whole}, 70);
  EXPECT_EQ(grown.tokens(), kPrompt);
  const int32_t tail_slots = grown.tail_slots();
  grown.Settle();
  EXPECT_LE(grown.tail_slots(), tail_slots);
  EXPECT_EQ(grown.body_bytes(), whole_view.body_bytes());
  EXPECT_EQ(grown.tail_slots(), whole_view.tail_slots());
  EXPECT_EQ(BodiesOf(grown), BodiesOf(whole_view));
}

TEST_P(CompressedKvOf, IsTheSameOfPagesThatLieElsewhere) {
  testing::SequenceArena full(tiny_.model->spec(), 1, kPrompt);
  Prefill(full);
  const std::span<const PageId> whole = full.Span(0, std::span(tokens_).first(1), 0, 0).pages;
  const models::ModelSpec& spec = tiny_.model->spec();
  const int64_t part_bytes =
      tiny_.model->backend()->KvPageBytes(spec.attention.shape.kv_heads, spec.attention.shape.head_dim);
  const ReadLayer before = [&](const size_t layer, BlockBuffer& into) -> const std::byte* {
    into.Reserve(2 * part_bytes);
    for (size_t p = 0; p < 2; ++p) {
      std::memcpy(into.data() + static_cast<int64_t>(p) * part_bytes,
                  full.memory().pages + whole[p].value() * spec.page_bytes + spec.attention.page_offsets_bytes[layer],
                  static_cast<size_t>(part_bytes));
    }
    return into.data();
  };
  CompressedKv whole_view(*tiny_.model, *compressor_, cache::Budget::Share(1));
  CompressedKv behind(*tiny_.model, *compressor_, cache::Budget::Share(1));
  whole_view.Make({full.memory().pages, whole}, kPrompt);
  ASSERT_TRUE(behind.MakeBehind(before, {full.memory().pages, whole.subspan(2), 128}, kPrompt).ok());
  EXPECT_EQ(BodiesOf(behind), BodiesOf(whole_view));
  const ReadLayer fails = [](size_t, BlockBuffer&) { return Unavailable("gone"); };
  EXPECT_FALSE(behind.MakeBehind(fails, {full.memory().pages, whole.subspan(2), 128}, kPrompt).ok());
  EXPECT_EQ(behind.tokens(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, CompressedKvOf,
                         ::testing::Combine(::testing::Values("qwen3_5", "qwen3", "qwen3_5_moe"), ::testing::Bool()),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param)) + (std::get<1>(p.param) ? "_reference" : "_cpu");
                         });

}  // namespace
}  // namespace invar::engine
