// The multi-token head: its values are those of the reference implementation (a float64 run of the wiring that vLLM
// uses; tolerances as in golden_test.cc), its bits depend on the tokens before it alone, and guessing leaves no trace.
#include "models/stack/mtp_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "models/random_model.h"
#include "models/weights/safetensors.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using testing::GoldenFolder;
using testing::LoadTinyModel;
using testing::SequenceArena;
using testing::TinyModel;
using testing::TinyModelOptions;

constexpr char kGolden[] = "qwen3_5-vl";

std::vector<float> Floats(const kernels::ConstF32View& rows, const int64_t row) {
  return {rows.row(row), rows.row(row) + rows.cols};
}
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One sequence of an arena that runs and is guessed for.
class Guessed {
 public:
  Guessed(Model& model, SequenceArena& arena, const int32_t sequence, std::span<const TokenId> tokens)
      : model_(model), arena_(arena), sequence_(sequence), tokens_(tokens) {}

  ForwardSpan Span(const int32_t first, const int32_t end) const {
    return arena_.Span(sequence_, tokens_.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)), first,
                       1);
  }
  std::vector<float> Run(const int32_t first, const int32_t end) {
    const ForwardSpan span = Span(first, end);
    return Floats(model_.Forward(arena_.memory(), {&span, 1}), 0);
  }
  // For what follows the token at `position`, all before it having run.
  GuessRow Row(const int32_t position) const {
    const ForwardSpan span = Span(position, position + 1);
    return {.token = span.tokens[0], .position = span.first, .pages = span.pages, .state = span.state};
  }
  std::vector<float> Guess(const int32_t position) {
    const GuessRow row = Row(position);
    return Floats(model_.Guess(arena_.memory(), {&row, 1}), 0);
  }

 private:
  Model& model_;
  SequenceArena& arena_;
  const int32_t sequence_;
  const std::span<const TokenId> tokens_;
};

struct Mode {
  const char* name;
  const char* backend;
  kernels::DType activations;
};

class MtpGolden : public ::testing::TestWithParam<Mode> {};

TEST_P(MtpGolden, GuessesAgreeWithTheReferenceImplementation) {
  const Mode& mode = GetParam();
  StatusOr<TinyModel> tiny =
      LoadTinyModel(GoldenFolder(kGolden), {.backend = mode.backend, .isa = {}, .activations = mode.activations});
  ASSERT_TRUE(tiny.ok()) << tiny.status().message();
  StatusOr<SafetensorsFile> expected = SafetensorsFile::Open(GoldenFolder(kGolden) + "/mtp.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const auto read = [&]<typename T>(const char* name, T) {
    const TensorInfo& info = expected->tensors().at(name);
    std::vector<T> values(static_cast<size_t>(info.bytes) / sizeof(T));
    std::memcpy(values.data(), info.data, static_cast<size_t>(info.bytes));
    return values;
  };
  const std::vector<TokenId> tokens = testing::Tokens(read("tokens.65", int32_t{}));
  const std::vector<float> wanted = read("mtp_logits.float64.65", float{});  // Row i: from tokens i and i + 1.
  ASSERT_TRUE(tiny->model->spec().mtp.served()) << tiny->model->spec().mtp.why_not;
  SequenceArena arena(tiny->model->spec(), 1, 80);
  Guessed sequence(*tiny->model, arena, 0, tokens);
  double max_error = 0;
  double sum_squares = 0;
  size_t count = 0;
  for (int32_t t = 0; t < 64; ++t) {
    sequence.Run(t, t + 1);
    for (const float logit : sequence.Guess(t + 1)) {
      const double error = std::abs(double{logit} - wanted[count++]);
      ASSERT_TRUE(std::isfinite(error)) << t;
      max_error = std::max(max_error, error);
      sum_squares += error * error;
    }
  }
  EXPECT_EQ(count, wanted.size());
  const double rms = std::sqrt(sum_squares / static_cast<double>(count));
  std::printf("%-9s max %.2e rms %.2e\n", mode.name, max_error, rms);
  if (mode.activations == kernels::DType::kF32) {
    EXPECT_LE(max_error, 3e-4);
  } else {
    EXPECT_LE(max_error, 0.6);
    EXPECT_LE(rms, 0.05);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, MtpGolden,
                         ::testing::Values(Mode{"reference", "reference", kernels::DType::kF32},
                                           Mode{"cpu_fp32", "cpu", kernels::DType::kF32},
                                           Mode{"cpu_bf16", "cpu", kernels::DType::kBf16}),
                         [](const auto& info) { return info.param.name; });

// --- Bits ---

constexpr int32_t kTokens = 150;  // Past two page boundaries.

// A folder of each kind of head: dense of the golden model, made-up ones with experts.
class HeadFolder {
 public:
  explicit HeadFolder(const std::string& golden) : path_(GoldenFolder(golden)) {
    if (golden == kGolden) return;
    StatusOr<std::string> text = ReadFile(path_ + "/config.json", 1 << 20);
    nlohmann::json config = nlohmann::json::parse(*text);
    config[golden == "qwen3_next" ? "num_nextn_predict_layers" : "mtp_num_hidden_layers"] = 1;
    const std::string shape = made_.path() + "/shape.json";
    StatusOr<AtomicFile> file = AtomicFile::Create(shape);
    EXPECT_TRUE(file.ok() && file->Append(config.dump()).ok() && file->Commit().ok());
    path_ = made_.path() + "/model";
    EXPECT_TRUE(MakeRandomModel({.shape = shape, .folder = path_, .seed = 5, .progress = {}}).ok());
  }
  const std::string& path() const { return path_; }

 private:
  testing::TemporaryFolder made_;
  std::string path_;
};

class MtpBits : public ::testing::TestWithParam<const char*> {
 protected:
  MtpBits() : folder_(GetParam()) {}
  TinyModel Load(const TinyModelOptions& options) {
    StatusOr<TinyModel> tiny = LoadTinyModel(folder_.path(), options);
    EXPECT_TRUE(tiny.ok()) << tiny.status().message();
    EXPECT_TRUE(tiny->model->spec().mtp.served()) << tiny->model->spec().mtp.why_not;
    return *std::move(tiny);
  }
  HeadFolder folder_;
};

// Plain: one thread, one token at a time, a guess after each. Then every instruction set with one and two threads, in
// chunks, beside another sequence that is guessed for too, with and without guesses on the way.
TEST_P(MtpBits, DependOnTheTokensBeforeAlone) {
  TinyModel plain = Load({.backend = "cpu", .isa = {}, .activations = kernels::DType::kBf16});
  const int32_t vocabulary = plain.model->spec().vocabulary_size;
  const std::vector<TokenId> tokens = testing::RandomTokens(kTokens, vocabulary, 3);
  const std::vector<TokenId> others = testing::RandomTokens(kTokens, vocabulary, 4);
  std::vector<std::vector<float>> wanted(1);  // Of guesses by position.
  SequenceArena plain_arena(plain.model->spec(), 1, kTokens);
  Guessed stepwise(*plain.model, plain_arena, 0, tokens);
  for (int32_t t = 0; t + 1 < kTokens; ++t) {
    stepwise.Run(t, t + 1);
    wanted.push_back(stepwise.Guess(t + 1));
  }
  stepwise.Run(kTokens - 1, kTokens);
  int32_t compared = 0;
  for (const std::string& isa : kernels::SupportedIsas()) {
    for (const int threads : {1, 2}) {
      TinyModel tiny = Load({.backend = "cpu", .isa = isa, .activations = kernels::DType::kBf16, .threads = threads});
      for (const int32_t chunk : {1, 7, 64, 149}) {
        SCOPED_TRACE(isa + " x " + std::to_string(threads) + ", chunks of " + std::to_string(chunk));
        SequenceArena arena(tiny.model->spec(), 2, kTokens);
        Guessed sequence(*tiny.model, arena, 0, tokens);
        Guessed other(*tiny.model, arena, 1, others);
        for (int32_t first = 0; first + chunk < kTokens; first += chunk) {
          const std::vector<ForwardSpan> spans = {other.Span(first, first + chunk),
                                                  sequence.Span(first, first + chunk)};
          tiny.model->Forward(arena.memory(), spans);
          const std::vector<GuessRow> rows = {other.Row(first + chunk), sequence.Row(first + chunk)};
          const kernels::ConstF32View guesses = tiny.model->Guess(arena.memory(), rows);
          ASSERT_TRUE(SameBits(Floats(guesses, 1), wanted[static_cast<size_t>(first + chunk)])) << first + chunk;
          ASSERT_FALSE(SameBits(Floats(guesses, 0), Floats(guesses, 1)));
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 350);
}

// Guesses that go on from guesses, in pages that then hold wrong tokens' rows, change nothing of what forwards give:
// logits, states and pages are those of a run without guesses.
TEST_P(MtpBits, GuessesLeaveNoTrace) {
  for (const char* backend : {"reference", "cpu"}) {
    TinyModel tiny = Load({.backend = backend, .isa = {}, .activations = kernels::DType::kF32});
    const std::vector<TokenId> tokens = testing::RandomTokens(kTokens, tiny.model->spec().vocabulary_size, 3);
    SequenceArena arena(tiny.model->spec(), 2, kTokens);
    Guessed plain(*tiny.model, arena, 0, tokens);
    Guessed guessed(*tiny.model, arena, 1, tokens);
    std::vector<float> first_chain;
    for (int32_t t = 0; t < kTokens; ++t) {
      const std::vector<float> logits = plain.Run(t, t + 1);
      ASSERT_TRUE(SameBits(guessed.Run(t, t + 1), logits)) << t;
      ASSERT_TRUE(std::ranges::equal(arena.Slot(0), arena.Slot(1))) << t;
      GuessRow row = guessed.Row(std::min(t + 1, kTokens - 1));
      for (int32_t i = 0; t + 5 < kTokens && i < 4; ++i) {
        const kernels::ConstF32View guess = tiny.model->Guess(arena.memory(), {&row, 1});
        const int64_t best = std::max_element(guess.row(0), guess.row(0) + guess.cols) - guess.row(0);
        row.token = TokenId(static_cast<int32_t>(best));
        row.position = Position(row.position.value() + 1);
        row.from_row = 0;
        if (i == 3 && t == 60) first_chain = Floats(guess, 0);
      }
    }
    EXPECT_EQ(arena.PageBytes(0), arena.PageBytes(1));
    // And the chain is a function of the tokens too: in company, in another row.
    arena.Reset(1);
    guessed.Run(0, 61);
    arena.Reset(0);
    plain.Run(0, 30);
    std::vector<GuessRow> rows = {plain.Row(30), guessed.Row(61)};
    for (int32_t i = 0; i < 4; ++i) {
      const kernels::ConstF32View guesses = tiny.model->Guess(arena.memory(), rows);
      for (int32_t r = 0; r < 2; ++r) {
        GuessRow& row = rows[static_cast<size_t>(r)];
        const int64_t best = std::max_element(guesses.row(r), guesses.row(r) + guesses.cols) - guesses.row(r);
        row.token = TokenId(static_cast<int32_t>(best));
        row.position = Position(row.position.value() + 1);
        row.from_row = r;
      }
      if (i < 3) continue;
      EXPECT_TRUE(SameBits(Floats(guesses, 1), first_chain));
    }
  }
}

// The backends agree as closely as they do on the stack's logits: experts in the head included.
TEST_P(MtpBits, BackendsAgree) {
  TinyModel reference = Load({.backend = "reference", .isa = {}, .activations = kernels::DType::kF32});
  TinyModel cpu = Load({.backend = "cpu", .isa = {}, .activations = kernels::DType::kF32});
  const std::vector<TokenId> tokens = testing::RandomTokens(kTokens, cpu.model->spec().vocabulary_size, 3);
  std::vector<std::vector<float>> guesses;
  for (const TinyModel* tiny : {&reference, &cpu}) {
    SequenceArena arena(tiny->model->spec(), 1, kTokens);
    Guessed sequence(*tiny->model, arena, 0, tokens);
    sequence.Run(0, 100);
    guesses.push_back(sequence.Guess(100));
  }
  double largest = 0;
  for (size_t i = 0; i < guesses[0].size(); ++i) {
    EXPECT_NEAR(guesses[0][i], guesses[1][i], 3e-4) << i;
    largest = std::max(largest, std::abs(double{guesses[0][i]}));
  }
  EXPECT_GT(largest, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Heads, MtpBits, ::testing::Values(kGolden, "qwen3_5_moe", "qwen3_next"), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// --- Which heads are served ---

// A copy of a golden folder with another configuration and other names of tensors.
TinyModel LoadChanged(const std::string& golden, const nlohmann::json& config_patch, const char* renamed_from = nullptr,
                      const char* renamed_to = nullptr, const bool mtp_head = true) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(GoldenFolder(golden), folder.path(), std::filesystem::copy_options::recursive);
  const auto rewrite = [&](const std::string& name, const std::string& text) {
    StatusOr<AtomicFile> file = AtomicFile::Create(folder.path() + "/" + name);
    EXPECT_TRUE(file.ok() && file->Append(text).ok() && file->Commit().ok());
  };
  nlohmann::json config = nlohmann::json::parse(*ReadFile(folder.path() + "/config.json", 1 << 20));
  if (!config_patch.is_null()) config.merge_patch(config_patch);
  rewrite("config.json", config.dump());
  if (renamed_from != nullptr) {
    std::string bytes = *ReadFile(folder.path() + "/model.safetensors", 1 << 24);
    const std::string from = renamed_from;
    Check(from.size() == std::strlen(renamed_to), "names of one length keep the header as long as it is");
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += from.size()) {
      bytes.replace(at, from.size(), renamed_to);
    }
    rewrite("model.safetensors", bytes);
  }
  StatusOr<TinyModel> tiny = LoadTinyModel(folder.path(), {.isa = {}, .mtp_head = mtp_head});
  EXPECT_TRUE(tiny.ok()) << tiny.status().message();
  return *std::move(tiny);
}

TEST(MtpServed, OnlyWhereTheArchitectureDefinesItAndTheCheckpointHasIt) {
  EXPECT_EQ(LoadChanged(kGolden, {}).model->spec().mtp.why_not, "");
  EXPECT_EQ(LoadChanged(kGolden, {{"text_config", {{"mtp_num_hidden_layers", nullptr}}}}).model->spec().mtp.why_not,
            "");
  EXPECT_EQ(LoadChanged(kGolden, {{"text_config", {{"mtp_num_hidden_layers", 0}}}}).model->spec().mtp.why_not,
            "mtp_num_hidden_layers is 0, and heads of one layer are served");
  EXPECT_EQ(LoadChanged(kGolden, {{"text_config", {{"mtp_num_hidden_layers", 2}}}}).model->spec().mtp.why_not,
            "mtp_num_hidden_layers is 2, and heads of one layer are served");
  EXPECT_EQ(LoadChanged(kGolden, {{"text_config", {{"mtp_use_dedicated_embeddings", true}}}}).model->spec().mtp.why_not,
            "mtp_use_dedicated_embeddings is true");
  EXPECT_EQ(LoadChanged("qwen3_5", {{"mtp_num_hidden_layers", 1}}).model->spec().mtp.why_not,
            "the checkpoint has no tensors mtp.*");
  EXPECT_EQ(LoadChanged(kGolden, {}, nullptr, nullptr, false).model->spec().mtp.why_not,
            "it is not to be served (engine.speculation.mtp_head)");
}

TEST(MtpServed, NotWhereTheArchitectureDefinesNone) {
  std::string text;
  const StatusOr<StackPlan> llama = ReadStackPlan(GoldenFolder("llama"), text);
  const StatusOr<WeightFiles> with_head = WeightFiles::Open(GoldenFolder(kGolden));
  ASSERT_TRUE(llama.ok() && with_head.ok());
  EXPECT_EQ(WhyNoMtpHead(*llama, *with_head), "its architecture defines none");
}

// What a head costs, and that nobody pays without one.
TEST(MtpServed, TakesALayerOfKvAndARowOfState) {
  const ModelSpec with = LoadChanged(kGolden, {}).model->spec();
  const ModelSpec without = LoadChanged(kGolden, {}, nullptr, nullptr, false).model->spec();
  EXPECT_EQ(with.attention_layers, without.attention_layers);
  EXPECT_EQ(with.page_bytes, without.page_bytes / without.attention_layers * (without.attention_layers + 1));
  EXPECT_EQ(with.state_bytes, without.state_bytes + 192);  // 48 floats, which are three cache lines.
  EXPECT_EQ(with.fingerprint, without.fingerprint);
  EXPECT_EQ(without.page_bytes, LoadChanged(kGolden, {}, "mtp.", "mpt.").model->spec().page_bytes);
}

TEST(MtpServedDeathTest, NobodyGuessesWithoutOne) {
  TinyModel tiny = LoadChanged("qwen3_5", {});
  SequenceArena arena(tiny.model->spec(), 1, 10);
  GuessRow row;
  row.position = Position(1);
  EXPECT_DEATH(tiny.model->Guess(arena.memory(), {&row, 1}), "multi-token head");
}

}  // namespace
}  // namespace invar::models
