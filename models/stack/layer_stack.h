// LayerStack: the one loop over layers that all real models share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "models/stack/stack_plan.h"
#include "models/weights/weight_plan.h"

namespace invar::models {

// Checks every tensor, then loads. `config_text` is config.json as stored (part of the fingerprint). Errors: as
// MakeModel.
StatusOr<std::unique_ptr<Model>> MakeLayerStack(const StackPlan& plan, const std::string& config_text,
                                                const ModelOptions& options, kernels::Backend& backend);

// Every tensor the stack needs, in the order of its layers.
std::vector<RequiredTensor> ListTensors(const StackPlan& plan);

}  // namespace invar::models
