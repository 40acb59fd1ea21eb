// Drafter: guesses for the tokens that follow what a sequence has. A guess never reaches the output by itself: the
// engine samples every token from the model's own logits and uses a guess only to have run the row behind it already.
// So a drafter decides how much is saved and nothing else, and knows no policy: how much to guess is told
// (draft_length.h). A kind is one file and one row of registry.cc.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "cache/cache_memory.h"
#include "engine/drafter_kind.h"
#include "engine/sample/draft_sampler.h"
#include "engine/slow/away_kv.h"
#include "models/model.h"

namespace invar::engine {

class DraftOffers;

// One sequence that wants guesses. `tokens`, all that are known, only grow from turn to turn of one id.
struct DraftTurn {
  SequenceId id;
  std::span<const TokenId> tokens;
  // What it holds: KV of all tokens but the last, and places behind it that nobody else reads and forwards will write;
  // the state after all tokens but the last.
  std::span<const PageId> pages;
  // Its first pages that are away: `pages` begin behind them. What is not away is what came since its last turn at
  // least; what is, is read where `away` is given.
  int32_t away_pages = 0;
  const AwayKv* away = nullptr;
  SlotId state;
  int32_t most = 0;  // At least 1.
  int32_t room = 0;  // What the round may yet come to, where that is more than `most`: room is kept for it.
  // What the request wants it to draft on, of drafters that compress.
  std::string_view compressor = {};
  std::optional<float> kv_budget = std::nullopt;
  const DraftOffers* offers = nullptr;  // From outside, of the drafter that takes them.
  DraftSampler* sampler = nullptr;      // Chooses from logits, for drafters that have some. One draft's.
  // In: what this drafter has guessed in the round so far; none: the round begins. Out: with more behind, at most
  // `most` in all; no more where nothing is worth a guess.
  std::vector<TokenId> draft;
  bool no_memory = false;  // Out: there is none for want of the drafter's own memory.
  Status failure = {};     // Out: of reading what is away.
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Whether the sequence's next turn takes no more than drafting: false where something must be made first.
  virtual bool IsReady(SequenceId /*id*/) const { return true; }
  // Tokens that its view of the sequence's KV stands for; 0: there is none.
  virtual int32_t ViewTokens(SequenceId /*id*/) const { return 0; }
  // That a view of so many tokens takes at least, made as a request wants it.
  virtual int64_t ViewBytes(std::string_view /*compressor*/, const std::optional<float>& /*kv_budget*/,
                            int32_t /*tokens*/) const {
    return 0;
  }
  // Brings what it keeps of the sequence up to date. Before each Propose.
  virtual void Prepare(DraftTurn& /*turn*/) {}
  // All turns of a step together. Effects: may keep what it learns of a sequence until Forget.
  virtual void Propose(std::span<DraftTurn> turns) = 0;
  // The sequence is gone, or never had a turn.
  virtual void Forget(SequenceId id) = 0;

  // What it holds of the memory of drafters, counted anew.
  virtual int64_t held_bytes() const { return 0; }
};

// Views that drafters keep in their memory, all of them together (compressed_kv.cc).
struct DraftViews;
std::shared_ptr<DraftViews> MakeDraftViews();

// What drafters of an engine may compute with; outlives them.
struct DrafterSetting {
  models::Model& model;
  const cache::CacheMemory& memory;  // Of the sequences.
  int32_t rows_max = 1;              // Of one forward, all with logits.
  // Memory of drafters, all of them together; outlives them. Null: they need none.
  cache::CacheMemory* own = nullptr;
  std::shared_ptr<DraftViews> views = MakeDraftViews();  // In it.
};

}  // namespace invar::engine
