// Golden models: small random checkpoints of every architecture and what the reference implementation computes with
// them in float32 (tests/golden/models; made by tools/oracle/models). Tolerances: five times the worst difference
// between float32 and float64 seen in the reference for dense (1e-4) and hybrid (3e-4) models, states 2e-5 of their
// largest value; with activations rounded to bf16 the error is that of rounding: rms 0.05, max 0.6 on logits of
// deviation 2-3.
// NAME/f32 is a checkpoint of its own, stored in f32. NAME/f16 is NAME with its bf16 tensors stored as f16, which holds
// them exactly (but for a few below 2^-17), so the expected values are those of NAME.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "models/text/strict_json.h"
#include "models/weights/safetensors.h"
#include "tests/support/converted_model.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::SequenceArena;
using testing::TinyModel;
using testing::TinyModelOptions;

// Expected values by name.
class Expected {
 public:
  static StatusOr<Expected> Open(const std::string& path) {
    StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    if (!file.ok()) return file.status();
    return Expected(*std::move(file));
  }
  bool Has(const std::string& name) const { return file_.tensors().contains(name); }
  std::vector<int32_t> Ints(const std::string& name) const { return Read<int32_t>(name); }
  std::vector<float> Floats(const std::string& name) const { return Read<float>(name); }
  // Lengths N for which `tokens.N` exists, ascending.
  std::vector<int32_t> Lengths() const {
    std::vector<int32_t> lengths;
    for (const auto& [name, info] : file_.tensors()) {
      if (name.starts_with("tokens.")) lengths.push_back(std::stoi(name.substr(7)));
    }
    std::sort(lengths.begin(), lengths.end());
    return lengths;
  }

 private:
  explicit Expected(SafetensorsFile file) : file_(std::move(file)) {}
  template <typename T>
  std::vector<T> Read(const std::string& name) const {
    const TensorInfo& info = file_.tensors().at(name);
    std::vector<T> values(static_cast<size_t>(info.bytes) / sizeof(T));
    std::memcpy(values.data(), info.data, static_cast<size_t>(info.bytes));
    return values;
  }
  SafetensorsFile file_;
};

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder(""))) {
    const std::string name = entry.path().filename().string();
    names.push_back(name);
    if (name == "llama" || name == "qwen3_5" || name == "qwen3_5_moe") names.push_back(name + "/f16");
    if (std::filesystem::exists(entry.path() / "f32")) names.push_back(name + "/f32");
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Mode {
  std::string name;
  std::string backend;
  kernels::DType activations;
  bool exact() const { return activations == kernels::DType::kF32; }
};

const Mode kModes[] = {{"reference", "reference", kernels::DType::kF32},
                       {"cpu_fp32", "cpu", kernels::DType::kF32},
                       {"cpu_bf16", "cpu", kernels::DType::kBf16}};

class Golden : public ::testing::TestWithParam<std::tuple<std::string, Mode>> {
 protected:
  void SetUp() override {
    std::string folder = GoldenFolder(std::get<0>(GetParam()));
    std::string expected_folder = folder;
    if (folder.ends_with("/f16")) {
      expected_folder = folder.substr(0, folder.size() - 4);
      const Status copied =
          testing::CopyConverted(expected_folder, converted_.path(), kernels::DType::kBf16, kernels::DType::kF16);
      ASSERT_TRUE(copied.ok()) << copied.message();
      folder = converted_.path();
    }
    StatusOr<TinyModel> loaded =
        LoadTinyModel(folder, {.backend = mode().backend, .isa = {}, .activations = mode().activations});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tiny_ = *std::move(loaded);
    StatusOr<Expected> expected = Expected::Open(expected_folder + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    expected_.emplace(*std::move(expected));
  }
  const Mode& mode() const { return std::get<1>(GetParam()); }
  Model& model() { return *tiny_.model; }
  bool hybrid() { return model().spec().recurrent_layers > 0; }

  // Logits of the last `logits_rows` tokens of a fresh sequence.
  kernels::ConstF32View Run(SequenceArena& arena, const std::span<const TokenId> tokens, const int32_t logits_rows) {
    arena.Reset(0);
    const ForwardSpan span = arena.Span(0, tokens, 0, logits_rows);
    return model().Forward(arena.memory(), {&span, 1});
  }

  testing::TemporaryFolder converted_;  // Of an f16 copy; empty otherwise.
  TinyModel tiny_;
  std::optional<Expected> expected_;
};

TEST_P(Golden, LogitsAgreeWithTheReferenceImplementation) {
  SequenceArena arena(model().spec(), 1, 256);
  double max_error = 0;
  double sum_squares = 0;
  int64_t count = 0;
  for (const int32_t length : expected_->Lengths()) {
    const std::string suffix = std::to_string(length);
    const std::vector<TokenId> tokens = testing::Tokens(expected_->Ints("tokens." + suffix));
    const std::vector<int32_t> positions = expected_->Ints("positions." + suffix);
    const std::vector<float> wanted = expected_->Floats("logits.f32." + suffix);
    const kernels::ConstF32View logits = Run(arena, tokens, length);
    ASSERT_EQ(logits.rows, length);
    ASSERT_EQ(static_cast<int64_t>(wanted.size()), static_cast<int64_t>(positions.size()) * logits.cols);
    for (size_t p = 0; p < positions.size(); ++p) {
      for (int64_t c = 0; c < logits.cols; ++c) {
        const double error = std::abs(double{logits.row(positions[p])[c]} -
                                      wanted[p * static_cast<size_t>(logits.cols) + static_cast<size_t>(c)]);
        ASSERT_TRUE(std::isfinite(error)) << "length " << length << " position " << positions[p] << " column " << c;
        max_error = std::max(max_error, error);
        sum_squares += error * error;
        ++count;
      }
    }
  }
  const double rms = std::sqrt(sum_squares / static_cast<double>(count));
  std::printf("%-18s %-9s max %.2e rms %.2e\n", std::get<0>(GetParam()).c_str(), mode().name.c_str(), max_error, rms);
  if (mode().exact()) {
    EXPECT_LE(max_error, hybrid() ? 3e-4 : 1e-4);
  } else {
    EXPECT_LE(max_error, 0.6);
    EXPECT_LE(rms, 0.05);
  }
}

TEST_P(Golden, StatesAgreeWithTheReferenceImplementation) {
  if (!hybrid() || !expected_->Has("tokens.200")) GTEST_SKIP() << "no states in this golden file";
  const std::vector<TokenId> tokens = testing::Tokens(expected_->Ints("tokens.200"));
  SequenceArena arena(model().spec(), 1, 256);
  for (const int32_t length : {64, 129}) {
    Run(arena, std::span(tokens).first(static_cast<size_t>(length)), 0);
    for (const RecurrentLayerState& state : model().spec().recurrent_states) {
      const std::string prefix = "state." + std::to_string(length) + ".";
      const std::string layer = std::to_string(state.layer.value());
      const std::vector<float> recurrent = expected_->Floats(prefix + "recurrent." + layer);
      const std::vector<float> conv =
          expected_->Floats(prefix + "conv." + layer);  // [conv_dim, rows]: ours transposed.
      const std::span<const float> own_recurrent =
          arena.State(0, state.recurrent_offset_bytes, static_cast<int64_t>(recurrent.size()));
      const std::span<const float> own_conv =
          arena.State(0, state.conv_offset_bytes, static_cast<int64_t>(conv.size()));
      float largest = 0;
      float error = 0;
      for (size_t i = 0; i < recurrent.size(); ++i) {
        largest = std::max(largest, std::abs(recurrent[i]));
        error = std::max(error, std::abs(own_recurrent[i] - recurrent[i]));
      }
      // bf16 activations move the state by the rounding of its inputs, 2^-9 each, summed over what the state remembers.
      EXPECT_LE(error, (mode().exact() ? 2e-5F : 0.1F) * largest)
          << "recurrent, layer " << layer << " after " << length;
      largest = error = 0;
      for (int32_t c = 0; c < state.conv_dim; ++c) {
        for (int32_t r = 0; r < state.conv_rows; ++r) {
          const float wanted = conv[static_cast<size_t>(c * state.conv_rows + r)];
          largest = std::max(largest, std::abs(wanted));
          error = std::max(error, std::abs(own_conv[static_cast<size_t>(r * state.conv_dim + c)] - wanted));
        }
      }
      EXPECT_LE(error, (mode().exact() ? 2e-5F : 0.1F) * largest) << "conv, layer " << layer << " after " << length;
    }
  }
}

TEST_P(Golden, GreedyContinuationsAgreeWhereTheMarginExceedsTheError) {
  SequenceArena arena(model().spec(), 1, 256);
  const double margin_min = mode().exact() ? 1e-3 : 0.6;
  for (const int32_t length : expected_->Lengths()) {
    const std::string suffix = std::to_string(length);
    if (!expected_->Has("greedy.f32." + suffix)) continue;
    std::vector<TokenId> tokens = testing::Tokens(expected_->Ints("tokens." + suffix));
    const std::vector<int32_t> greedy = expected_->Ints("greedy.f32." + suffix);
    const std::vector<float> margin = expected_->Floats("greedy_margin.f32." + suffix);
    kernels::ConstF32View logits = Run(arena, tokens, 1);
    for (size_t i = 0; i < greedy.size() && margin[i] > margin_min; ++i) {
      const int64_t best = std::max_element(logits.row(0), logits.row(0) + logits.cols) - logits.row(0);
      ASSERT_EQ(best, greedy[i]) << "length " << length << " step " << i << " margin " << margin[i];
      tokens.emplace_back(greedy[i]);
      const ForwardSpan next = arena.Span(0, std::span(tokens).last(1), static_cast<int32_t>(tokens.size()) - 1, 1);
      logits = model().Forward(arena.memory(), {&next, 1});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllModels, Golden,
                         ::testing::Combine(::testing::ValuesIn(GoldenNames()), ::testing::ValuesIn(kModes)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// A half is a float: the same values stored as f16 and as f32 compute the same bits, whatever is kept of them.
TEST(StoredType, HalvesComputeAsTheFloatsTheyAre) {
  for (const char* name : {"llama/f32", "qwen3_5/f32", "qwen3_5_moe/f32", "qwen3_next/f32"}) {
    const testing::TemporaryFolder halves;
    const testing::TemporaryFolder floats;
    ASSERT_TRUE(
        testing::CopyConverted(GoldenFolder(name), halves.path(), kernels::DType::kF32, kernels::DType::kF16).ok());
    ASSERT_TRUE(testing::CopyConverted(halves.path(), floats.path(), kernels::DType::kF16, kernels::DType::kF32).ok());
    for (const Mode& mode : kModes) {
      SCOPED_TRACE(std::string(name) + " " + mode.name);
      std::vector<std::vector<float>> logits;
      for (const std::string& folder : {halves.path(), floats.path(), GoldenFolder(name)}) {
        StatusOr<TinyModel> tiny =
            LoadTinyModel(folder, {.backend = mode.backend, .isa = {}, .activations = mode.activations});
        ASSERT_TRUE(tiny.ok()) << tiny.status().message();
        SequenceArena arena(tiny->model->spec(), 1, 40);
        const std::vector<TokenId> tokens = testing::RandomTokens(40, tiny->model->spec().vocabulary_size, 5);
        const ForwardSpan span = arena.Span(0, tokens, 0, 40);
        const kernels::ConstF32View rows = tiny->model->Forward(arena.memory(), {&span, 1});
        logits.emplace_back(rows.data, rows.data + rows.rows * rows.cols);
      }
      EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0);
      EXPECT_NE(logits[0], logits[2]);  // Rounding to halves did change the values.
    }
  }
}

// The embedded trained models: greedy answers to whole chats.
class Trained : public ::testing::TestWithParam<std::tuple<std::string, Mode>> {};

TEST_P(Trained, GreedyAnswersAreTheExpectedOnes) {
  const auto& [name, mode] = GetParam();
  StatusOr<TinyModel> tiny =
      LoadTinyModel(testing::AssetFolder(name), {.backend = mode.backend, .isa = {}, .activations = mode.activations});
  ASSERT_TRUE(tiny.ok()) << tiny.status().message();
  const std::string path = std::string(INVAR_SOURCE_DIR) + "/tests/golden/trained/" + name + ".json";
  StatusOr<std::string> text = ReadFile(path, 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const nlohmann::json expected = nlohmann::json::parse(*text);
  ASSERT_FALSE(expected["prompts"].empty());
  SequenceArena arena(tiny->model->spec(), 1, 512);
  const double margin_min = mode.exact() ? 1e-3 : 0.6;
  for (const auto& prompt : expected["prompts"]) {
    std::vector<TokenId> tokens = testing::Tokens(prompt["ids"].get<std::vector<int32_t>>());
    arena.Reset(0);
    ForwardSpan span = arena.Span(0, tokens, 0, 1);
    for (size_t i = 0; i < prompt["greedy"].size() && prompt["greedy_margin"][i].get<double>() > margin_min; ++i) {
      const kernels::ConstF32View logits = tiny->model->Forward(arena.memory(), {&span, 1});
      const int64_t best = std::max_element(logits.row(0), logits.row(0) + logits.cols) - logits.row(0);
      ASSERT_EQ(best, prompt["greedy"][i].get<int32_t>()) << prompt["text"] << " step " << i;
      tokens.emplace_back(static_cast<int32_t>(best));
      span = arena.Span(0, std::span(tokens).last(1), static_cast<int32_t>(tokens.size()) - 1, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Embedded, Trained,
                         ::testing::Combine(::testing::Values("tiny-hybrid", "tiny-hybrid-ft"),
                                            ::testing::ValuesIn(kModes)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace invar::models
