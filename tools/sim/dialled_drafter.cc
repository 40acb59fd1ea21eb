// The guesses of dialled_drafter.h.
#include "tools/sim/dialled_drafter.h"

#include "tools/sim/random.h"

namespace invar::sim {
namespace {

class DialledDrafter : public engine::Drafter {
 public:
  DialledDrafter(const DraftTruths& truths, const int32_t usable_ids, const uint64_t seed)
      : truths_(truths), usable_ids_(usable_ids), random_(seed ^ 0xD1A1ULL) {}

  void Propose(const std::span<engine::DraftTurn> turns) override {
    for (engine::DraftTurn& turn : turns) {
      if (!IsReady(turn.id) || random_.Percent(5)) continue;  // Now and then it has no idea.
      const DraftTruth& truth = truths_.at(turn.id);
      while (std::ssize(turn.draft) < turn.most) {
        const size_t at = turn.tokens.size() + turn.draft.size();
        const bool right = at < truth.tokens.size() && random_.Percent(truth.agreement_percent);
        turn.draft.push_back(right ? truth.tokens[at] : TokenId(random_.Between(0, usable_ids_ - 1)));
      }
    }
  }
  void Forget(SequenceId) override {}

 protected:
  Random& random() { return random_; }

 private:
  const DraftTruths& truths_;
  const int32_t usable_ids_;
  Random random_;
};

class DialledViewDrafter final : public DialledDrafter {
 public:
  using DialledDrafter::DialledDrafter;

  bool IsReady(const SequenceId id) const override { return viewed_.contains(id); }
  int32_t ViewTokens(const SequenceId id) const override { return IsReady(id) ? viewed_.at(id) : 0; }

  void Prepare(engine::DraftTurn& turn) override {
    const auto computed = static_cast<int32_t>(turn.tokens.size()) - 1;
    if (computed == 0 || !turn.draft.empty()) return;
    if (!IsReady(turn.id) && !MayMake(turn)) return;
    viewed_[turn.id] = computed;
  }
  void Forget(const SequenceId id) override { viewed_.erase(id); }

 private:
  bool MayMake(engine::DraftTurn& turn) {
    if (turn.away_pages > 0 && turn.away == nullptr) return false;
    turn.no_memory = random().Percent(10);
    if (turn.no_memory || turn.away_pages == 0) return !turn.no_memory;
    for (size_t part = 0; part < turn.away->parts().layers && turn.failure.ok(); ++part) {
      turn.failure = turn.away->Part(part, layer_, bounce_).status();
    }
    return turn.failure.ok();
  }

  std::map<SequenceId, int32_t> viewed_;  // Tokens.
  engine::BlockBuffer layer_;
  engine::BlockBuffer bounce_;
};

}  // namespace

std::unique_ptr<engine::Drafter> MakeDialledDrafter(const DraftTruths& truths, const int32_t usable_ids,
                                                    const uint64_t seed) {
  return std::make_unique<DialledDrafter>(truths, usable_ids, seed);
}

std::unique_ptr<engine::Drafter> MakeDialledViewDrafter(const DraftTruths& truths, const int32_t usable_ids,
                                                        const uint64_t seed) {
  return std::make_unique<DialledViewDrafter>(truths, usable_ids, seed ^ 0x71E3ULL);
}

}  // namespace invar::sim
