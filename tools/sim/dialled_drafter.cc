// The guesses of dialled_drafter.h.
#include "tools/sim/dialled_drafter.h"

#include "tools/sim/random.h"

namespace invar::sim {
namespace {

class DialledDrafter final : public engine::Drafter {
 public:
  DialledDrafter(const DraftTruths& truths, const int32_t usable_ids, const uint64_t seed)
      : truths_(truths), usable_ids_(usable_ids), random_(seed ^ 0xD1A1ULL) {}

  void Propose(const std::span<engine::DraftTurn> turns) override {
    for (engine::DraftTurn& turn : turns) {
      if (random_.Percent(5)) continue;  // Now and then it has no idea.
      const DraftTruth& truth = truths_.at(turn.id);
      for (int32_t i = 0; i < turn.most; ++i) {
        const size_t at = turn.tokens.size() + static_cast<size_t>(i);
        const bool right = at < truth.tokens.size() && random_.Percent(truth.agreement_percent);
        turn.draft.push_back(right ? truth.tokens[at] : TokenId(random_.Between(0, usable_ids_ - 1)));
      }
    }
  }
  void Forget(SequenceId) override {}

 private:
  const DraftTruths& truths_;
  const int32_t usable_ids_;
  Random random_;
};

}  // namespace

std::unique_ptr<engine::Drafter> MakeDialledDrafter(const DraftTruths& truths, const int32_t usable_ids,
                                                    const uint64_t seed) {
  return std::make_unique<DialledDrafter>(truths, usable_ids, seed);
}

}  // namespace invar::sim
