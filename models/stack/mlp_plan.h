// MlpPlan: what one kind of MLP is in one model: its shapes and how a layer is made. One file a kind in mlps/; families
// say which of their layers has which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "models/config/config_reader.h"

namespace invar::models {

class Mlp;
class WeightPlan;
struct StackPlan;

class MlpPlan {
 public:
  virtual ~MlpPlan() = default;
  virtual std::string_view kind() const = 0;
  // Declares the tensors of `layer`.
  virtual std::unique_ptr<Mlp> Make(const StackPlan& plan, size_t layer, WeightPlan& weights) const = 0;
  // One line of shapes for people.
  virtual std::string Describe() const = 0;
};

// The kinds. Each takes its own fields from the text model's section; errors stay in it.
std::shared_ptr<const MlpPlan> ReadSwiGlu(ConfigReader& config, bool bias);
std::shared_ptr<const MlpPlan> ReadExperts(ConfigReader& config);

}  // namespace invar::models
