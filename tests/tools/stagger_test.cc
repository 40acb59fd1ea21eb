// The staggering scheduler on the simulated device: against the closed forms, against rows worked out beforehand, and
// in the corners: nothing accepted, everything accepted, cancelled in any phase, requests of very different sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tools/stagger/adaptive.h"
#include "tools/stagger/profile.h"
#include "tools/stagger/simulated_device.h"

namespace invar::tools {
namespace {

using engine::DecodeMode;
using engine::ModeChoice;

struct Hardware {
  const char* name;
  double hbm_gb;
  double hbm_tbps;
  double link_gbps;
  double tflops;
};
constexpr Hardware kH200{"H200", 141, 4.8, 55, 990};
constexpr Hardware kH100{"H100-80", 80, 3.35, 55, 990};
constexpr Hardware kGh200{"GH200-96", 96, 4.0, 400, 990};

struct Shape {
  const char* name;
  double weights_gb;
  double kv_bytes_per_token;
  double state_bytes;
};
constexpr Shape k32b{"32B", 65.5, 262'144, 0};
constexpr Shape k24b{"24B", 47.2, 163'840, 0};
constexpr Shape kHybrid{"hybrid-27B", 54.0, 65'536, 151e6};

StaggerProfile ProfileOf(const Hardware& hardware, const Shape& shape, const double context, const double compression,
                         const double acceptance) {
  return {.hbm_gb = hardware.hbm_gb,
          .hbm_tbps = hardware.hbm_tbps,
          .link_gbps = hardware.link_gbps,
          .tflops = hardware.tflops,
          .weights_gb = shape.weights_gb,
          .kv_bytes_per_token = shape.kv_bytes_per_token,
          .state_bytes = shape.state_bytes,
          .context_tokens = context,
          .compression = compression,
          .acceptance = acceptance};
}

StaggerOutcome Simulate(const StaggerProfile& profile, const int32_t draft_min, const int32_t draft_max,
                        const bool synchronous = false, const int32_t residents = 0) {
  const engine::SpeculationLoad load = profile.load();
  const int32_t n = residents > 0 ? residents : DraftResidents(profile.device(), load);
  return SimulateStagger(profile.device(), load, EqualRequests(load, n),
                         {.limits = {.synchronous = synchronous}, .draft_min = draft_min, .draft_max = draft_max});
}

double ClosedForm(const StaggerProfile& profile, const int32_t draft) {
  return StaggeredTokensPerSecond(profile.device(), profile.load(), draft,
                                  DraftResidents(profile.device(), profile.load()));
}

// Five pairs of device and model, two compressions, three acceptances, four draft lengths.
struct GridPoint {
  std::string name;
  StaggerProfile profile;
  int32_t draft;
};
std::vector<GridPoint> Grid() {
  const std::vector<std::tuple<Hardware, Shape, double>> pairs = {{kH200, k32b, 32'768},
                                                                  {kH200, k24b, 32'768},
                                                                  {kH200, kHybrid, 65'536},
                                                                  {kH100, k24b, 32'768},
                                                                  {kGh200, k24b, 32'768}};
  std::vector<GridPoint> grid;
  for (const auto& [hardware, shape, context] : pairs) {
    for (const double compression : {4.0, 8.0}) {
      for (const double acceptance : {0.95, 0.98, 0.99}) {
        for (const int32_t draft : {16, 32, 64, 128}) {
          grid.push_back({std::string(hardware.name) + " " + shape.name + " c" + std::to_string(compression) + " a" +
                              std::to_string(acceptance) + " K" + std::to_string(draft),
                          ProfileOf(hardware, shape, context, compression, acceptance), draft});
        }
      }
    }
  }
  return grid;
}

TEST(Stagger, AgreesWithTheClosedFormOnTheGrid) {
  const std::vector<GridPoint> grid = Grid();
  ASSERT_EQ(grid.size(), 120u);
  for (const GridPoint& point : grid) {
    const double simulated = Simulate(point.profile, point.draft, point.draft).tokens_per_s;
    EXPECT_NEAR(simulated / ClosedForm(point.profile, point.draft), 1.0, 0.10) << point.name;
  }
}

TEST(Stagger, KeepsTheLinkBusyWhereItBinds) {
  int32_t seen = 0;
  for (const GridPoint& point : Grid()) {
    const engine::SpeculationLoad load = point.profile.load();
    const engine::TwoTierDevice device = point.profile.device();
    const int32_t residents = DraftResidents(device, load);
    // Where both are nearly equal neither is kept busy by the other.
    if (LinkRounds(device, load) > 0.8 * ComputeRounds(device, load, point.draft, residents)) continue;
    EXPECT_GE(Simulate(point.profile, point.draft, point.draft).link_share, 0.95) << point.name;
    ++seen;
  }
  EXPECT_GE(seen, 30);
}

TEST(Stagger, CommitsAllOfTheDraftWhereAllIsAccepted) {
  const StaggerProfile profile = ProfileOf(kH200, k32b, 32'768, 4, 1.0);
  for (const int32_t draft : {1, 16, 64}) {
    const StaggerOutcome outcome = Simulate(profile, draft, draft);
    EXPECT_EQ(outcome.accepted_run, draft + 1);
    EXPECT_NEAR(outcome.tokens_per_s / ClosedForm(profile, draft), 1.0, 0.10) << draft;
  }
}

TEST(Stagger, CommitsOneTokenARoundWhereNothingIsAccepted) {
  const StaggerProfile profile = ProfileOf(kH200, k32b, 32'768, 4, 0.0);
  EXPECT_EQ(Simulate(profile, 16, 16).accepted_run, 1.0);
  const AdaptiveOutcome adaptive = SimulateAdaptive(profile.device(), profile.load(), {}, 1);
  EXPECT_EQ(adaptive.chosen.mode, DecodeMode::kPlain);
  EXPECT_GE(adaptive.tokens_per_s, 0.98 * FullTokensPerSecond(profile.device(), profile.load()));
}

TEST(Stagger, NeverChoosesToBeSlowerThanPlain) {
  const std::vector<GridPoint> grid = Grid();
  for (size_t i = 0; i < grid.size(); i += 4) {  // The draft length is the chooser's.
    const GridPoint& point = grid[i];
    const AdaptiveOutcome adaptive = SimulateAdaptive(point.profile.device(), point.profile.load(), {}, 7);
    const double full = FullTokensPerSecond(point.profile.device(), point.profile.load());
    EXPECT_GE(adaptive.tokens_per_s, 0.98 * full) << point.name;
  }
}

// At the best length of each.
double BestOf(const StaggerProfile& profile, const bool synchronous) {
  double best = 0;
  for (const int32_t draft : {16, 32, 48, 64, 96, 128}) {
    best = std::max(best, Simulate(profile, draft, draft, synchronous).tokens_per_s);
  }
  return best;
}

TEST(Stagger, BeatsSynchronousRoundsWhereTheLinkBinds) {
  const std::vector<std::tuple<Shape, double, double, double>> rows = {
      {k32b, 32'768, 4, 0.95}, {k32b, 32'768, 4, 0.98},  {k32b, 32'768, 4, 0.99}, {k32b, 32'768, 8, 0.97},
      {k32b, 65'536, 8, 0.98}, {k32b, 131'072, 4, 0.98}, {k24b, 32'768, 4, 0.98}, {kHybrid, 65'536, 4, 0.98}};
  for (const auto& [shape, context, compression, acceptance] : rows) {
    const StaggerProfile profile = ProfileOf(kH200, shape, context, compression, acceptance);
    EXPECT_GE(BestOf(profile, false), 1.3 * BestOf(profile, true))
        << shape.name << " " << context << " c" << compression << " a" << acceptance;
  }
}

// Rows of the published and of the worked-out tables: tokens/s of plain decoding and of the best choice.
TEST(Stagger, ReproducesRowsWorkedOutBeforehand) {
  struct Known {
    Hardware hardware;
    Shape shape;
    double context;
    double compression;
    double acceptance;
    int32_t full_residents;
    double full;
    double best;
  };
  const Known rows[] = {{kH200, k32b, 32'768, 4, 0.95, 7, 211, 125},     {kH200, k32b, 32'768, 4, 0.98, 7, 211, 272},
                        {kH200, k32b, 65'536, 8, 0.98, 3, 97, 162},      {kH200, k24b, 32'768, 4, 0.98, 14, 433, 453},
                        {kH200, kHybrid, 65'536, 4, 0.98, 16, 484, 540}, {kH100, k24b, 32'768, 8, 0.98, 4, 153, 427}};
  for (const Known& row : rows) {
    const StaggerProfile profile = ProfileOf(row.hardware, row.shape, row.context, row.compression, row.acceptance);
    EXPECT_EQ(FullResidents(profile.device(), profile.load()), row.full_residents);
    EXPECT_NEAR(FullTokensPerSecond(profile.device(), profile.load()) / row.full, 1.0, 0.03);
    const ModeChoice choice = ChooseMode(profile.device(), profile.load(), {.draft_max = 128, .gain_min = 0});
    const double best = Simulate(profile, choice.draft_min, choice.draft_max).tokens_per_s;
    EXPECT_NEAR(best / row.best, 1.0, 0.12) << row.shape.name << " a" << row.acceptance;
  }
}

TEST(Stagger, ShowsThePublishedGainWhereTheFastTierIsTight) {
  const StaggerProfile profile = ProfileOf(kH100, k24b, 32'768, 8, 0.99);
  const AdaptiveOutcome adaptive = SimulateAdaptive(profile.device(), profile.load(), {}, 1);
  EXPECT_EQ(adaptive.chosen.mode, DecodeMode::kStaggered);
  EXPECT_GE(adaptive.tokens_per_s, 3.8 * FullTokensPerSecond(profile.device(), profile.load()));
}

TEST(Stagger, VerifiesAGroupWithOneStream) {
  struct Known {
    double compression;
    double acceptance;
    double gain;
  };
  for (const Known& row : {Known{4, 0.98, 2.61}, Known{8, 0.98, 3.99}, Known{4, 0.95, 1.75}}) {
    StaggerProfile profile = ProfileOf(kH200, k32b, 32'768, row.compression, row.acceptance);
    profile.prefix_group = 4;
    const double full = FullTokensPerSecond(profile.device(), profile.load());
    double best = 0;
    for (int32_t draft = 16; draft <= 128; draft += 8) {
      const double rate = Simulate(profile, draft, draft).tokens_per_s;
      EXPECT_NEAR(rate / ClosedForm(profile, draft), 1.0, 0.10) << draft;
      best = std::max(best, rate);
    }
    EXPECT_NEAR(best / full / row.gain, 1.0, 0.10) << "c" << row.compression << " a" << row.acceptance;
  }
}

TEST(Stagger, KeepsTheGapBetweenCommits) {
  for (const double compression : {4.0, 8.0}) {
    const StaggerProfile profile = ProfileOf(kH200, k32b, 32'768, compression, 0.98);
    const ModeChoice free = ChooseMode(profile.device(), profile.load(), {.draft_max = 128, .gain_min = 0});
    EXPECT_GT(Simulate(profile, free.draft_min, free.draft_max, false, free.residents).gap_p99_s, 2.0)
        << "the limit below must have something to do";
    const ModeChoice bound =
        ChooseMode(profile.device(), profile.load(), {.draft_max = 128, .gain_min = 0, .gap_s_max = 2.0});
    EXPECT_LE(Simulate(profile, bound.draft_min, bound.draft_max, false, bound.residents).gap_p99_s, 2.0);
  }
}

TEST(Stagger, IsFairToRequestsOfDifferentSizes) {
  const StaggerProfile profile = ProfileOf(kH200, k32b, 32'768, 4, 0.98);
  std::vector<SimulatedRequest> requests;
  for (int32_t i = 0; i < 20; ++i) {
    requests.push_back(
        {.full_kv_bytes = profile.load().full_kv_bytes * (0.25 + 0.075 * i), .acceptance = 0.90 + 0.005 * i});
  }
  const StaggerOutcome outcome =
      SimulateStagger(profile.device(), profile.load(), requests, {.draft_min = 48, .draft_max = 96});
  for (const double gap : outcome.gap_mean_of_each_s) {
    EXPECT_GT(gap, 0.0);
    EXPECT_LE(gap, 3 * outcome.gap_mean_s);
  }
}

TEST(Stagger, GivesBackWhatCancelledRequestsHeld) {
  const StaggerProfile profile = ProfileOf(kH200, k32b, 32'768, 4, 0.98);
  const double alone = Simulate(profile, 16, 32, false, 4).tokens_per_s;
  // Ends at many moments of the first rounds, so that some lie in each phase.
  for (int32_t moment = 1; moment <= 60; ++moment) {
    std::vector<SimulatedRequest> requests = EqualRequests(profile.load(), 8);
    for (size_t i = 0; i < 4; ++i) requests[i].ends_at_s = 0.05 * moment + 0.013 * static_cast<double>(i);
    const StaggerOutcome outcome =
        SimulateStagger(profile.device(), profile.load(), requests, {.draft_min = 16, .draft_max = 32, .rounds = 60});
    EXPECT_EQ(outcome.streams_of_nobody, 0) << moment;
    EXPECT_NEAR(outcome.tokens_per_s / alone, 1.0, 0.10) << "the others go on as if alone, at " << moment;
  }
}

TEST(Stagger, SharesAStreamOnlyWithinAPrefix) {
  using engine::RoundPhase;
  const std::vector<engine::RoundView> rounds = {
      {.id = 1, .phase = RoundPhase::kQueued, .drafted = 8, .draft_min = 8, .draft_max = 8, .queued = 2, .prefix = 7},
      {.id = 2, .phase = RoundPhase::kQueued, .drafted = 8, .draft_min = 8, .draft_max = 9, .queued = 1, .prefix = 5},
      {.id = 3, .phase = RoundPhase::kQueued, .drafted = 8, .draft_min = 8, .draft_max = 8, .queued = 3, .prefix = 5},
      {.id = 4, .phase = RoundPhase::kDraft, .drafted = 2, .draft_min = 8, .draft_max = 8, .prefix = 5},
      {.id = 5, .phase = RoundPhase::kFetched, .drafted = 8, .draft_min = 8, .draft_max = 8, .prefix = 0}};
  const engine::StaggerStep step = PlanStagger(rounds, true, 1, {});
  EXPECT_EQ(step.stream, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(step.draft, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(step.verify, (std::vector<int64_t>{5}));
  EXPECT_TRUE(PlanStagger(rounds, false, 1, {}).stream.empty());
  EXPECT_TRUE(PlanStagger(rounds, true, 4, {.streams_max = 4}).stream.empty());
}

TEST(Stagger, BeginsSeveralStreamsAtOnceWhereVerifiesGoTogether) {
  using engine::RoundPhase;
  std::vector<engine::RoundView> rounds;
  for (int64_t id = 1; id <= 5; ++id) {
    rounds.push_back(
        {.id = id, .phase = RoundPhase::kQueued, .drafted = 8, .draft_min = 8, .draft_max = 8, .queued = 10 - id});
  }
  const engine::StaggerLimits limits{.synchronous = true, .streams_max = 4, .streams_at_once = 4};
  EXPECT_EQ(PlanStagger(rounds, true, 0, limits).stream, (std::vector<int64_t>{5, 4, 3, 2}));
  EXPECT_EQ(PlanStagger(rounds, true, 3, limits).stream, (std::vector<int64_t>{5}));
}

}  // namespace
}  // namespace invar::tools
