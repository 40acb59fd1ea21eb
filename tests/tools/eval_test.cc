// Measurements of invar eval: a view of everything gives the numbers of the full KV to the last bit, whatever is
// measured and however often it is kept up; views that lose something are seen to.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/dense_page.h"
#include "models/text.h"
#include "tests/support/tiny_model.h"
#include "tools/eval/bound_view.h"
#include "tools/eval/evaluation.h"
#include "tools/eval/scorers.h"
#include "tools/eval/second_pass.h"
#include "tools/eval/windows.h"

namespace invar::eval {
namespace {

using testing::LoadTinyModel;
using testing::TinyModel;

constexpr int32_t kPrefix = 300;  // Pages enough for merging, beside the latest tokens.

TinyModel Load(const std::string& folder) {
  StatusOr<TinyModel> tiny = LoadTinyModel(folder, {.backend = "cpu",
                                                    .isa = {},
                                                    .activations = kernels::DType::kBf16,
                                                    .threads = 2,
                                                    .max_batch_tokens = 128,
                                                    .max_logits_rows = 128});
  Check(tiny.ok(), "the tiny model loads", tiny.ok() ? "" : tiny.status().message());
  return *std::move(tiny);
}

// Everything an evaluation needs, on a small model.
struct Rig {
  Rig(const std::string& folder, const std::vector<std::string>& compressors, const std::vector<double>& budgets,
      const EvaluationPlan& plan)
      : tiny(Load(folder)),
        tokenizer(*models::LoadTokenizer(testing::AssetFolder("tiny-hybrid"))),
        candidates(*MakeCandidates(compressors, budgets)),
        subject(*Subject::Make(*tiny.model, *tiny.backend, {.tokens_max = 512, .rows_max = 128})),
        sampler(*kernels::RowSampler::Create("")),
        judge(sampler, tiny.model->spec().vocabulary_size, {}),
        evaluation(*subject, *tokenizer, judge, candidates, plan),
        tokens(testing::RandomTokens(kPrefix, tiny.model->spec().vocabulary_size, 7)) {}

  // What the full KV writes behind the tokens, drawn at temperature 1.
  std::vector<TokenId> Drawn(const int32_t count) {
    std::vector<TokenId> written;
    Place place = subject->Begin();
    const auto take = [&](int64_t, const auto logits) {
      const NoiseKey key{.seed = 11, .position = static_cast<uint32_t>(written.size())};
      written.emplace_back(sampler.Sample(logits, {}, key));
    };
    subject->Read(nullptr, place, tokens, std::ssize(tokens) - 1, take);
    while (std::ssize(written) < count) {
      const TokenId last = written.back();
      subject->Read(nullptr, place, {&last, 1}, 0, take);
    }
    return written;
  }

  const TinyModel tiny;
  const std::unique_ptr<models::Tokenizer> tokenizer;
  const Candidates candidates;
  const std::unique_ptr<Subject> subject;
  const kernels::RowSampler sampler;
  const RowJudge judge;
  Evaluation evaluation;
  const std::vector<TokenId> tokens;
};

std::vector<std::string> Folders() { return {testing::AssetFolder("tiny-hybrid"), testing::GoldenFolder("qwen3")}; }

TEST(Evaluation, AViewOfEverythingGivesTheNumbersOfTheFullKv) {
  for (const std::string& folder : Folders()) {
    Rig rig(folder, {"noop"}, {0.5}, {.tasks = 1, .draft_tokens = {1, 4, 16}, .path_tokens = 60});
    const Task task{.lead = "It is", .expected = {"a", "e", "x"}, .score = ShareFound};
    const Prompt prompt{.context = rig.tokens,
                        .question = testing::RandomTokens(9, rig.tiny.model->spec().vocabulary_size, 8),
                        .gold = testing::RandomTokens(5, rig.tiny.model->spec().vocabulary_size, 9)};
    rig.evaluation.Answer(0, task, prompt);
    rig.evaluation.Predict(rig.tokens, rig.Drawn(20));
    rig.evaluation.Draft(rig.tokens);
    const CandidateResult& full = rig.evaluation.results()[0];
    const CandidateResult& noop = rig.evaluation.results()[1];
    ASSERT_EQ(full.name + " " + noop.name, "full noop");
    EXPECT_EQ(noop.bytes_share(), 1.0);
    EXPECT_EQ(noop.tasks[0].score_sum, full.tasks[0].score_sum) << folder;
    EXPECT_EQ(noop.tasks[0].nll_sum, full.tasks[0].nll_sum) << folder;
    EXPECT_EQ(noop.text.nll_sum, full.text.nll_sum) << folder;
    EXPECT_EQ(noop.text.agreement.value(), 1.0) << folder;
    for (size_t d = 0; d < noop.drafts.size(); ++d) {
      EXPECT_EQ(noop.drafts[d].acceptance.value(), 1.0) << folder << " " << noop.drafts[d].draft_tokens;
      EXPECT_EQ(noop.drafts[d].tokens_a_round(), noop.drafts[d].draft_tokens + 1.0);
      EXPECT_EQ(noop.drafts[d].rounds, full.drafts[d].rounds);
    }
    EXPECT_EQ(full.drafts[0].rounds, 30) << "every token of the path is one that a draft or the verifier gives";
  }
}

TEST(Evaluation, ViewsThatLoseTokensAreSeenToLose) {
  Rig rig(testing::AssetFolder("tiny-hybrid"), {"streaming:recent=8", "centroid:recent=8", "int8:recent=8"}, {0.25},
          {.tasks = 0, .draft_tokens = {4}, .path_tokens = 60});
  rig.evaluation.Predict(rig.tokens, rig.Drawn(150));
  rig.evaluation.Draft(rig.tokens);
  const std::span<const CandidateResult> results = rig.evaluation.results();
  ASSERT_EQ(results.size(), 5U);
  EXPECT_EQ(results[0].text.agreement.value(), 1.0);
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_LT(results[i].bytes_share(), 0.7) << results[i].name;
    EXPECT_NE(results[i].text.nll_sum, results[0].text.nll_sum) << results[i].name;
  }
  for (const size_t i : {1, 4}) {
    EXPECT_LT(results[i].text.agreement.value(), 1.0) << results[i].name;
    EXPECT_LT(results[i].text.agreement.value(), results[3].text.agreement.value())
        << results[i].name << ": int8 loses least";
    EXPECT_LT(results[i].drafts[0].acceptance.value(), 1.0) << results[i].name;
  }
  // What somebody draws is, in the mean, most likely to them.
  EXPECT_GT(results[1].text.nll(), results[0].text.nll()) << "streaming";
}

TEST(Evaluation, UpkeepHoldsTheBudgetWhileTheTextGrows) {
  Rig rig(testing::AssetFolder("tiny-hybrid"),
          {"snapkv:recent=16", "tova:recent=16", "h2o:recent=16", "expected_attention:recent=16"}, {0.5},
          {.tasks = 0, .draft_tokens = {1}, .path_tokens = 1});
  engine::QueryLog log(rig.tiny.model->spec().attention);
  Place place = rig.subject->Begin();
  rig.subject->Read(nullptr, place, rig.tokens, kPrefix, {}, &log);
  for (size_t row = 1; row <= 4; ++row) {
    BoundView view(*rig.subject, *rig.candidates.rows[row].compressor, cache::Budget::Share(0.5), log, kPrefix / 2);
    for (int32_t end = kPrefix / 2 + 10; end <= kPrefix; end += 10) {
      view.Settle(end);
      EXPECT_EQ(view.tokens(), end);
      EXPECT_LE(view.bytes_share(), 0.5 + 64.0 / end) << "unseen, nothing would be dropped";
    }
  }
}

TEST(BoundView, TellsAttentionHowManyTokensASlotStandsFor) {
  Rig rig(testing::AssetFolder("tiny-hybrid"), {"kmeans:recent=8"}, {0.5},
          {.tasks = 0, .draft_tokens = {1}, .path_tokens = 1});
  engine::QueryLog log(rig.tiny.model->spec().attention);
  Place place = rig.subject->Begin();
  rig.subject->Read(nullptr, place, rig.tokens, kPrefix, {});
  BoundView view(*rig.subject, *rig.candidates.rows[1].compressor, cache::Budget::Share(0.5), log, kPrefix - 70);
  const int32_t heads = rig.tiny.model->spec().attention.shape.kv_heads;
  for (const int32_t end : {kPrefix - 70, kPrefix}) {
    if (end > view.tokens()) view.Settle(end);
    for (const models::ViewLayer& layer : view.LayersAt(end)) {
      ASSERT_NE(layer.body.log_degrees, nullptr);
      double tokens = layer.slots - 64 * layer.body.pages;
      for (int32_t p = 0; p < layer.body.pages; ++p)
        for (int32_t s = 0; s < 64; ++s) tokens += std::exp(layer.body.log_degrees[(p * heads + heads - 1) * 64 + s]);
      EXPECT_NEAR(tokens, end, 1e-3);
      EXPECT_LT(layer.slots, end);
    }
  }
}

TEST(QueryLog, ShowsTheLatestQueriesHeadByHead) {
  engine::QueryLog log({.shape = {.heads = 2, .kv_heads = 1, .head_dim = 2, .scale = 0.5F},
                        .page_offsets_bytes = {0},
                        .inverse_frequencies = {}});
  log.Restart(10);
  std::vector<float> rows = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};  // [3][2 heads][2]
  log.Queries(0, {.data = rows.data(), .dtype = kernels::DType::kF32, .rows = 3, .cols = 4, .stride = 4});
  const engine::Shown shown = log.Show({.observation_window = 8}, 0, 12);
  EXPECT_EQ(shown.queries, (std::vector<float>{0, 1, 10, 11, 2, 3, 12, 13})) << "of tokens 10 and 11 alone";
  EXPECT_EQ(shown.observation.window, 2);
  EXPECT_EQ(shown.observation.query_heads, 2);
  EXPECT_EQ(shown.observation.scale, 0.5F);
  std::vector<uint16_t> half = {0x3F80, 0x4000, 0xBF80, 0};  // bf16: 1, 2, -1, 0
  log.Queries(0, {.data = half.data(), .dtype = kernels::DType::kBf16, .rows = 1, .cols = 4, .stride = 4});
  EXPECT_EQ(log.Show({.observation_window = 1}, 0, 14).queries, (std::vector<float>{1, 2, -1, 0}));
  EXPECT_TRUE(log.Show({}, 0, 14).queries.empty()) << "nobody asked";
}

// However the rows came, those that are kept are those of the text's length; a log of all rows shows the same.
TEST(QueryLog, SpreadsSoManyQueriesOverAllTokens) {
  const models::AttentionLayers attention{.shape = {.heads = 2, .kv_heads = 1, .head_dim = 1, .scale = 1.0F},
                                          .page_offsets_bytes = {0},
                                          .inverse_frequencies = {}};
  engine::QueryLog all(attention);
  engine::QueryLog some(attention, 4);
  all.Restart(0);
  const cache::CompressorTraits traits{.spread_queries = 4};
  for (int64_t tokens = 1; tokens <= 40; ++tokens) {
    const auto token = static_cast<float>(tokens - 1);
    std::vector<float> row = {token, -token};
    for (engine::QueryLog* log : {&all, &some})
      log->Queries(0, {.data = row.data(), .dtype = kernels::DType::kF32, .rows = 1, .cols = 2, .stride = 2});
    const engine::Shown shown = some.Show(traits, 0, tokens);
    EXPECT_EQ(shown.queries, all.Show(traits, 0, tokens).queries) << tokens;
    EXPECT_EQ(shown.observation.spread_stride, cache::SpreadStride(tokens, 4)) << tokens;
  }
  EXPECT_EQ(some.Show(traits, 0, 40).queries, (std::vector<float>{0, 16, 32, 0, -16, -32}));
  some.Restart(0);
  std::vector<float> rows = {0, 0, 1, -1, 2, -2, 3, -3, 4, -4};
  some.Queries(0, {.data = rows.data(), .dtype = kernels::DType::kF32, .rows = 5, .cols = 2, .stride = 2});
  EXPECT_EQ(some.Show(traits, 0, 5).queries, (std::vector<float>{0, 2, 4, 0, -2, -4}));
}

// Queries that rope turned as their positions say are one query: all moments are those of it, turned on.
TEST(QueryLog, ShowsMomentsOfQueriesToCome) {
  engine::QueryLog log({.shape = {.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 1.0F},
                        .page_offsets_bytes = {0},
                        .inverse_frequencies = {0.001}});
  log.Restart(100);
  for (int64_t position = 100; position < 140; ++position) {
    const double angle = 0.001 * static_cast<double>(position);
    std::vector<float> row = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
    log.Queries(0, {.data = row.data(), .dtype = kernels::DType::kF32, .rows = 1, .cols = 2, .stride = 2});
  }
  const engine::Shown shown = log.Show({.query_moments = true}, 0, 140);
  ASSERT_EQ(shown.observation.query_mean.size(), 2U);
  ASSERT_EQ(shown.observation.query_covariance.size(), 4U);
  const double angle = std::atan2(shown.observation.query_mean[1], shown.observation.query_mean[0]);
  EXPECT_NEAR(angle, 0.001 * (140 + 255.5), 1e-5) << "the middle of 512 positions from 140 on";
  for (const float x : shown.observation.query_covariance) EXPECT_NEAR(x, 0.0F, 1e-5);
}

// Keys of a layer, [positions][kv_heads][dim].
std::vector<float> KeysOf(const Subject& subject, const size_t layer, const int64_t end) {
  const kernels::PageShape shape = subject.page_shape();
  const int64_t row = int64_t{shape.kv_heads} * shape.head_dim;
  std::vector<float> keys(end * row);
  std::vector<float> values(keys.size());
  const kernels::KvRows into = {keys.data(), values.data(), end, shape.head_dim, row};
  const engine::PageRows pages = subject.exact();
  for (int64_t place = 0; place < end; ++place) {
    kernels::ReadRows(shape,
                      pages.arena + pages.pages[place / 64].value() * subject.spec().page_bytes +
                          subject.spec().attention.page_offsets_bytes[layer],
                      static_cast<int32_t>(place % 64), into.Slots(place, 1));
  }
  return keys;
}

// The definition, in double, from queries that a log kept.
TEST(SecondPass, KeepsTheLargestAttentionThatTheRepetitionGives) {
  constexpr int64_t kTokens = 150;
  constexpr int64_t kPiece = 70;
  Rig rig(testing::AssetFolder("tiny-hybrid"), {"noop"}, {1.0}, {.tasks = 0, .draft_tokens = {1}, .path_tokens = 1});
  const std::span<const TokenId> tokens = std::span(rig.tokens).first(kTokens);
  Place end = rig.subject->Begin();
  rig.subject->Read(nullptr, end, tokens, kTokens, {});
  const models::AttentionLayers& attention = rig.tiny.model->spec().attention;
  const kernels::AttentionShape& shape = attention.shape;
  const size_t layers = attention.page_offsets_bytes.size();
  std::vector<std::vector<double>> want(layers, std::vector<double>(shape.kv_heads * kTokens, 0.0));
  for (int64_t begin = 0; begin < kTokens; begin += kPiece) {
    std::vector<TokenId> inputs =
        *rig.tokenizer->Encode(kRepeatRequest, models::ControlTokens::kStayText, /*add_special=*/false, {});
    const int64_t from = begin == 0 ? 0 : begin - kLeadTokens;
    inputs.insert(inputs.end(), tokens.begin() + from, tokens.begin() + std::min(kTokens, begin + kPiece));
    engine::QueryLog log(attention);
    log.Restart(kTokens);
    Place place = end;
    rig.subject->Read(nullptr, place, inputs, std::ssize(inputs), {}, &log);
    const int64_t count = std::ssize(inputs);
    for (size_t layer = 0; layer < layers; ++layer) {
      const std::vector<float> keys = KeysOf(*rig.subject, layer, kTokens + count);
      const engine::Shown shown =
          log.Show({.observation_window = static_cast<int32_t>(count)}, static_cast<int32_t>(layer), kTokens + count);
      for (int64_t q = 0; q < shape.heads * count; ++q) {
        const int64_t h = q / count / (shape.heads / shape.kv_heads);
        std::vector<double> weights;
        double total = 0.0;
        for (int64_t i = 0; i <= kTokens + q % count; ++i) {
          double logit = 0.0;
          for (int64_t d = 0; d < shape.head_dim; ++d)
            logit +=
                double{shown.queries[q * shape.head_dim + d]} * keys[(i * shape.kv_heads + h) * shape.head_dim + d];
          weights.push_back(std::exp(logit * shape.scale));
          total += weights.back();
        }
        for (int64_t i = 0; i < kTokens; ++i)
          want[layer][h * kTokens + i] = std::max(want[layer][h * kTokens + i], weights[i] / total);
      }
    }
  }
  const std::vector<std::vector<float>> got = SecondPass(*rig.subject, *rig.tokenizer, end, tokens, kPiece);
  ASSERT_EQ(got.size(), layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    ASSERT_EQ(got[layer].size(), want[layer].size());
    for (size_t i = 0; i < want[layer].size(); ++i)
      ASSERT_NEAR(got[layer][i], want[layer][i], 1e-4) << layer << ' ' << i;
  }
}

TEST(SecondPass, IsShownOfTheContextAndNothingLonger) {
  Rig rig(testing::AssetFolder("tiny-hybrid"), {"noop"}, {1.0}, {.tasks = 0, .draft_tokens = {1}, .path_tokens = 1});
  engine::QueryLog log(rig.tiny.model->spec().attention);
  log.Restart(0);
  log.TakeSecondPass(3, {{1.0F, 2.0F, 3.0F}});
  EXPECT_EQ(log.Show({.second_pass = true}, 0, 3).observation.second_pass.size(), 3U);
  EXPECT_TRUE(log.Show({.second_pass = true}, 0, 4).observation.second_pass.empty());
  EXPECT_TRUE(log.Show({}, 0, 3).observation.second_pass.empty()) << "nobody asked";
}

TEST(SpreadRatio, TellsHowFarSamplesLieApart) {
  SpreadRatio ratio;
  EXPECT_EQ(ratio.value(), 0.0);
  ratio.Add(1.0, 1.0);
  EXPECT_EQ(ratio.standard_error(), 0.0) << "one sample tells nothing";
  for (const double part : {2.0, 3.0}) ratio.Add(part, 1.0);
  ratio.Add(0.0, 0.0);
  EXPECT_EQ(ratio.samples(), 3);
  EXPECT_DOUBLE_EQ(ratio.value(), 2.0);
  EXPECT_DOUBLE_EQ(ratio.standard_error(), 1.0 / std::sqrt(3.0)) << "of equal samples: that of a mean";
  // Samples of unlike length and the same share lie on one line through the origin.
  SpreadRatio alike;
  alike.Add(1.0, 2.0);
  alike.Add(4.0, 8.0);
  EXPECT_DOUBLE_EQ(alike.value(), 0.5);
  EXPECT_NEAR(alike.standard_error(), 0.0, 1e-12);
}

TEST(Candidates, StandBetweenTheFullKvAndTheFloor) {
  const std::vector<std::string> names = {"random_drop", "int8", "streaming"};
  const std::vector<double> budgets = {0.5, 0.25};
  const StatusOr<Candidates> candidates = MakeCandidates(names, budgets);
  ASSERT_TRUE(candidates.ok());
  std::string order;
  for (const Candidate& row : candidates->rows)
    order += row.name + (row.has_budget() ? " " + std::to_string(row.budget).substr(0, 4) : "") + "; ";
  EXPECT_EQ(order, "full; int8; streaming 0.50; streaming 0.25; random_drop 0.50; random_drop 0.25; ");
}

TEST(Windows, LieSpreadOverEachFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/text.txt";
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a b c d e ";
  Check(std::ofstream(path).write(text.data(), std::ssize(text)).good(), "the text is written");
  const std::unique_ptr<models::Tokenizer> tokenizer = *models::LoadTokenizer(testing::AssetFolder("tiny-hybrid"));
  const std::vector<std::string> paths = {path};
  const std::vector<TokenId> all = *tokenizer->Encode(text, models::ControlTokens::kStayText, /*add_special=*/true, {});
  const auto windows = CutWindows(*tokenizer, paths, {.windows = 3, .prefix_tokens = 100, .suffix_tokens = 7});
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 3U);
  EXPECT_EQ((*windows)[0].prefix, std::vector(all.begin(), all.begin() + 100));
  EXPECT_EQ((*windows)[2].suffix, std::vector(all.end() - 7, all.end()));
}

}  // namespace
}  // namespace invar::eval
