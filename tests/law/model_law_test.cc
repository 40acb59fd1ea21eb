// The law at Model::Forward: the logits row and the recurrent state after token t are a pure function of tokens 0..t,
// bit for bit. Every prompt length x chunk size runs alone or among seven others that arrive later, in changing order,
// with one and two threads and every instruction set of this machine; raw bits are compared with a plain run: one
// sequence, one thread, one token at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using testing::LoadTinyModel;
using testing::SequenceArena;
using testing::TinyModel;

constexpr int32_t kWhole = 1 << 30;
constexpr int32_t kLongest = 1100;  // Past the first superblock boundary at 1024, and the page boundary at 1088.
constexpr int32_t kGroup = 8;
constexpr int32_t kPrompts = 3;

struct Subject {
  std::string name;
  std::string folder;
  kernels::DType activations;
  bool heavy = false;  // Few cases on the scalar instruction set, which takes some milliseconds a token here.
};

std::vector<Subject> Subjects() {
  return {{"tiny_hybrid", testing::AssetFolder("tiny-hybrid"), kernels::DType::kBf16, true},
          {"moe", testing::GoldenFolder("qwen3_5_moe"), kernels::DType::kBf16},
          {"head", testing::GoldenFolder("qwen3_5-vl"), kernels::DType::kBf16},
          {"dense", testing::GoldenFolder("qwen3"), kernels::DType::kBf16},
          {"dense_window", testing::GoldenFolder("mistral-swa"), kernels::DType::kF32},
          {"hybrid_f32_weights", testing::GoldenFolder("qwen3_5/f32"), kernels::DType::kBf16}};
}

// One way of running: what it takes to load, and the memory that belongs to it.
struct Runner {
  TinyModel tiny;
  std::unique_ptr<SequenceArena> arena;
};

StatusOr<Runner> MakeRunner(const Subject& subject, const std::string& isa, const int threads) {
  StatusOr<TinyModel> tiny = LoadTinyModel(subject.folder, {.backend = "cpu",
                                                            .isa = isa,
                                                            .activations = subject.activations,
                                                            .threads = threads,
                                                            .max_batch_tokens = 2048,
                                                            .max_logits_rows = 2048});
  if (!tiny.ok()) return tiny.status();
  Runner runner{.tiny = *std::move(tiny), .arena = nullptr};
  runner.arena = std::make_unique<SequenceArena>(runner.tiny.model->spec(), kGroup, kLongest);
  return runner;
}

// What a plain run of one prompt gives.
struct Plain {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;  // After each token.
  std::vector<std::vector<float>> states;  // After each token; empty for dense models.
};

std::vector<float> StateOf(Runner& runner, const int32_t sequence) {
  const int64_t count = runner.tiny.model->spec().state_bytes / 4;
  const std::span<const float> state = runner.arena->State(sequence, 0, count);
  return {state.begin(), state.end()};
}

Plain RunPlain(Runner& runner, std::vector<TokenId> tokens) {
  Plain plain{.tokens = std::move(tokens), .logits = {}, .states = {}};
  runner.arena->Reset(0);
  for (size_t t = 0; t < plain.tokens.size(); ++t) {
    const ForwardSpan span = runner.arena->Span(0, std::span(plain.tokens).subspan(t, 1), static_cast<int32_t>(t), 1);
    const kernels::ConstF32View logits = runner.tiny.model->Forward(runner.arena->memory(), {&span, 1});
    plain.logits.emplace_back(logits.row(0), logits.row(0) + logits.cols);
    plain.states.push_back(StateOf(runner, 0));
  }
  return plain;
}

struct Case {
  int32_t prompt = 0;
  int32_t length = 0;
  int32_t chunk = 0;
  int32_t arrival = 0;  // Step at which it joins the batch.
};

bool SameBits(const std::span<const float> a, const std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs the cases together, spans in an order that changes from step to step. Gives how many of them differ anywhere.
int32_t CountDiffering(Runner& runner, const std::vector<Plain>& plain, const std::vector<Case>& cases) {
  std::vector<int32_t> done(cases.size(), 0);
  std::vector<bool> same(cases.size(), true);
  for (size_t i = 0; i < cases.size(); ++i) runner.arena->Reset(static_cast<int32_t>(i));
  for (int32_t step = 0;; ++step) {
    std::vector<size_t> order;
    bool waiting = false;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (done[i] < cases[i].length) (cases[i].arrival <= step ? order.push_back(i) : void(waiting = true));
    }
    if (order.empty() && !waiting) break;
    if (order.empty()) continue;
    std::rotate(order.begin(), order.begin() + step % static_cast<int32_t>(order.size()), order.end());
    if (step % 2 == 1) std::reverse(order.begin(), order.end());
    std::vector<ForwardSpan> spans;
    for (const size_t i : order) {
      const int32_t rows = std::min(cases[i].chunk, cases[i].length - done[i]);
      const std::span<const TokenId> tokens = std::span(plain[static_cast<size_t>(cases[i].prompt)].tokens)
                                                  .subspan(static_cast<size_t>(done[i]), static_cast<size_t>(rows));
      spans.push_back(runner.arena->Span(static_cast<int32_t>(i), tokens, done[i], rows));
    }
    const kernels::ConstF32View logits = runner.tiny.model->Forward(runner.arena->memory(), spans);
    int64_t row = 0;
    for (const size_t i : order) {
      const Plain& wanted = plain[static_cast<size_t>(cases[i].prompt)];
      const int32_t rows = std::min(cases[i].chunk, cases[i].length - done[i]);
      for (int32_t r = 0; r < rows; ++r, ++row) {
        const std::vector<float>& want = wanted.logits[static_cast<size_t>(done[i] + r)];
        same[i] = same[i] && SameBits(want, {logits.row(row), want.size()});
      }
      done[i] += rows;
      const std::vector<float>& state = wanted.states[static_cast<size_t>(done[i]) - 1];
      same[i] = same[i] &&
                SameBits(state, runner.arena->State(static_cast<int32_t>(i), 0, static_cast<int64_t>(state.size())));
    }
  }
  int32_t differing = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (same[i]) continue;
    ++differing;
    ADD_FAILURE() << "prompt " << cases[i].prompt << " length " << cases[i].length << " chunk " << cases[i].chunk
                  << " arrival " << cases[i].arrival << " among " << cases.size();
  }
  return differing;
}

constexpr int32_t kChunks[] = {1, 3, 17, 64, kWhole};

// Every length 1..200 with every chunk size; then the boundaries of pages and superblocks with the larger chunks.
std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (int32_t length = 1; length <= 200; ++length) {
    for (const int32_t chunk : kChunks)
      cases.push_back({.prompt = length % kPrompts, .length = length, .chunk = chunk});
  }
  for (const int32_t length : {255, 256, 257, 1023, 1024, 1025, 1087, 1088, 1089}) {
    for (const int32_t chunk : {17, 64, kWhole}) cases.push_back({.prompt = 0, .length = length, .chunk = chunk});
  }
  return cases;
}

class ModelLaw : public ::testing::TestWithParam<Subject> {};

TEST_P(ModelLaw, BitsDependOnThePrefixAlone) {
  StatusOr<Runner> plain_runner = MakeRunner(GetParam(), "", 1);
  ASSERT_TRUE(plain_runner.ok()) << plain_runner.status().message();
  const int32_t vocabulary = plain_runner->tiny.model->spec().vocabulary_size;
  std::vector<Plain> plain;
  for (int32_t p = 0; p < kPrompts; ++p) {
    const int32_t length = p == 0 ? kLongest : 200;
    plain.push_back(RunPlain(*plain_runner, testing::RandomTokens(length, vocabulary, 11 + static_cast<uint64_t>(p))));
  }
  std::vector<Runner> runners;
  std::vector<std::string> names;
  for (const std::string& isa : kernels::SupportedIsas()) {
    for (const int threads : {1, 2}) {
      StatusOr<Runner> runner = MakeRunner(GetParam(), isa, threads);
      ASSERT_TRUE(runner.ok()) << runner.status().message();
      runners.push_back(*std::move(runner));
      names.push_back(isa + " x " + std::to_string(threads));
    }
  }
  // Cases are dealt to the runners in turn; each runner takes one alone, then eight together, and so on. Seven is prime
  // to the five chunk sizes, so that every runner meets every chunk at many lengths, alone and in company.
  const std::vector<Case> cases = AllCases();
  std::vector<std::vector<Case>> dealt(runners.size());
  const size_t vector_runners = runners.size() - 2;  // Scalar comes last, with one and two threads.
  for (size_t i = 0; i < cases.size(); ++i) {
    size_t r = (i * 7 + i / 5) % runners.size();
    const bool cheap = cases[i].length <= 24 || cases[i].length == 65;
    if (GetParam().heavy && !cheap && vector_runners > 0) r %= vector_runners;
    dealt[r].push_back(cases[i]);
  }
  int32_t compared = 0;
  int32_t differing = 0;
  for (size_t r = 0; r < runners.size(); ++r) {
    SCOPED_TRACE(names[r]);
    for (size_t begin = 0, turn = 0; begin < dealt[r].size(); ++turn) {
      const size_t count = turn % 2 == 0 ? 1 : kGroup;
      std::vector<Case> group(dealt[r].begin() + static_cast<ptrdiff_t>(begin),
                              dealt[r].begin() + static_cast<ptrdiff_t>(std::min(begin + count, dealt[r].size())));
      int32_t rows = 0;
      for (size_t i = 0; i < group.size(); ++i) {
        group[i].arrival = static_cast<int32_t>(i * turn % 5);
        rows += std::min(group[i].length, group[i].chunk);
      }
      if (rows > 2048) group.resize(1);  // Long whole prompts run alone: the batch has a limit.
      differing += CountDiffering(runners[r], plain, group);
      compared += static_cast<int32_t>(group.size());
      begin += group.size();
    }
  }
  std::printf("%s: %d combinations compared, %d differ\n", GetParam().name.c_str(), compared, differing);
  EXPECT_EQ(compared, static_cast<int32_t>(cases.size()));
  EXPECT_EQ(differing, 0);
}

// The comparison itself must be able to fail: a changed early token changes the last row's bits.
TEST(ModelLawItself, SeesAChangedPrefix) {
  StatusOr<Runner> runner = MakeRunner(Subjects()[1], "", 1);
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  std::vector<TokenId> tokens = testing::RandomTokens(100, runner->tiny.model->spec().vocabulary_size, 5);
  const Plain plain = RunPlain(*runner, tokens);
  tokens[0] = TokenId((tokens[0].value() + 1) % runner->tiny.model->spec().vocabulary_size);
  const Plain other = RunPlain(*runner, tokens);
  EXPECT_FALSE(SameBits(plain.logits.back(), other.logits.back()));
  EXPECT_FALSE(SameBits(plain.states.back(), other.states.back()));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelLaw, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace invar::models
