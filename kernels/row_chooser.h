// RowChooser: tokens chosen where the logits lie, all rows of a step in one call, so that a step brings back tokens and
// not logits. What is chosen has the bits of the host's way: penalties, biases and masks one after another, then
// RowSampler (kernels/sample.h).
// Threads: the engine thread, as of the backend that it belongs to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sample.h"

namespace invar::kernels {

struct PenalisedToken {
  int32_t token = 0;
  int32_t in_output = 0;  // How often; 0: in the prompt alone.
};
struct BiasedToken {
  int32_t token = 0;
  float bias = 0.0F;
};

// What is done to a copy of the row, in this order, and how its token is chosen. Ids are below the usable ones; those
// of one list are distinct, but in `allowed` and `masked`.
struct RowChoice {
  const float* logits = nullptr;  // A row that an operation of the backend wrote.
  // Of each penalised token: a positive logit is divided by `repetition`, another multiplied; then, of one in the
  // output, frequency * in_output and presence are subtracted.
  std::vector<PenalisedToken> penalised = {};
  float repetition = 1.0F;
  float frequency = 0.0F;
  float presence = 0.0F;
  std::vector<BiasedToken> biased = {};
  std::vector<int32_t> allowed = {};  // All others are masked; empty: none is.
  std::vector<int32_t> masked = {};
  SampleSettings settings = {};
  NoiseKey key = {};
  // Of the row as it is: the token's logit and the LogSumExp of all columns, and so many of the most probable tokens.
  bool scores = false;
  int32_t alternatives = 0;
};

struct ScoredToken {
  int32_t token = 0;
  float logit = 0.0F;
};
struct ChosenRow {
  bool finite = true;  // False: some usable logit is not, and nothing else is said.
  int32_t token = -1;  // -1: none can be chosen.
  float logit = 0.0F;
  float log_sum = 0.0F;
  std::vector<ScoredToken> top = {};  // Best first, ties by id; fewer where fewer can be chosen.
};

class RowChooser {
 public:
  virtual ~RowChooser() = default;

  // Returns when `chosen`, one a choice and overwritten, can be read. Rows have `cols` columns, of which ids below
  // `usable_ids` can be chosen. Requires: 0 < usable_ids <= cols.
  virtual void Choose(int64_t cols, int32_t usable_ids, std::span<const RowChoice> choices,
                      std::span<ChosenRow> chosen) = 0;
};

}  // namespace invar::kernels
