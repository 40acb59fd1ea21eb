// The model of hashes: equal to its oracle however it is cut, and different as soon as anything it reads is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/numerics.h"
#include "models/model.h"

namespace invar::models {
namespace {

struct Memory {
  explicit Memory(const ModelSpec& spec) : pages(4 * spec.page_bytes), states(2 * spec.state_bytes) {}
  SequenceMemory view() { return {pages.data(), states.data()}; }
  std::vector<std::byte> pages;
  std::vector<std::byte> states;
};

std::vector<TokenId> SomeTokens(const int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.emplace_back((i * 11 + 3) % 64);
  return tokens;
}

// Runs `tokens` in chunks through scattered pages; the last row.
std::vector<float> RunInChunks(Model& model, Memory& memory, const std::vector<TokenId>& tokens, const int32_t chunk) {
  const std::vector<PageId> pages = {PageId(2), PageId(0), PageId(3)};
  std::vector<float> row;
  for (int32_t first = 0; first < static_cast<int32_t>(tokens.size()); first += chunk) {
    const int32_t length = std::min(chunk, static_cast<int32_t>(tokens.size()) - first);
    const ForwardSpan span{.tokens = std::span(tokens).subspan(first, length),
                           .first = Position(first),
                           .pages = pages,
                           .state = SlotId(1),
                           .logits_rows = 1};
    const kernels::ConstF32View logits = model.Forward(memory.view(), {&span, 1});
    row.assign(logits.row(0), logits.row(0) + logits.cols);
  }
  return row;
}

TEST(FingerprintModel, EqualsItsOracleHoweverItIsCut) {
  const FingerprintOptions options;
  const auto model = MakeFingerprintModel(options);
  for (const int32_t length : {1, 63, 64, 65, 150}) {
    const std::vector<TokenId> tokens = SomeTokens(length);
    for (const int32_t chunk : {1, 3, 64, 200}) {
      Memory memory(model->spec());
      EXPECT_EQ(RunInChunks(*model, memory, tokens, chunk), FingerprintLogits(options, tokens));
    }
  }
}

TEST(FingerprintModel, AnyChangedByteOfPagesOrStatesChangesTheNextRow) {
  const FingerprintOptions options{.attention_layers = 2, .recurrent_layers = 2};
  const auto model = MakeFingerprintModel(options);
  std::vector<TokenId> tokens = SomeTokens(70);
  Memory memory(model->spec());
  RunInChunks(*model, memory, tokens, 70);
  tokens.push_back(TokenId(1));
  const std::vector<float> right = FingerprintLogits(options, tokens);
  const std::vector<PageId> pages = {PageId(2), PageId(0), PageId(3)};
  const auto next = [&](Memory changed) {
    const ForwardSpan span{.tokens = std::span(tokens).last(1),
                           .first = Position(70),
                           .pages = pages,
                           .state = SlotId(1),
                           .logits_rows = 1};
    const kernels::ConstF32View logits = model->Forward(changed.view(), {&span, 1});
    return std::vector<float>(logits.row(0), logits.row(0) + logits.cols);
  };
  EXPECT_EQ(next(memory), right);
  const int64_t layer_bytes = int64_t{8} * kernels::kPageTokens;
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const int64_t place : {0, 5, 63}) {  // In page 2: positions 0..63.
      Memory changed = memory;
      changed.pages[2 * model->spec().page_bytes + layer * layer_bytes + 8 * place + 3] ^= std::byte{16};
      EXPECT_NE(next(changed), right);
    }
    Memory changed = memory;
    changed.states[model->spec().state_bytes + 8 * layer] ^= std::byte{1};
    EXPECT_NE(next(changed), right);
  }
}

// Layers of whole pages, as the slow tier brings them.
class LayersOfPages final : public KvSource {
 public:
  LayersOfPages(const ModelSpec& spec, const Memory& memory, const std::vector<PageId>& pages) {
    const int64_t layer_bytes = spec.page_bytes / spec.attention_layers;
    for (int32_t layer = 0; layer < spec.attention_layers; ++layer) {
      std::vector<std::byte>& bytes = layers.emplace_back();
      for (const PageId page : pages) {
        const std::byte* const from = memory.pages.data() + page.value() * spec.page_bytes + layer * layer_bytes;
        bytes.insert(bytes.end(), from, from + layer_bytes);
      }
    }
  }
  const std::byte* Layer(const int32_t layer) override { return layers[static_cast<size_t>(layer)].data(); }

  std::vector<std::vector<std::byte>> layers;
};

TEST(FingerprintModel, ReadsPagesThatAreAwayFromWhereTheyCome) {
  const FingerprintOptions options{.attention_layers = 2, .recurrent_layers = 1};
  const auto model = MakeFingerprintModel(options);
  for (const int32_t length : {128, 150}) {  // The row before the span is away, or is not.
    std::vector<TokenId> tokens = SomeTokens(length);
    Memory memory(model->spec());
    RunInChunks(*model, memory, tokens, length);
    LayersOfPages away(model->spec(), memory, {PageId(2), PageId(0)});
    tokens.push_back(TokenId(1));
    tokens.push_back(TokenId(2));
    const std::vector<PageId> pages = {PageId(3)};
    const auto next = [&](LayersOfPages& source) {
      Memory changed = memory;
      std::fill_n(changed.pages.begin(), 3 * model->spec().page_bytes, std::byte{7});  // Is others' by now.
      const ForwardSpan span{.tokens = std::span(tokens).last(2),
                             .first = Position(length),
                             .pages = pages,
                             .state = SlotId(1),
                             .logits_rows = 1,
                             .away = &source,
                             .away_pages = 2};
      const kernels::ConstF32View logits = model->Forward(changed.view(), {&span, 1});
      return std::vector<float>(logits.row(0), logits.row(0) + logits.cols);
    };
    EXPECT_EQ(next(away), FingerprintLogits(options, tokens));
    for (std::vector<std::byte>& layer : away.layers) {
      layer[8 * 127 + 3] ^= std::byte{16};
      EXPECT_NE(next(away), FingerprintLogits(options, tokens));
      layer[8 * 127 + 3] ^= std::byte{16};
    }
  }
}

}  // namespace
}  // namespace invar::models
