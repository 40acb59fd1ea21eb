// Bugs put in on purpose, outside the engine: they show that the simulation sees what it is there to see.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace invar::sim {

enum class Plant {
  kNone,
  kStalePage,   // A page shows what its last owner wrote.
  kDirtySlot,   // A state slot starts with its last owner's state.
  kRowMixup,    // Two rows of logits are exchanged.
  kLostCancel,  // A cancellation never arrives.
  // Of the prefix cache.
  kWrongCheckpoint,  // A sequence resumes from the checkpoint of another position.
  kSharedSlot,       // A checkpoint is not copied: the sequence that made it goes on in its slot.
  kSharedPage,       // A page is not copied on write: two sequences write one.
  kStaleKv,          // KV that a sequence found shows what stood there before it was evicted.
  kLateState,        // A state is copied out one token late.
  kScopeIgnored,     // The salt does not separate.
  // Of speculation.
  kNoRollback,      // A verified draft's state keeps all its rows, right or wrong.
  kOneTooMany,      // The state goes over one row more than were right.
  kAcceptsWrong,    // A drafted token is taken where another one was sampled.
  kDraftPublished,  // KV of a rejected token stays, as if it had been told to the cache.
  kNoisePosition,   // Behind the first token, the noise is that of the next position.
  // Of the slow tier.
  kLayerNotRead,         // A layer of a stream shows what its place in the ring held before.
  kReusedBeforeWritten,  // A page that moves out is another's before it has been written.
  kOthersStream,         // A page of a stream is that of another request's.
};

// By one of PlantNames(), "stale_page" and so on; otherwise nothing.
std::optional<Plant> PlantNamed(std::string_view name);
std::vector<std::string> PlantNames();

// `model`, misbehaving now and then as `plant` says.
std::unique_ptr<models::Model> PlantIn(Plant plant, std::unique_ptr<models::Model> model, uint64_t seed);

}  // namespace invar::sim
