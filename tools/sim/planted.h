// Bugs put in on purpose, outside the engine: they show that the simulation sees what it is there to see.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "models/model.h"

namespace invar::sim {

enum class Plant {
  kNone,
  kStalePage,   // A page shows what its last owner wrote.
  kDirtySlot,   // A state slot starts with its last owner's state.
  kRowMixup,    // Two rows of logits are exchanged.
  kLostCancel,  // A cancellation never arrives.
};

// "stale_page", "dirty_slot", "row_mixup", "lost_cancel"; otherwise nothing.
std::optional<Plant> PlantNamed(std::string_view name);

// `model`, misbehaving now and then as `plant` says.
std::unique_ptr<models::Model> PlantIn(Plant plant, std::unique_ptr<models::Model> model, uint64_t seed);

}  // namespace invar::sim
