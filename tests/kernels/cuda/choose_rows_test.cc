// Tokens chosen by the kernels of choose_rows.cu against the host's way: the same token and the same bits of its
// scores, whatever is asked for, over vocabularies around the sizes that its loops turn at.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/row_chooser.h"
#include "tests/kernels/bits.h"
#include "tests/kernels/cuda/orders.h"

namespace invar::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowSampler Host() { return RowSampler::Create({}).value(); }

// Rows and what is asked of them.
struct Case {
  int64_t cols = 0;
  int32_t usable_ids = 0;
  std::vector<std::vector<float>> rows = {};
  std::vector<RowChoice> choices = {};

  void Add(std::vector<float> row, RowChoice choice) {
    Check(std::ssize(row) == cols, "a whole row");
    rows.push_back(std::move(row));
    choices.push_back(std::move(choice));
  }
  std::vector<ChosenRow> OnTheDevice() {
    for (size_t i = 0; i < rows.size(); ++i) choices[i].logits = rows[i].data();
    std::vector<ChosenRow> chosen(rows.size());
    const auto device = cuda::MakeEmulatedDevice();
    cuda::StagingRing arguments(*device);
    cuda::DeviceRowChooser(*device, arguments).Choose(cols, usable_ids, choices, chosen);
    return chosen;
  }
};

// The definition (row_chooser.h), one thing after another.
ChosenRow OnTheHost(const std::vector<float>& logits, const int32_t usable_ids, const RowChoice& choice) {
  std::vector<float> row(logits.begin(), logits.begin() + usable_ids);
  for (const float logit : row) {
    if (!std::isfinite(logit)) return {.finite = false};
  }
  for (const PenalisedToken& of : choice.penalised) {
    float& logit = row[of.token];
    logit = logit > 0.0F ? logit / choice.repetition : logit * choice.repetition;
    if (of.in_output == 0) continue;
    logit -= choice.frequency * static_cast<float>(of.in_output);
    logit -= choice.presence;
  }
  for (const BiasedToken& of : choice.biased) row[of.token] += of.bias;
  if (!choice.allowed.empty()) {
    const std::vector<float> all = row;
    std::fill(row.begin(), row.end(), -kInfinity);
    for (const int32_t id : choice.allowed) row[id] = all[id];
  }
  for (const int32_t id : choice.masked) row[id] = -kInfinity;
  ChosenRow chosen{.token = Host().Sample(row, choice.settings, choice.key)};
  if (!choice.scores || chosen.token < 0) return chosen;
  chosen.logit = logits[chosen.token];
  chosen.log_sum = Host().LogSumExp(logits);
  std::vector<int32_t> ids;
  Host().Top(std::span(logits).first(static_cast<size_t>(usable_ids)), choice.alternatives, &ids);
  for (const int32_t id : ids) chosen.top.push_back({id, logits[id]});
  return chosen;
}

std::vector<uint32_t> BitsOf(const ChosenRow& row) {
  std::vector<uint32_t> bits{static_cast<uint32_t>(row.finite), static_cast<uint32_t>(row.token),
                             std::bit_cast<uint32_t>(row.logit), std::bit_cast<uint32_t>(row.log_sum)};
  for (const ScoredToken& of : row.top) {
    bits.push_back(static_cast<uint32_t>(of.token));
    bits.push_back(std::bit_cast<uint32_t>(of.logit));
  }
  return bits;
}

void ExpectTheHostsBits(Case& of) {
  const std::vector<ChosenRow> got = of.OnTheDevice();
  for (size_t i = 0; i < got.size(); ++i) {
    const SampleSettings& s = of.choices[i].settings;
    EXPECT_EQ(BitsOf(got[i]), BitsOf(OnTheHost(of.rows[i], of.usable_ids, of.choices[i])))
        << "row " << i << " of " << of.usable_ids << ": " << s.temperature << " " << s.top_k << " " << s.top_p << " "
        << s.min_p;
  }
}

std::vector<float> Ties(std::vector<float> row) {
  for (float& logit : row) logit = std::round(logit * 4.0F) / 4.0F;
  return row;
}

std::vector<SampleSettings> AllSettings() {
  return {{0.0F, 0, 1.0F, 0.0F},   {kGreedyBelow, 0, 1.0F, 0.0F}, {1.0F, 0, 1.0F, 0.0F},   {0.7F, 20, 1.0F, 0.0F},
          {1.3F, 0, 0.9F, 0.0F},   {1.0F, 0, 1.0F, 0.1F},         {0.8F, 5, 0.6F, 0.3F},   {2.0F, 9, 0.0F, 0.0F},
          {1.0F, 300, 0.8F, 0.0F}, {1.0F, 1, 1.0F, 0.0F},         {0.5F, 0, 0.999F, 1.0F}, {3e38F, 0, 0.5F, 0.0F}};
}

TEST(ChooseRows, HasTheHostsBitsOfEverySettingAndSize) {
  uint32_t seed = 0;
  for (const int32_t usable : {1, 2, 31, 256, 1023, 1024, 1025, 2049}) {
    Case of{.cols = usable + usable % 3, .usable_ids = usable};
    for (const float scale : {0.01F, 1.0F, 12.0F}) {
      for (const SampleSettings& settings : AllSettings()) {
        std::vector<float> row = RandomFloats(static_cast<size_t>(of.cols), ++seed, scale);
        if (seed % 2 == 0) row = Ties(std::move(row));
        of.Add(std::move(row), {.settings = settings,
                                .key = {.seed = uint64_t{seed} << 31, .output_index = seed % 3, .position = seed},
                                .scores = seed % 2 == 0,
                                .alternatives = static_cast<int32_t>(seed % 7)});
      }
    }
    ExpectTheHostsBits(of);
  }
}

TEST(ChooseRows, AppliesPenaltiesBiasesAndMasksInTheirOrder) {
  constexpr int32_t kIds = 40;
  Case of{.cols = 43, .usable_ids = kIds};
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    RowChoice choice{.repetition = 1.3F, .frequency = 0.4F, .presence = -0.7F, .settings = {.temperature = 0.8F}};
    choice.settings.temperature = seed % 2 == 0 ? 0.0F : 0.8F;
    choice.key.position = seed;
    choice.scores = true;
    for (int32_t id = 0; id < kIds; ++id) {
      if (id % 2 == 0) choice.penalised.push_back({id, id % 3});
      if (id % 5 != 0) choice.biased.push_back({kIds - 1 - id, static_cast<float>(id % 4) - 1.5F});
      if (seed % 3 != 0 && id % 4 != 1) choice.allowed.push_back(id);
      if (id % 7 == 2 && seed % 4 < 2) choice.masked.push_back(id);
    }
    of.Add(RandomFloats(43, seed, 3.0F), choice);
  }
  ExpectTheHostsBits(of);
}

TEST(ChooseRows, SaysWhichRowsAreNotFinite) {
  Case of{.cols = 1030, .usable_ids = 1029};
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    for (const size_t place : {0, 1028, 1029}) {  // The last is a padding row of the embedding: it is only scored.
      std::vector<float> row = RandomFloats(1030, 7);
      row[place] = bad;
      of.Add(std::move(row), {.scores = true, .alternatives = 3});
    }
  }
  ExpectTheHostsBits(of);
  EXPECT_FALSE(of.OnTheDevice()[0].finite);
  EXPECT_TRUE(of.OnTheDevice()[2].finite);
}

TEST(ChooseRows, TakesDenormalsAndEndsOfFloatsAsTheHostDoes) {
  Case of{.cols = 300, .usable_ids = 300};
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    for (const SampleSettings& settings : AllSettings()) {
      std::vector<float> row = RandomFloats(300, seed, seed % 2 == 0 ? 1e-38F : 3e38F);
      row[seed] = -0.0F;
      row[seed + 1] = 0.0F;
      of.Add(std::move(row), {.settings = settings, .key = {.position = seed}, .scores = true, .alternatives = 4});
    }
  }
  ExpectTheHostsBits(of);
  Case masked{.cols = 3, .usable_ids = 3};
  masked.Add({1.0F, 2.0F, 3.0F}, {.masked = {0, 1, 2}, .scores = true});
  masked.Add({1.0F, 2.0F, 3.0F}, {.penalised = {{0, 0}, {1, 0}}, .repetition = 1e-38F, .scores = true});
  ExpectTheHostsBits(masked);
  EXPECT_EQ(masked.OnTheDevice()[0].token, -1);
}

// A list longer than what is walked at a time.
TEST(ChooseRows, WalksFarAlongEqualLogits) {
  Case of{.cols = 5000, .usable_ids = 5000};
  for (const float top_p : {0.01F, 0.205F, 0.5F, 0.99F}) {
    of.Add(std::vector<float>(5000, 2.0F), {.settings = {.top_p = top_p}, .key = {.seed = 3}});
    of.Add(std::vector<float>(5000, 2.0F), {.settings = {.top_k = 3000, .top_p = top_p}, .key = {.seed = 3}});
  }
  std::vector<float> deep(5000, -40.0F);  // Below the last bucket that is summed.
  deep[77] = 0.0F;
  of.Add(std::move(deep), {.settings = {.temperature = 1.0F, .top_p = 0.9999999F}, .key = {.seed = 3}});
  ExpectTheHostsBits(of);
}

TEST(ChooseRows, GoesInGroupsWhereManyLargeRowsComeTogether) {
  constexpr int64_t kIds = (1 << 18) + 1;  // Five megabytes a row.
  Case of{.cols = kIds, .usable_ids = kIds};
  const std::vector<float> row = RandomFloats(kIds, 5, 9.0F);
  for (uint32_t i = 0; i < 30; ++i) {
    of.Add(row, {.masked = {static_cast<int32_t>(i)}, .settings = {.temperature = 0.0F, .top_k = 5}});
    of.rows[i][100 + i] = 10.0F;
  }
  const std::vector<ChosenRow> chosen = of.OnTheDevice();
  for (int32_t i = 0; i < 30; ++i) EXPECT_EQ(chosen[i].token, 100 + i);
}

// A few rows that between them wait at every wait.
std::vector<std::vector<uint32_t>> RunSome() {
  Case of{.cols = 1500, .usable_ids = 1400};
  RowChoice all{.repetition = 2.0F, .frequency = 0.5F, .presence = 0.1F};
  for (int32_t i = 0; i < 300; ++i) {
    all.penalised.push_back({i, 1});
    all.biased.push_back({(i * 7 + 150) % 300, static_cast<float>(i % 5)});
    all.allowed.push_back((i * 11 + 40) % 300);
    if (i % 2 == 0) all.masked.push_back((i * 13 + 90) % 300);
  }
  all.scores = true;
  all.alternatives = 40;
  all.settings.temperature = 0.0F;
  of.Add(RandomFloats(1500, 1, 4.0F), all);
  all.settings = {.temperature = 1.5F, .top_k = 60, .top_p = 0.7F};
  of.Add(Ties(RandomFloats(1500, 2, 4.0F)), all);
  of.Add(std::vector<float>(1500, 1.0F), {.settings = {.top_p = 0.95F}, .key = {.seed = 9}});
  for (uint32_t seed = 3; seed < 9; ++seed) {
    of.Add(RandomFloats(1500, seed, 4.0F), {.settings = {.temperature = 1.0F, .top_p = 0.6F}, .key = {.seed = seed}});
    of.Add(RandomFloats(1500, seed, 4.0F), {.settings = {.top_k = 30}, .key = {.seed = seed}, .scores = true});
  }
  std::vector<std::vector<uint32_t>> bits;
  for (const ChosenRow& row : of.OnTheDevice()) bits.push_back(BitsOf(row));
  return bits;
}

TEST(ChooseRows, GivesTheSameBitsInEveryOrderOfThreads) {
  using cuda::emulation::control;
  const auto want = RunSome();
  for (const cuda::emulation::Order order : cuda::emulation::kOrders) {
    control().order = order;
    EXPECT_EQ(RunSome(), want);
  }
  control() = {};
}

TEST(ChooseRows, MissesEveryWaitThatIsTakenOut) { cuda::emulation::ExpectEveryWaitIsMissed({RunSome}, 12); }

}  // namespace
}  // namespace invar::kernels
