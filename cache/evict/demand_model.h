// DemandModel: what is still to come to a node that was come to h times and last a time `a` ago.
// For each origin, number of hits and number of turns before it learns the curve S(a): the share of such nodes that
// nobody has come back to by age `a`. It is Kaplan and Meier's estimate, in which nodes that still wait, or went away
// while they waited, count for as long as they were seen. (Kaplan, Meier, "Nonparametric Estimation from Incomplete
// Observations", JASA 53, 1958.) Two numbers follow from a curve at age `a`:
//   requests    1 - S(end) / S(a), the chance that one still comes;
//   per_second  max over t of (S(a) - S(a + t)) / (integral of S from a to a + t): hits for each second of holding,
//               with the best time to give up. Where memory has a price per byte and second, holding pays exactly while
//               this rate times the work saved exceeds the price for its bytes; so it is what nodes compete by. (The
//               index of Gittins, "Bandit Processes and Dynamic Allocation Indices", J. R. Stat. Soc. B 41, 1979.)
// No shape is assumed: people read before they answer, so a chat's node is worth little in its first seconds, more
// after, and ever less from some minutes on; programs come back at once.
// Threads: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "cache/tree/node_use.h"

namespace invar::cache {

class DemandModel {
 public:
  DemandModel();

  // Requests are expected at `use`'s node from now on. Does nothing where they already are.
  static void Begin(NodeUse& use, UseOrigin origin, TimeNs now, int32_t turns = 0);
  // A request came to the node and no further.
  void Hit(NodeUse& use, TimeNs now);
  // What is still to come to the node, and to what was below it.
  Prospect Expected(const NodeUse& use, TimeNs now) const;
  // The node of `use` goes away: `to` is the place its requests will come to instead (null: none).
  void Fall(const NodeUse& use, NodeUse* to, TimeNs now);

  // Learns from all nodes there are: StartCensus, Count each, EndCensus.
  void StartCensus();
  void Count(const NodeUse& use, TimeNs now);
  void EndCensus();

 private:
  // Ages are told apart in steps of sqrt(2) from an eighth of a second on: 47 steps are 12 days.
  static constexpr int kAges = 48;
  // Hits and turns are told apart up to this many.
  static constexpr int kHitsMax = 3;
  static constexpr int kTurnsMax = 4;
  using PerAge = std::array<double, kAges>;
  // Nodes by the age at which they were come back to, went away, or are now.
  struct Seen {
    PerAge returned = {};
    PerAge lost = {};
    PerAge present = {};
    double settled = 0;  // Sum of returned and lost.
  };
  struct Curve {
    PerAge hazard = {};    // Chance to be come back to in the step, if not before.
    PerAge requests = {};  // At the begin of each step.
    PerAge per_second = {};
  };
  static int AgeOf(double seconds);
  static double BeginOf(int age);
  static PerAge FirstGuess();
  static Seen Sum(std::span<const Seen> classes);
  static PerAge HazardOf(const Seen& seen, const PerAge& guess);
  static Curve CurveOf(const PerAge& hazard);
  static Prospect At(const Curve& curve, double seconds);

  Prospect FallenAt(const NodeUse& use, TimeNs now) const;
  size_t ClassOf(const NodeUse& use) const;
  void Learn();

  static constexpr int kClassesOfOrigin = (kTurnsMax + 1) * (kHitsMax + 1);
  static constexpr int kClasses = kUseOrigins * kClassesOfOrigin;
  std::array<Seen, kClasses> seen_;
  std::array<Curve, kClasses> curves_;
  double unlearned_ = 0;     // Settled since the curves were drawn.
  double fade_seconds_ = 0;  // Mean time to a return.
};

}  // namespace invar::cache
