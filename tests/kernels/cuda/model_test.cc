// Whole tiny models on the emulated kernels, through the layer stack: as close to the reference as their arithmetic is,
// and the law in raw bits, over chunks, batch, and the state that is resumed from.
#include "models/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/support/tiny_model.h"

namespace invar::models {
namespace {

using testing::SequenceArena;
using testing::TinyModel;

constexpr int32_t kTokens = 70;  // Past the first page.

struct Subject {
  std::string folder;
  kernels::DType activations = kernels::DType::kBf16;
};

// Attention and Gated DeltaNet, experts, a dense model, and one whose attention has a window.
std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const std::string folder : {"qwen3_5", "qwen3_5_moe", "qwen3", "mistral-swa"}) {
    for (const kernels::DType activations : {kernels::DType::kBf16, kernels::DType::kF32}) {
      subjects.push_back({folder, activations});
    }
  }
  return subjects;
}

TinyModel Load(const std::string& folder, StatusOr<std::unique_ptr<kernels::Backend>> backend,
               std::unique_ptr<WorkerPool> pool) {
  Check(backend.ok(), "a backend for the tiny model");
  TinyModel tiny{.pool = std::move(pool), .backend = *std::move(backend), .model = nullptr};
  ModelOptions options;
  options.folder = testing::GoldenFolder(folder);
  options.max_batch_tokens = 256;
  options.max_logits_rows = 256;
  options.pack_to_file = false;
  auto model = MakeModel(options, *tiny.backend);
  Check(model.ok(), "the tiny model loads", model.ok() ? "" : model.status().message());
  tiny.model = *std::move(model);
  return tiny;
}

TinyModel LoadEmulated(const Subject& subject) {
  auto pool = std::make_unique<WorkerPool>(1);
  auto backend =
      kernels::cuda::MakeCudaBackend(kernels::cuda::MakeEmulatedDevice(), nullptr, subject.activations, *pool);
  return Load(subject.folder, std::move(backend), std::move(pool));
}

TinyModel LoadReference(const Subject& subject) {
  auto pool = std::make_unique<WorkerPool>(1);
  auto backend = kernels::MakeBackend({.name = "reference", .isa = "", .activations = kernels::DType::kF32}, *pool);
  return Load(subject.folder, std::move(backend), std::move(pool));
}

using Rows = std::vector<std::vector<float>>;

// Tokens [done, done + chunk) of each sequence in one forward, until all have run: the logits rows of each sequence.
std::vector<Rows> RunAll(TinyModel& tiny, SequenceArena& arena, const std::vector<std::vector<TokenId>>& prompts,
                         const std::vector<int32_t>& chunks) {
  std::vector<Rows> rows(prompts.size());
  for (size_t s = 0; s < prompts.size(); ++s) arena.Reset(static_cast<int32_t>(s));
  while (true) {
    std::vector<ForwardSpan> spans;
    std::vector<size_t> of;
    for (size_t s = 0; s < prompts.size(); ++s) {
      const size_t done = rows[s].size();
      const size_t count = std::min<size_t>(static_cast<size_t>(chunks[s]), prompts[s].size() - done);
      if (count == 0) continue;
      spans.push_back(arena.Span(static_cast<int32_t>(s), std::span(prompts[s]).subspan(done, count),
                                 static_cast<int32_t>(done), static_cast<int32_t>(count)));
      of.insert(of.end(), count, s);
    }
    if (spans.empty()) return rows;
    const kernels::ConstF32View logits = tiny.model->Forward(arena.memory(), spans);
    for (size_t r = 0; r < of.size(); ++r) {
      const float* row = logits.row(static_cast<int64_t>(r));
      rows[of[r]].emplace_back(row, row + logits.cols);
    }
  }
}

bool SameBits(const Rows& a, const Rows& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
         });
}

class EmulatedModel : public ::testing::TestWithParam<Subject> {};
class EmulatedLaw : public ::testing::TestWithParam<Subject> {};

TEST_P(EmulatedModel, IsCloseToTheReference) {
  TinyModel tiny = LoadEmulated(GetParam());
  TinyModel reference = LoadReference(GetParam());
  EXPECT_EQ(tiny.model->spec().numerics_id.rfind("cuda_emulated-", 0), 0U);
  SequenceArena arena(tiny.model->spec(), 1, kTokens);
  SequenceArena reference_arena(reference.model->spec(), 1, kTokens);
  const std::vector<TokenId> tokens = testing::RandomTokens(kTokens, tiny.model->spec().vocabulary_size, 1);
  const Rows got = RunAll(tiny, arena, {tokens}, {kTokens})[0];
  const Rows want = RunAll(reference, reference_arena, {tokens}, {kTokens})[0];
  for (size_t t = 0; t < want.size(); ++t) {
    double largest = 0.0;
    double worst = 0.0;
    for (size_t i = 0; i < want[t].size(); ++i) {
      largest = std::max<double>(largest, std::abs(want[t][i]));
      worst = std::max<double>(worst, std::abs(want[t][i] - got[t][i]));
    }
    // f32: some hundred roundings of 2^-24 of the largest; bf16: of 2^-9.
    ASSERT_LE(worst, largest * (GetParam().activations == kernels::DType::kF32 ? 1e-4 : 0.1)) << "token " << t;
  }
}

TEST_P(EmulatedLaw, HoldsOverChunksAndBatch) {
  TinyModel tiny = LoadEmulated(GetParam());
  const ModelSpec& spec = tiny.model->spec();
  SequenceArena arena(spec, 3, kTokens);
  std::vector<std::vector<TokenId>> prompts;
  for (uint64_t seed = 1; seed <= 3; ++seed)
    prompts.push_back(testing::RandomTokens(kTokens, spec.vocabulary_size, seed));
  const Rows alone = RunAll(tiny, arena, {prompts[0]}, {kTokens})[0];
  const std::vector<std::byte> state(arena.Slot(0).begin(), arena.Slot(0).end());
  EXPECT_TRUE(SameBits(RunAll(tiny, arena, {prompts[0]}, {1})[0], alone)) << "token by token";
  EXPECT_TRUE(std::equal(state.begin(), state.end(), arena.Slot(0).begin())) << "and the state behind it";
  for (const std::vector<int32_t>& chunks : {std::vector<int32_t>{7, 64, 1}, {33, 2, 20}}) {
    EXPECT_TRUE(SameBits(RunAll(tiny, arena, prompts, chunks)[0], alone))
        << "in a batch, " << chunks[0] << " at a time";
    EXPECT_TRUE(std::equal(state.begin(), state.end(), arena.Slot(0).begin()));
  }
}

std::string NameOf(const ::testing::TestParamInfo<Subject>& info) {
  return testing::TestNameOf(info.param.folder) + "_" + std::string(kernels::DTypeName(info.param.activations));
}
INSTANTIATE_TEST_SUITE_P(Subjects, EmulatedModel, ::testing::ValuesIn(Subjects()), NameOf);
// What floats show in kernels, whole models show in bf16; the hybrid in both.
INSTANTIATE_TEST_SUITE_P(Subjects, EmulatedLaw, ::testing::ValuesIn([] {
                           std::vector<Subject> some = Subjects();
                           std::erase_if(some, [](const Subject& subject) {
                             return subject.activations == kernels::DType::kF32 && subject.folder != "qwen3_5";
                           });
                           return some;
                         }()),
                         NameOf);

}  // namespace
}  // namespace invar::models
