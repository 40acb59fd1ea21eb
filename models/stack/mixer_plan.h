// MixerPlan: what one kind of mixer is in one model: its shapes, the memory its layers take of a sequence, and how a
// layer is made. One file a kind in mixers/, one row in mixers/registry.cc; nothing else names a kind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "models/config/config_reader.h"
#include "models/model.h"

namespace invar::models {

class Mixer;
class WeightPlan;
struct StackPlan;

// Where a layer stands in the stack and where its memory lies.
struct MixerPlace {
  size_t layer = 0;
  int64_t page_offset_bytes = 0;  // Inside a KV page.
  int32_t attention_layer = 0;    // Which of the layers with KV it is, if it is one.
  RecurrentLayerState state;      // Inside a slot.
};

class MixerPlan {
 public:
  virtual ~MixerPlan() = default;
  // As config.json's layer_types calls it.
  virtual std::string_view kind() const = 0;
  // Of one KV page of kPageTokens positions; 0: the kind keeps no KV.
  virtual int64_t PageBytes(const StackPlan& plan, const kernels::Backend& backend) const = 0;
  // Shapes of the recurrent state, places unset; empty: the kind keeps none.
  virtual std::optional<RecurrentLayerState> State() const = 0;
  // What `backend` cannot compute, under its name in config.json.
  virtual std::optional<kernels::ShapeLimit> Limit(const StackPlan& plan, const kernels::Backend& backend) const = 0;
  // Declares the layer's tensors.
  virtual std::unique_ptr<Mixer> Make(const StackPlan& plan, const MixerPlace& place, WeightPlan& weights) const = 0;
  // One line of shapes for people.
  virtual std::string Describe(const StackPlan& plan) const = 0;
};

// A row of mixers/registry.cc. `read` takes the kind's own fields from the text model's section; errors stay in it.
struct MixerKind {
  std::string_view name;
  std::shared_ptr<const MixerPlan> (*read)(ConfigReader& config);
};

std::vector<std::string> MixerNames();
// Requires: `name` is one of MixerNames().
std::shared_ptr<const MixerPlan> ReadMixer(std::string_view name, ConfigReader& config);

}  // namespace invar::models
