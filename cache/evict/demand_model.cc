// All sums are over nodes in a fixed order, so a replay gives the same numbers.
#include "cache/evict/demand_model.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace invar::cache {
namespace {

constexpr double kFirstStepSeconds = 0.125;
// The first guess, a chance and a mean time, and for how many nodes it counts. It is soon outweighed.
constexpr double kGuessReturns = 0.3;
constexpr double kGuessSeconds = 300;
constexpr double kGuessNodes = 32;
// Beyond so many nodes of a class the past counts half: habits change.
constexpr double kNodesKept = 16'384;
// Curves are drawn again after so many nodes settled, or this share of all.
constexpr double kLearnAfter = 32;

double AgeSeconds(const TimeNs then, const TimeNs now) { return std::max(0.0, ToSeconds(now - then)); }

}  // namespace

int DemandModel::AgeOf(const double seconds) {
  if (seconds < kFirstStepSeconds) return 0;
  return std::min(kAges - 1, 1 + static_cast<int>(2 * std::log2(seconds / kFirstStepSeconds)));
}

double DemandModel::BeginOf(const int age) { return age == 0 ? 0 : kFirstStepSeconds * std::exp2(0.5 * (age - 1)); }

DemandModel::PerAge DemandModel::FirstGuess() {
  const auto waits = [](const int age) {
    return 1 - kGuessReturns + kGuessReturns * std::exp(-BeginOf(age) / kGuessSeconds);
  };
  PerAge hazard = {};
  for (int age = 0; age + 1 < kAges; ++age) hazard[age] = 1 - waits(age + 1) / waits(age);
  return hazard;
}

// As if kGuessNodes nodes had been seen that follow `guess` exactly. Nodes that went away or are within a step were at
// risk for half of it.
DemandModel::PerAge DemandModel::HazardOf(const Seen& seen, const PerAge& guess) {
  double at_risk = 0;
  PerAge older = {};  // Nodes seen beyond the step.
  for (int age = kAges - 1; age >= 0; --age) {
    older[age] = at_risk;
    at_risk += seen.returned[age] + seen.lost[age] + seen.present[age];
  }
  PerAge hazard = {};
  double guessed = kGuessNodes;
  for (int age = 0; age < kAges; ++age) {
    const double risk = older[age] + seen.returned[age] + 0.5 * (seen.lost[age] + seen.present[age]);
    hazard[age] = (seen.returned[age] + guessed * guess[age]) / (risk + guessed);
    guessed *= 1 - guess[age];
  }
  return hazard;
}

DemandModel::Curve DemandModel::CurveOf(const PerAge& hazard) {
  Curve curve{.hazard = hazard};
  double stays = 1;  // From the step on.
  for (int age = kAges - 1; age >= 0; --age) {
    stays *= 1 - hazard[age];
    curve.requests[age] = 1 - stays;
  }
  for (int age = 0; age < kAges; ++age) {
    double waits = 1;
    double hits = 0;
    double seconds = 0;
    for (int until = age; until + 1 < kAges; ++until) {
      const double returns = waits * hazard[until];
      hits += returns;
      seconds += (BeginOf(until + 1) - BeginOf(until)) * (waits - returns / 2);
      waits -= returns;
      curve.per_second[age] = std::max(curve.per_second[age], hits / seconds);
    }
  }
  return curve;
}

Prospect DemandModel::At(const Curve& curve, const double seconds) {
  const int age = AgeOf(seconds);
  if (age + 1 >= kAges) return {curve.requests[age], curve.per_second[age]};
  const double into = (seconds - BeginOf(age)) / (BeginOf(age + 1) - BeginOf(age));
  return {std::lerp(curve.requests[age], curve.requests[age + 1], into),
          std::lerp(curve.per_second[age], curve.per_second[age + 1], into)};
}

DemandModel::Seen DemandModel::Sum(const std::span<const Seen> classes) {
  Seen all;
  for (const Seen& seen : classes) {
    for (int age = 0; age < kAges; ++age) {
      all.returned[age] += seen.returned[age];
      all.lost[age] += seen.lost[age];
      all.present[age] += seen.present[age];
    }
  }
  return all;
}

DemandModel::DemandModel() { Learn(); }

size_t DemandModel::ClassOf(const NodeUse& use) const {
  const size_t turns = static_cast<size_t>(use.origin) * (kTurnsMax + 1) + std::min(use.turns, kTurnsMax);
  return turns * (kHitsMax + 1) + std::min(use.hits, kHitsMax);
}

void DemandModel::Begin(NodeUse& use, const UseOrigin origin, const TimeNs now, const int32_t turns) {
  if (use.origin != UseOrigin::kNone) return;
  use.origin = origin;
  use.turns = turns;
  use.hits = 0;
  use.met_at = now;
}

void DemandModel::Hit(NodeUse& use, const TimeNs now) {
  if (use.origin == UseOrigin::kNone) return Begin(use, UseOrigin::kBranch, now);
  Seen& seen = seen_[ClassOf(use)];
  ++seen.returned[AgeOf(AgeSeconds(use.met_at, now))];
  ++seen.settled;
  ++unlearned_;
  ++use.hits;
  use.met_at = now;
}

// What fell to the node comes late: it becomes unlikely.
Prospect DemandModel::FallenAt(const NodeUse& use, const TimeNs now) const {
  if (use.fallen.requests <= 0) return {};
  const double left = std::exp(-AgeSeconds(use.fallen_at, now) / fade_seconds_);
  return {use.fallen.requests * left, use.fallen.per_second * left};
}

Prospect DemandModel::Expected(const NodeUse& use, const TimeNs now) const {
  Prospect prospect = FallenAt(use, now);
  if (use.origin != UseOrigin::kNone) prospect += At(curves_[ClassOf(use)], AgeSeconds(use.met_at, now));
  return prospect;
}

void DemandModel::Fall(const NodeUse& use, NodeUse* const to, const TimeNs now) {
  if (use.origin != UseOrigin::kNone) {
    Seen& seen = seen_[ClassOf(use)];
    ++seen.lost[AgeOf(AgeSeconds(use.met_at, now))];
    ++seen.settled;
    ++unlearned_;
  }
  if (to == nullptr) return;
  Prospect fallen = FallenAt(*to, now);
  fallen += Expected(use, now);
  to->fallen = fallen;
  to->fallen_at = now;
}

void DemandModel::StartCensus() {
  for (Seen& seen : seen_) seen.present = {};
}

void DemandModel::Count(const NodeUse& use, const TimeNs now) {
  if (use.origin == UseOrigin::kNone) return;
  ++seen_[ClassOf(use)].present[AgeOf(AgeSeconds(use.met_at, now))];
}

void DemandModel::EndCensus() {
  double settled = 0;
  for (const Seen& seen : seen_) settled += seen.settled;
  if (unlearned_ < std::max(kLearnAfter, settled / 256)) return;
  Learn();
  for (Seen& seen : seen_) {
    if (seen.settled <= kNodesKept) continue;
    seen.settled /= 2;
    for (int age = 0; age < kAges; ++age) {
      seen.returned[age] /= 2;
      seen.lost[age] /= 2;
    }
  }
}

// A class of few nodes is guessed to be as all of its origin and turns, and those as all of the origin.
void DemandModel::Learn() {
  const PerAge first = FirstGuess();
  double returns = kGuessNodes;
  double gaps = kGuessNodes * kGuessSeconds;
  for (size_t origin = 0; origin < kUseOrigins; ++origin) {
    const std::span<const Seen> of_origin = std::span(seen_).subspan(origin * kClassesOfOrigin, kClassesOfOrigin);
    const PerAge guess = HazardOf(Sum(of_origin), first);
    for (size_t turns = 0; turns <= kTurnsMax; ++turns) {
      const std::span<const Seen> of_turns = of_origin.subspan(turns * (kHitsMax + 1), kHitsMax + 1);
      const PerAge guess_of_turns = HazardOf(Sum(of_turns), guess);
      for (size_t hits = 0; hits <= kHitsMax; ++hits) {
        curves_[origin * kClassesOfOrigin + turns * (kHitsMax + 1) + hits] =
            CurveOf(HazardOf(of_turns[hits], guess_of_turns));
        if (hits == kHitsMax) continue;  // Those come all the time.
        for (int age = 0; age < kAges; ++age) {
          returns += of_turns[hits].returned[age];
          gaps += of_turns[hits].returned[age] * BeginOf(age);
        }
      }
    }
  }
  fade_seconds_ = gaps / returns;
  unlearned_ = 0;
}

}  // namespace invar::cache
