// SCD on real models: an equal pair comes out as it was, and on the trained pair codes cost less than raw reuse by the
// shares that are asked of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "engine/transfer/scd_payload.h"
#include "engine/transfer/scd_profile_file.h"
#include "models/text.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_pair.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/measure.h"
#include "tools/calibrate/pair_reader.h"

namespace invar::calibrate {
namespace {

using engine::CodeBits;
using engine::ScdMode;

testing::TinyModel Load(const std::string& folder, const kernels::DType activations, const int threads = 1) {
  auto loaded = testing::LoadTinyModel(
      folder, {.backend = "cpu", .isa = {}, .activations = activations, .threads = threads, .mtp_head = false});
  Check(loaded.ok(), "a model of the tree loads", loaded.status().message());
  return *std::move(loaded);
}

std::vector<TokenId> TextTokens() {
  return testing::ProseTokens({"LICENSE", "docs/DETERMINISM.md", "docs/PREFIX_CACHE.md", "docs/COMPRESSION.md",
                               "docs/STYLE.md", "docs/SPECULATION.md"});
}

CalibrateOptions Quick(const std::string& out) {
  CalibrateOptions options;
  options.out = out;
  options.prefix_tokens = 1024;
  options.suffix_tokens = 48;
  options.fit_windows = 14;
  options.choose_windows = 1;
  options.judge_windows = 8;
  options.features = 128;
  options.tails = {0, 256};
  return options;
}

StatusOr<Calibration> Fit(const testing::TinyModel& producer, const testing::TinyModel& consumer,
                          const std::string& producer_folder, const std::string& consumer_folder,
                          const std::span<const TokenId> tokens, const CalibrateOptions& options) {
  return CalibrateOn({.model = *producer.model, .folder = producer_folder, .rows_max = 512},
                     {.model = *consumer.model, .folder = consumer_folder, .rows_max = 512}, tokens, options, {});
}

// --- The trained pair ---
class TrainedPair : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder;
    tokens_ = new std::vector<TokenId>(TextTokens());
    const testing::TinyModel producer = Load(testing::AssetFolder("tiny-hybrid"), kernels::DType::kBf16);
    const testing::TinyModel consumer = Load(testing::AssetFolder("tiny-hybrid-ft"), kernels::DType::kBf16);
    auto made = Fit(producer, consumer, testing::AssetFolder("tiny-hybrid"), testing::AssetFolder("tiny-hybrid-ft"),
                    *tokens_, Quick(folder_->path() + "/pair.scd"));
    Check(made.ok(), "the pair is calibrated", made.status().message());
    made_ = new Calibration(*std::move(made));
  }
  static void TearDownTestSuite() {
    delete made_;
    delete tokens_;
    delete folder_;
  }
  static const MeasuredPoint& Point(const std::string& name) {
    for (const MeasuredPoint& point : made_->points) {
      if (point.point.name == name) return point;
    }
    Check(false, "there is such a point", name);
    return made_->points.front();
  }
  static double Kl(const std::string& name) { return Point(name).quality.kl; }

  static testing::TemporaryFolder* folder_;
  static std::vector<TokenId>* tokens_;
  static Calibration* made_;
};
testing::TemporaryFolder* TrainedPair::folder_ = nullptr;
std::vector<TokenId>* TrainedPair::tokens_ = nullptr;
Calibration* TrainedPair::made_ = nullptr;

TEST_F(TrainedPair, CodesCostAThirdOfRawReuse) {
  EXPECT_LE(Kl("reuse-linear"), 0.35 * Kl("raw"));
  EXPECT_LE(Kl("scd-0.5"), 0.35 * Kl("raw"));
  EXPECT_LE(Kl("scd-0.125"), 0.30 * Kl("raw"));
  // A quarter of the width in 4 bits, on a third of the windows that calibration takes by itself: with these 0.24.
  EXPECT_LE(Kl("reuse-nonlinear"), 0.37 * Kl("raw"));
}

TEST_F(TrainedPair, StaysWithinItsBudgetOfBytesAndWork) {
  for (const char* name : {"scd-0.125", "scd-0.25", "scd-0.5"}) {
    EXPECT_LE(Point(name).payload_bytes_per_token, std::stod(std::string(name).substr(4)) * made_->raw_bytes_per_token)
        << name;
    EXPECT_LE(Point(name).recompute_share, 0.05) << name;
  }
  EXPECT_LE(Kl("scd-0.25"), Kl("scd-0.125") * 1.05);
  EXPECT_LE(Kl("scd-0.5"), Kl("scd-0.25") * 1.05);
}

TEST_F(TrainedPair, FewerBitsOfTheSameKvHelpNobody) {
  EXPECT_GE(Kl("raw4"), 0.99 * Kl("raw"));
  EXPECT_GT(Kl("drop"), 3.0 * Kl("raw"));
}

TEST_F(TrainedPair, ReportsWhatWasSent) {
  // The payload that was really encoded of the windows' prefixes has the size that is reported.
  const testing::TinyModel producer = Load(testing::AssetFolder("tiny-hybrid"), kernels::DType::kBf16);
  const testing::TinyModel consumer = Load(testing::AssetFolder("tiny-hybrid-ft"), kernels::DType::kBf16);
  const auto from = Party::Make(*producer.model, {.checkpoints = 1, .tokens_max = 300, .rows_max = 512});
  const auto to = Party::Make(*consumer.model, {.sequences = 2, .tokens_max = 300, .rows_max = 512});
  ASSERT_TRUE(from.ok() && to.ok());
  const auto profile = engine::ParseScd(engine::ToScdBytes(made_->profile), "pair.scd");
  ASSERT_TRUE(profile.ok());
  for (const engine::ScdPoint& point : profile->points) {
    const Trial trial{.point = point, .alone = std::nullopt};
    const Window window{.prefix = std::span(*tokens_).first(251), .suffix = std::span(*tokens_).subspan(251, 20)};
    const auto results = Measure(**from, **to, *profile, {&trial, 1}, {&window, 1}, {});
    EXPECT_EQ(results[0].payload_bytes, ScdPayloadBytes(profile->shape, point, 250)) << point.name;
  }
}

// --- Ladders: everything fitted is at hand, not only what a profile keeps ---
engine::ScdProfile FitWhole(Party& producer, Party& consumer, const std::span<const TokenId> tokens) {
  constexpr size_t kWindow = 512;
  engine::ScdProfile profile;
  profile.shape = engine::ScdShapeOf(consumer.spec());
  std::vector<engine::ScdLayerFitter> fitters;
  for (const engine::ScdLayerShape& layer : profile.shape.layers)
    fitters.emplace_back(layer, profile.shape.hidden, engine::ScdFitOptions{});
  PairReader reader(producer, consumer, /*by_mass=*/false);
  const auto pass = [&](const auto& add) {
    for (size_t begin = 0; begin + kWindow <= tokens.size(); begin += kWindow) {
      reader.Read({.prefix = tokens.subspan(begin, kWindow), .suffix = {}});
      for (size_t i = 0; i < fitters.size(); ++i) add(fitters[i], reader.Layer(i));
    }
  };
  pass([](engine::ScdLayerFitter& fitter, const engine::ScdPairedLayer& layer) { fitter.AddLinear(layer); });
  for (engine::ScdLayerFitter& fitter : fitters) fitter.SolveLinear();
  pass([](engine::ScdLayerFitter& fitter, const engine::ScdPairedLayer& layer) { fitter.AddNonlinear(layer); });
  for (engine::ScdLayerFitter& fitter : fitters) {
    fitter.SolveNonlinear();
    profile.layers.push_back(fitter.fit());
  }
  return profile;
}

TEST_F(TrainedPair, LongerTailsAndMorePatchesNeverHurt) {
  const testing::TinyModel producer = Load(testing::AssetFolder("tiny-hybrid"), kernels::DType::kBf16);
  const testing::TinyModel consumer = Load(testing::AssetFolder("tiny-hybrid-ft"), kernels::DType::kBf16);
  const auto from = Party::Make(*producer.model, {.checkpoints = 4, .tokens_max = 600, .rows_max = 512});
  const auto to = Party::Make(*consumer.model, {.sequences = 2, .tokens_max = 600, .rows_max = 512});
  ASSERT_TRUE(from.ok() && to.ok());
  const std::span<const TokenId> all = *tokens_;
  const engine::ScdProfile profile = FitWhole(**from, **to, all.first(all.size() - 2400));
  const size_t layers = profile.shape.layers.size();
  // Narrow codes everywhere; then one thing changes at a time.
  const auto point = [&](const int32_t tail, const size_t patched) {
    engine::ScdPoint out{.name = "step", .layers = {}};
    size_t attention = 0;
    for (size_t i = 0; i < layers; ++i) {
      if (profile.shape.layers[i].recurrent) {
        out.layers.push_back({.mode = ScdMode::kMapState, .rank = profile.shape.hidden, .tail = tail});
      } else if (attention++ < patched) {
        out.layers.push_back({.mode = ScdMode::kPatch, .rank = profile.shape.hidden});
      } else {
        out.layers.push_back({.mode = ScdMode::kReuse, .rank = 8});
      }
    }
    return Trial{.point = out, .alone = std::nullopt};
  };
  const Trial trials[] = {point(0, 0), point(64, 0), point(256, 0), point(256, 1), point(256, 2)};
  std::vector<Window> windows;
  for (size_t i = 0; i < 4; ++i) {
    const size_t begin = all.size() - 2400 + 600 * i;
    windows.push_back({.prefix = all.subspan(begin, 513), .suffix = all.subspan(begin + 513, 48)});
  }
  const auto results = Measure(**from, **to, profile, trials, windows, {});
  for (size_t i = 0; i < layers; ++i) {
    if (!profile.shape.layers[i].recurrent) continue;
    EXPECT_LE(results[1].layer_errors[i], results[0].layer_errors[i]) << "layer " << i;
    // Flat once what was mapped has decayed.
    EXPECT_LE(results[2].layer_errors[i], 1.001 * results[1].layer_errors[i]) << "layer " << i;
  }
  EXPECT_LT(results[2].quality.kl, results[0].quality.kl);
  EXPECT_LE(results[3].quality.kl, results[2].quality.kl);
  EXPECT_LE(results[4].quality.kl, results[3].quality.kl);
  EXPECT_LT(results[4].layer_errors[layers - 1], 0.9 * results[3].layer_errors[layers - 1]);
}

TEST(Calibration, GivesTheSameFileOnAnyNumberOfThreadsAndAfterAKill) {
  const testing::TemporaryFolder folder;
  const std::vector<TokenId> tokens = TextTokens();
  const std::string from = testing::AssetFolder("tiny-hybrid");
  const std::string to = testing::AssetFolder("tiny-hybrid-ft");
  CalibrateOptions options = Quick(folder.path() + "/a.scd");
  options.prefix_tokens = 64;
  options.suffix_tokens = 16;
  options.fit_windows = 4;
  options.choose_windows = 1;
  options.judge_windows = 1;
  options.features = 16;
  options.tails = {0};
  std::string bytes;
  for (const int threads : {1, 3}) {
    const testing::TinyModel producer = Load(from, kernels::DType::kBf16, threads);
    const testing::TinyModel consumer = Load(to, kernels::DType::kBf16, threads);
    const auto made = Fit(producer, consumer, from, to, tokens, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const std::string now = engine::ToScdBytes(made->profile);
    if (threads == 1) bytes = now;
    EXPECT_EQ(now, bytes) << threads;
  }

  // What lay there in the middle of the second pass is put back, as a kill would have left it.
  options.save_seconds = 0;
  const std::string kept = options.out + ".progress";
  const std::string copy = folder.path() + "/copy";
  const testing::TinyModel producer = Load(from, kernels::DType::kBf16);
  const testing::TinyModel consumer = Load(to, kernels::DType::kBf16);
  const auto run = [&](const std::function<void(int64_t, int64_t)>& progress) {
    return CalibrateOn({.model = *producer.model, .folder = from, .rows_max = 512},
                       {.model = *consumer.model, .folder = to, .rows_max = 512}, tokens, options, progress);
  };
  const auto whole = run([&](const int64_t done, int64_t) {
    if (done == 6) std::filesystem::copy_file(kept, copy);
  });
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->resumed);
  EXPECT_FALSE(std::filesystem::exists(kept));
  std::filesystem::copy_file(copy, kept);
  const auto again = run({});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->resumed);
  EXPECT_EQ(engine::ToScdBytes(again->profile), bytes);
  // Of other settings it is nobody's.
  std::filesystem::copy_file(copy, kept);
  options.fit_windows = 5;
  const auto other = run({});
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->resumed);
}

// --- An equal pair: nothing is lost but what the codes round ---
TEST(EqualPair, IsReproducedAndAnswersTheSame) {
  const std::string folder = testing::AssetFolder("tiny-hybrid");
  const testing::TemporaryFolder out;
  const testing::TinyModel producer = Load(folder, kernels::DType::kF32);
  const testing::TinyModel consumer = Load(folder, kernels::DType::kF32);
  const std::vector<TokenId> tokens = TextTokens();
  CalibrateOptions options = Quick(out.path() + "/same.scd");
  options.prefix_tokens = 192;
  options.fit_windows = 12;
  options.choose_windows = 1;
  options.judge_windows = 1;
  options.features = 0;
  options.tails = {0, 32};
  options.rank_k = 64;
  options.rank_v = 64;
  options.budgets = {1.0};
  options.by_mass = false;
  const auto made = Fit(producer, consumer, folder, folder, tokens, options);
  ASSERT_TRUE(made.ok()) << made.status().message();

  // Full width, unrounded: attention once by K and V, once by the input and the consumer's weights.
  engine::ScdProfile profile = made->profile;
  const auto from = Party::Make(*producer.model, {.checkpoints = 1, .tokens_max = 400, .rows_max = 512});
  const auto to = Party::Make(*consumer.model, {.sequences = 2, .tokens_max = 400, .rows_max = 512});
  ASSERT_TRUE(from.ok() && to.ok());
  const std::span<const TokenId> prefix = std::span(tokens).last(300).first(200);
  engine::ScdPoint point = profile.points.front();
  ASSERT_EQ(point.name, "reuse-kv");
  for (size_t i = 0; i < point.layers.size(); ++i) {
    point.layers[i].bits = CodeBits::kF32;
    if (profile.shape.layers[i].recurrent) point.layers[i].tail = 32;
  }
  const Trial trial{.point = point, .alone = std::nullopt};
  const Window window{.prefix = prefix, .suffix = std::span(tokens).last(64)};
  const auto results = Measure(**from, **to, profile, {&trial, 1}, {&window, 1}, {});
  for (size_t i = 0; i < point.layers.size(); ++i) {
    // States cross in bf16, which rounds by up to 2^-9; their tail wears that down.
    EXPECT_LE(results[0].layer_errors[i], profile.shape.layers[i].recurrent ? 4e-3 : 1e-4) << "layer " << i;
  }

  // Measure left the reconstruction in sequence 1, with the suffix behind it: make both anew and answer.
  Party& party = **to;
  const auto greedy = [&](const int32_t sequence) {
    std::vector<TokenId> answer = {tokens[tokens.size() - 101]};
    int64_t position = std::ssize(prefix) - 1;
    while (answer.size() <= 64) {
      const TokenId next = answer.back();
      party.Read(
          sequence, {&next, 1}, position++, {.on_row = [&](int64_t, const std::span<const float> logits) {
            answer.emplace_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
          }});
    }
    return answer;
  };
  LayerTap tap(producer.model->spec());
  const std::span<const TokenId> sent = prefix.first(prefix.size() - 1);
  const models::StateCopy copy{.after = Position(static_cast<int32_t>(sent.size()) - 32), .to = (*from)->checkpoint(0)};
  (*from)->Restart(0);
  (*from)->Read(0, sent, 0, {.layers = &tap, .checkpoints = {&copy, 1}});
  party.Restart(0);
  party.Read(0, sent, 0, {});
  const engine::ScdProducerPrefix source{
      .sequence = (*from)->sequence(0),
      .tokens = std::ssize(sent),
      .inputs = tap.inputs,
      .residuals = tap.residuals,
      .state_at = [&](const int64_t at) { return at == std::ssize(sent) ? SlotId(0) : (*from)->checkpoint(0); }};
  for (size_t i = 0; i < point.layers.size(); ++i) {
    std::vector<std::byte> payload;
    EncodeScdLayer(profile, point, i, source, payload);
    ASSERT_TRUE(
        DecodeScdLayer(profile, point, i, payload, {.sequence = party.sequence(1), .tokens = sent, .rows_max = 512})
            .ok());
    payload.pop_back();
    EXPECT_EQ(
        DecodeScdLayer(profile, point, i, payload, {.sequence = party.sequence(1), .tokens = sent, .rows_max = 512})
            .code(),
        StatusCode::kDataLoss);
  }
  EXPECT_EQ(greedy(1), greedy(0));
}

// On a dense model without norms of keys K and V are linear in the input, so its code is never the worse one.
TEST(DensePair, CodesOfTheInputAreAtLeastAsGoodAsCodesOfKeysAndValues) {
  const testing::TinyModel producer = Load(testing::GoldenFolder("llama"), kernels::DType::kF32);
  const testing::TinyModel consumer = Load(testing::GoldenFolder("mistral"), kernels::DType::kF32);
  ASSERT_EQ(engine::ScdShapeOf(producer.model->spec()), engine::ScdShapeOf(consumer.model->spec()));
  const auto from = Party::Make(*producer.model, {.tokens_max = 256, .rows_max = 512});
  const auto to = Party::Make(*consumer.model, {.tokens_max = 256, .rows_max = 512});
  ASSERT_TRUE(from.ok() && to.ok());
  const engine::ScdShape shape = engine::ScdShapeOf(producer.model->spec());
  const int64_t cols = shape.layers[1].kv_columns();
  PairReader reader(**from, **to, /*by_mass=*/false);
  engine::PairSums of_keys(cols, cols);
  engine::PairSums of_input(shape.hidden, cols);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<TokenId> tokens = testing::RandomTokens(256, 384, seed);
    reader.Read({.prefix = std::span(tokens).first(240), .suffix = std::span(tokens).subspan(240)});
    const engine::ScdPairedLayer layer = reader.Layer(1);
    of_keys.Add(layer.producer_kv.keys.view(), layer.consumer_kv.keys.view(), layer.weights);
    of_input.Add(layer.producer_inputs.view(), layer.consumer_kv.keys.view(), layer.weights);
  }
  const std::vector<float> scale(static_cast<size_t>(cols), 1.0F);
  const auto keys = FitReducedRank(of_keys, 0, cols, scale, 1e-8).errors;
  const auto input = FitReducedRank(of_input, 0, cols, scale, 1e-8).errors;
  for (size_t rank = 1; rank < keys.size(); ++rank) EXPECT_LE(input[rank], keys[rank] + 1e-6) << rank;
}

}  // namespace
}  // namespace invar::calibrate
