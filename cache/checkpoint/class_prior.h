// ClassPrior: what one class of prefixes (one tenant, one shared trunk, one size) has taught about where later requests
// will stop matching a NEW prefix of the class, before anybody has come back to it.
// Three ways to carry depths over to another length are kept, and the one whose plans would have cost least on what
// came after them is used: from the start (system prompts), from the end (questions behind long texts), as a share of
// the length (chapters). Smoothing: a few uniform pseudo-observations, without which small histograms plan worse than
// even spacing does. Source: sparse prefix caching (arXiv 2605.05219); choice between the histograms by prediction,
// "prequential", Dawid 1984. Threads: any; values and pure functions, so that back-tests can run beside the engine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/checkpoint/demand.h"
#include "cache/checkpoint/overlap_histogram.h"
#include "cache/checkpoint/placement.h"

namespace invar::cache {

enum class Anchor : uint8_t { kStart, kEnd, kShare };
inline constexpr std::array kAnchors = {Anchor::kStart, Anchor::kEnd, Anchor::kShare};
template <typename T>
using PerAnchor = std::array<T, kAnchors.size()>;
std::string_view AnchorName(Anchor anchor);

// Depths are counted in cells of this many tokens (PageTokens of the attention kernels): half a cell, 32 tokens, is
// what planning on the grid costs at most on average, and 32K tokens are 512 candidates.
inline constexpr int32_t kGridTokens = 64;
// Cells of the share of the length; as many as a prefix of 32K tokens has on the grid.
inline constexpr int32_t kShareCells = 512;
// Segments longer than kCandidatesMax x kGridTokens are planned on a coarser grid: a plan is made within a request.
inline constexpr int32_t kCandidatesMax = 512;

// One later request: it shared `depth` tokens of a private segment of `length`.
struct Overlap {
  int32_t length = 0;
  int32_t depth = 0;
};

// Cell of an overlap, rounded so that a checkpoint at the cell's depth is never beyond the overlap.
int32_t CellOf(Anchor anchor, const Overlap& overlap);

struct ClassPrior {
  PerAnchor<std::vector<CellWeight>> cells;  // Newest observation = kWeightOne.
  int64_t rate = 0;                          // Expected later requests a prefix, x kWeightOne.
  PerAnchor<int64_t> back_test{};            // Cost of following each anchor so far, older plans counting less.
  Anchor anchor = Anchor::kStart;            // The one to follow.
};

// Expected later requests over depths 1..length of a new segment, each weight x kWeightOne, smoothed.
Demand DemandFor(const ClassPrior& prior, Anchor anchor, int32_t length);

// Fills in `next.back_test` and `next.anchor`: for each overlap, what `last`'s plans by each anchor would have cost it,
// checkpoints included. The first plan of a class has no `last` and is tested on what it was made of.
// `problem` gives places, price and restore cost.
void BackTest(const ClassPrior* last, std::span<const Overlap> overlaps, const PlacementPolicy& policy,
              const PlacementProblem& problem, ClassPrior& next);

}  // namespace invar::cache
