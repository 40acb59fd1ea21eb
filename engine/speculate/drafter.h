// Drafter: guesses for the tokens that follow what a sequence has. A guess never reaches the output by itself: the
// engine samples every token from the model's own logits and uses a guess only to have run the row behind it already.
// So a drafter decides how much is saved and nothing else, and knows no policy: how much to guess is told
// (draft_length.h). A kind is one file and one row of registry.cc.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cache/cache_memory.h"
#include "kernels/sample.h"
#include "models/model.h"

namespace invar::engine {

// One sequence that wants guesses. `tokens`, all that are known, only grow from turn to turn of one id.
struct DraftTurn {
  SequenceId id;
  std::span<const TokenId> tokens;
  // What it holds: KV of all tokens but the last, and places behind it that nobody else reads and forwards will write;
  // the state after all tokens but the last.
  std::span<const PageId> pages;
  SlotId state;
  int32_t most = 0;            // At least 1.
  std::vector<TokenId> draft;  // Out: at most `most`, none where nothing is worth a guess.
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // All turns of a step together. Effects: may keep what it learns of a sequence until Forget.
  virtual void Propose(std::span<DraftTurn> turns) = 0;
  // The sequence is gone, or never had a turn.
  virtual void Forget(SequenceId id) = 0;
};

// What drafters of an engine may compute with; outlives them.
struct DrafterSetting {
  models::Model& model;
  const cache::CacheMemory& memory;
  const kernels::RowSampler& rows;
};

struct DrafterKind {
  std::string name;
  std::function<std::unique_ptr<Drafter>(const DrafterSetting&)> make;
  // Why it cannot draft for such a model, for people; empty where it can. Absent: it always can.
  std::function<std::string(const models::ModelSpec&)> why_not = {};
};
// registry.cc, in the order of its rows.
std::vector<DrafterKind> DrafterKinds();

}  // namespace invar::engine
