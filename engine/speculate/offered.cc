// Guesses that come from outside (engine/draft_offers.h): of a consumer that has a compressed view of the sequence's
// KV, where the full KV is here (docs/TRANSFER.md, section 10).
#include "engine/draft_offers.h"
#include "engine/speculate/kinds.h"

namespace invar::engine {
namespace {

class OfferedDrafter final : public Drafter {
 public:
  void Propose(const std::span<DraftTurn> turns) override {
    for (DraftTurn& turn : turns) {
      if (turn.offers != nullptr) turn.draft = turn.offers->Behind(turn.tokens, turn.most);
    }
  }
  void Forget(SequenceId /*id*/) override {}
};

}  // namespace

std::unique_ptr<Drafter> MakeOfferedDrafter(const DrafterSetting& /*setting*/) {
  return std::make_unique<OfferedDrafter>();
}

}  // namespace invar::engine
