// Parts of a stack: a layer made from what it read is the layer that a forward made, and a part from the tokens is the
// beginning of a forward. Bits, not closeness: it is the same arithmetic.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/bf16.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

// What every layer of one span read.
class Recorder final : public LayerObserver {
 public:
  explicit Recorder(const ModelSpec& spec) : inputs(spec.layer_flops.size()), residuals(spec.layer_flops.size()) {}

  void Inputs(const int32_t layer, const kernels::ConstF32View& residual, const kernels::Activations& normed) override {
    for (int64_t r = 0; r < normed.rows; ++r) {
      residuals[layer].insert(residuals[layer].end(), residual.row(r), residual.row(r) + residual.cols);
      for (int64_t c = 0; c < normed.cols; ++c) {
        inputs[layer].push_back(
            normed.dtype == kernels::DType::kF32
                ? reinterpret_cast<const float*>(normed.row_bytes(r))[c]
                : kernels::FloatFromBf16(reinterpret_cast<const uint16_t*>(normed.row_bytes(r))[c]));
      }
    }
  }
  void Scanned(const int32_t layer, const kernels::ConstF32View& qkv) override {
    scanned += qkv.rows;
    last_scanned = layer;
  }

  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> residuals;
  int64_t scanned = 0;
  int32_t last_scanned = -1;
};

struct Case {
  const char* folder;
  kernels::DType activations;
};

class StackParts : public ::testing::TestWithParam<Case> {};

TEST_P(StackParts, MakeTheKvAndStatesOfAForward) {
  constexpr int32_t kTokens = 70;  // More than a page.
  const auto loaded = testing::LoadTinyModel(testing::GoldenFolder(GetParam().folder),
                                             {.backend = "cpu", .isa = {}, .activations = GetParam().activations});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  Model& model = *loaded->model;
  const ModelSpec& spec = model.spec();
  const auto layers = static_cast<int32_t>(spec.layer_flops.size());
  ASSERT_GT(layers, 0);
  const std::vector<TokenId> tokens = testing::RandomTokens(kTokens, spec.vocabulary_size, 5);

  testing::SequenceArena arena(spec, 3, kTokens);
  Recorder recorder(spec);
  ForwardSpan whole = arena.Span(0, tokens, 0, 0);
  whole.layer_observer = &recorder;
  model.Forward(arena.memory(), {&whole, 1});
  EXPECT_EQ(recorder.scanned, int64_t{kTokens} * spec.recurrent_layers);

  const auto view = [&](const std::vector<float>& rows) {
    return kernels::ConstF32View{rows.data(), kTokens, spec.hidden, spec.hidden};
  };
  // Sequence 1 layer by layer from their inputs, sequence 2 in two groups: from the tokens, then from the stream.
  for (int32_t i = 0; i < layers; ++i) {
    model.ForwardPart(arena.memory(), arena.Span(1, tokens, 0, 0),
                      {.begin = i, .end = i + 1, .inputs = view(recorder.inputs[i])});
  }
  const int32_t middle = layers / 2;
  if (middle > 0) model.ForwardPart(arena.memory(), arena.Span(2, tokens, 0, 0), {.begin = 0, .end = middle});
  model.ForwardPart(arena.memory(), arena.Span(2, tokens, 0, 0),
                    {.begin = middle, .end = layers, .residual = view(recorder.residuals[middle])});
  for (const int32_t made : {1, 2}) {
    EXPECT_EQ(arena.PageBytes(made), arena.PageBytes(0)) << made;
    if (spec.state_bytes == 0) continue;
    EXPECT_EQ(std::memcmp(arena.Slot(made).data(), arena.Slot(0).data(), static_cast<size_t>(spec.state_bytes)), 0)
        << made;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StackParts,
                         ::testing::Values(Case{"llama", kernels::DType::kBf16}, Case{"qwen3", kernels::DType::kF32},
                                           Case{"qwen3_5", kernels::DType::kBf16},
                                           Case{"qwen3_next", kernels::DType::kF32}),
                         [](const auto& info) { return std::string(info.param.folder); });

}  // namespace
}  // namespace invar::models
