// A made-up folder has exactly the tensors its configuration asks for: it loads, and computes finite logits, for every
// family and kind of layer.
#include "models/random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

class RandomModel : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomModel, LoadsAndComputes) {
  const testing::TemporaryFolder folder;
  const Status made = MakeRandomModel({.shape = testing::GoldenFolder(GetParam()) + "/config.json",
                                       .folder = folder.path(),
                                       .seed = 3,
                                       .progress = {}});
  ASSERT_TRUE(made.ok()) << made.message();
  StatusOr<testing::TinyModel> tiny = testing::LoadTinyModel(folder.path(), {});
  ASSERT_TRUE(tiny.ok()) << tiny.status().message();
  const ModelSpec& spec = tiny->model->spec();
  testing::SequenceArena arena(spec, 1, 9);
  const std::vector<TokenId> tokens = testing::RandomTokens(9, spec.vocabulary_size, 1);
  const ForwardSpan span = arena.Span(0, tokens, 0, 9);
  const kernels::ConstF32View logits = tiny->model->Forward(arena.memory(), {&span, 1});
  for (int64_t row = 0; row < logits.rows; ++row) {
    for (int64_t i = 0; i < logits.cols; ++i) ASSERT_TRUE(std::isfinite(logits.row(row)[i])) << row << " " << i;
    EXPECT_NE(logits.row(row)[0], logits.row(row)[1]);
  }
}

std::string NameOf(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, RandomModel,
                         ::testing::Values("qwen3_5", "qwen3_5-vl", "qwen3_5_moe", "qwen3_next", "qwen3", "qwen3-yarn",
                                           "qwen2", "llama", "mistral", "mistral-swa"),
                         NameOf);

}  // namespace
}  // namespace invar::models
