// What LayerObserver promises beside its views: whatever a forward has passed, it leaves as it is. Who sends layers on
// while the rest still runs stands on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using Bytes = std::vector<std::byte>;

// What sequence 0 has of every layer that was passed when a layer is told of.
class PassedLayers final : public LayerObserver {
 public:
  PassedLayers(const ModelSpec& spec, testing::SequenceArena& arena) : spec_(spec), arena_(arena) {}

  void Inputs(const int32_t layer, const kernels::ConstF32View& /*residual*/,
              const kernels::Activations& /*normed*/) override {
    seen.push_back(Of(layer));
    layers.push_back(layer);
  }
  void Scanned(const int32_t /*layer*/, const kernels::ConstF32View& /*qkv*/) override {}

  // KV and states of the layers before `layer`.
  Bytes Of(const int32_t layer) const {
    Bytes out;
    const Bytes pages = arena_.PageBytes(0);
    const std::vector<int64_t>& offsets = spec_.attention.page_offsets_bytes;
    for (size_t i = 0; i < offsets.size() && spec_.attention.layers[i].value() < layer; ++i) {
      const int64_t end = i + 1 < offsets.size() ? offsets[i + 1] : spec_.page_bytes;
      for (int64_t page = 0; page < std::ssize(pages); page += spec_.page_bytes) {
        out.insert(out.end(), pages.begin() + page + offsets[i], pages.begin() + page + end);
      }
    }
    const std::vector<RecurrentLayerState>& states = spec_.recurrent_states;
    const std::span<const std::byte> slot = arena_.Slot(0);
    for (size_t i = 0; i < states.size() && states[i].layer.value() < layer; ++i) {
      const int64_t begin = states[i].recurrent_offset_bytes;
      const int64_t end = i + 1 < states.size() ? states[i + 1].recurrent_offset_bytes : spec_.state_bytes;
      out.insert(out.end(), slot.begin() + begin, slot.begin() + end);
    }
    return out;
  }

  std::vector<int32_t> layers;
  std::vector<Bytes> seen;

 private:
  const ModelSpec& spec_;
  testing::SequenceArena& arena_;
};

class LayersAreFinal : public ::testing::TestWithParam<const char*> {};

TEST_P(LayersAreFinal, OnceAForwardHasPassedThem) {
  constexpr int32_t kTokens = 70;  // More than a page.
  constexpr int32_t kFirst = 41;   // Of the second forward, whose span begins within a page.
  const auto loaded = testing::LoadTinyModel(testing::GoldenFolder(GetParam()), {.backend = "cpu", .isa = {}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  Model& model = *loaded->model;
  const ModelSpec& spec = model.spec();
  const std::vector<TokenId> tokens = testing::RandomTokens(kTokens, spec.vocabulary_size, 3);
  testing::SequenceArena arena(spec, 2, kTokens);
  for (const auto& [first, end] : {std::pair{0, kFirst}, std::pair{kFirst, kTokens}}) {
    PassedLayers passed(spec, arena);
    const auto span = [&](const int32_t sequence) {
      return arena.Span(sequence, std::span(tokens).subspan(first, end - first), first, 1);
    };
    ForwardSpan batch[] = {span(1), span(0)};  // Not alone, nor the first.
    batch[1].layer_observer = &passed;
    model.Forward(arena.memory(), batch);
    ASSERT_EQ(passed.layers.size(), spec.layer_flops.size());
    EXPECT_TRUE(std::ranges::is_sorted(passed.layers)) << "in the order of the stack";
    EXPECT_FALSE(passed.seen.back().empty());
    for (size_t i = 0; i < passed.layers.size(); ++i) {
      EXPECT_EQ(passed.seen[i], passed.Of(passed.layers[i])) << "before layer " << i << ", from token " << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayersAreFinal, ::testing::Values("llama", "qwen3_5", "qwen3_next"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace invar::models
