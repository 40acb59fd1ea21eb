// See scd_trim.h.
#include "engine/transfer/scd_trim.h"

#include <algorithm>
#include <span>
#include <utility>

namespace invar::engine {
namespace {

struct Use {
  int32_t rank = 0;
  int32_t features = 0;
};

void Trim(const std::span<const Use> uses, ScdCodec& codec) {
  int32_t largest = 0;
  int32_t largest_linear = 0;
  for (const Use& use : uses) {
    largest = std::max(largest, use.rank);
    if (use.features == 0) largest_linear = std::max(largest_linear, use.rank);
  }
  if (largest == 0) {
    codec = {};
    return;
  }
  FloatRows& matrix = codec.encoder.matrix;
  FloatRows kept(matrix.rows, largest);
  for (int64_t r = 0; r < matrix.rows; ++r) std::copy_n(matrix.row(r), largest, kept.row(r));
  matrix = std::move(kept);
  codec.encoder.sigma.resize(static_cast<size_t>(largest));
  std::erase_if(codec.decoders, [&](const ScdDecoder& decoder) {
    return std::ranges::none_of(uses, [&](const Use& use) {
      return use.features == decoder.features && (use.features == 0 || use.rank == decoder.rank);
    });
  });
  for (ScdDecoder& decoder : codec.decoders) {
    if (decoder.features > 0) continue;
    decoder.rank = largest_linear;
    decoder.matrix.rows = largest_linear;
    decoder.matrix.values.resize(static_cast<size_t>(largest_linear * decoder.matrix.cols));
  }
}

}  // namespace

void TrimScdProfile(ScdProfile& profile) {
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    std::vector<Use> keys;
    std::vector<Use> values;
    std::vector<Use> joint;
    std::vector<Use> inputs;
    bool states = false;
    for (const ScdPoint& point : profile.points) {
      const ScdLayerPlan& plan = point.layers[i];
      const Use use{.rank = plan.rank, .features = plan.features};
      if (plan.mode == ScdMode::kReuseKv) {
        keys.push_back(use);
        values.push_back({.rank = plan.rank_v, .features = plan.features});
      } else if (plan.mode == ScdMode::kReuse) {
        joint.push_back(use);
      } else if (plan.mode == ScdMode::kPatch || plan.mode == ScdMode::kMapState) {
        inputs.push_back(use);
        states = states || plan.mode == ScdMode::kMapState;
      }
    }
    ScdLayerFit& fit = profile.layers[i];
    Trim(keys, fit.keys);
    Trim(values, fit.values);
    Trim(joint, fit.joint);
    Trim(inputs, fit.inputs);
    if (!states) fit.states = {};
  }
}

}  // namespace invar::engine
