// Fits what a profile knows of one layer, in two passes over paired prefixes: sums for the linear maps, then, with
// their codes, sums for the nonlinear decoders. Everything is solved in closed form; no order of threads enters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/transfer/scd_gram.h"
#include "engine/transfer/scd_prefix.h"
#include "engine/transfer/scd_profile.h"

namespace invar::engine {

// One layer of one prefix in both models.
struct ScdPairedLayer {
  const FloatRows& producer_inputs;  // Normalised, [tokens, hidden].
  const FloatRows& consumer_inputs;
  std::span<const float> weights;  // Of each token.
  // Attention: before rope.
  ScdKv producer_kv = {};
  ScdKv consumer_kv = {};
  // Recurrent: q, k, v behind the convolution [tokens, conv_dim], and the state after the last token.
  const FloatRows* producer_scanned = nullptr;
  const FloatRows* consumer_scanned = nullptr;
  std::span<const float> producer_state = {};
  std::span<const float> consumer_state = {};
};

struct ScdFitOptions {
  // Codes that get a nonlinear decoder: numbers a token of attention layers' joint codes, and of input codes.
  std::vector<int32_t> joint_ranks;
  std::vector<int32_t> input_ranks;
  int32_t features = 0;  // Of those decoders; 0: none are fitted.
};

class ScdLayerFitter {
 public:
  ScdLayerFitter(const ScdLayerShape& shape, int32_t hidden, const ScdFitOptions& options);

  void AddLinear(const ScdPairedLayer& layer);
  // Effects: makes the linear part of fit(). Between the passes.
  void SolveLinear();
  void AddNonlinear(const ScdPairedLayer& layer);
  void SolveNonlinear();

  const ScdLayerFit& fit() const { return fit_; }
  // Every sum of both passes, for keeping and taking back.
  std::vector<std::span<double>> Sums();

 private:
  struct Nonlinear {
    bool joint = false;
    int32_t rank = 0;
    PairSums sums = {};
  };
  void SolveStates();

  // Set at construction.
  const ScdLayerShape shape_;
  const ScdFitOptions options_;
  const int32_t hidden_;
  // First pass.
  PairSums keys_;
  PairSums values_;
  PairSums inputs_;  // To [K | V | input] of attention layers, to the input of recurrent ones.
  std::vector<HeadSums> key_heads_;
  std::vector<HeadSums> value_heads_;
  // Between.
  ScdLayerFit fit_;
  ScdStateMap ridge_states_;  // Keys by regression; fit_.states has them by rotation.
  // Second pass.
  std::vector<Nonlinear> nonlinear_;
  std::vector<double> state_products_;  // A value head: <S, P>, <P, P> of the rotation, the same of the regression.
};

}  // namespace invar::engine
