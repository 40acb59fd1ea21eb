// From a pair of models and a text to a profile and what it is worth.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/transfer/scd_profile.h"
#include "models/model.h"
#include "models/text.h"
#include "tools/calibrate/options.h"

namespace invar::calibrate {

// One model as it was loaded.
struct CalibratedModel {
  models::Model& model;
  std::string folder;
  int32_t rows_max = 0;  // Of one forward and its logits.
};

// A way of sending that was measured on the text's last part.
struct MeasuredPoint {
  engine::ScdPoint point;
  engine::ScdQuality quality;
  std::vector<double> layer_errors;
  double payload_bytes_per_token = 0.0;  // Of kReportedTokens tokens.
  double recompute_share = 0.0;          // Of a prefill's operations: the consumer's own weights.
  double reconstruct_share = 0.0;        // Of the same: decoders and maps.
};

struct Calibration {
  engine::ScdProfile profile;         // With the points that it holds the codes of.
  std::vector<MeasuredPoint> points;  // Baselines first, then one a budget, ascending.
  size_t raw = 0;                     // Which of them is raw reuse.
  size_t main = 0;                    // And which is the profile's best within half the raw bytes.
  double raw_bytes_per_token = 0.0;
  int32_t prefix_tokens = 0;  // Of the windows.
  bool resumed = false;
};

// Effects: keeps sums in `options.out`.progress while it runs, and takes them up from there. Errors: INVALID_ARGUMENT
// (models that are no pair, naming what differs; a short text), UNIMPLEMENTED, RESOURCE_EXHAUSTED, those of files.
// `progress` is told of work done and to do. Deterministic: the same models, text and options give the same profile,
// on any number of threads.
StatusOr<Calibration> Calibrate(const CalibratedModel& producer, const CalibratedModel& consumer,
                                const models::Tokenizer& tokenizer, const CalibrateOptions& options,
                                const std::function<void(int64_t done, int64_t total)>& progress);
// The same on tokens instead of options.text_paths.
StatusOr<Calibration> CalibrateOn(const CalibratedModel& producer, const CalibratedModel& consumer,
                                  std::span<const TokenId> tokens, const CalibrateOptions& options,
                                  const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace invar::calibrate
