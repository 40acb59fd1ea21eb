// The multi-token head of the model: its token behind the last one, then behind that guess, and so on. It knows what
// the model knows, so it is right far more often than a look-up where the text is new; each guess costs a layer and the
// output matrix.
//
// Guesses leave the head's KV in pages that the sequence holds already, behind all that is computed: forwards write it
// again as they come by. So a draft ends where those pages end, and drafting needs no memory of its own.
#include <algorithm>
#include <optional>
#include <vector>

#include "engine/speculate/kinds.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

class MtpDrafter final : public Drafter {
 public:
  explicit MtpDrafter(const DrafterSetting& setting) : model_(setting.model), memory_(setting.memory) {}

  void Propose(std::span<DraftTurn> turns) override {
    const auto most = static_cast<size_t>(model_.spec().mtp.rows_max);
    for (; !turns.empty(); turns = turns.subspan(std::min(most, turns.size()))) {
      ProposeTogether(turns.first(std::min(most, turns.size())));
    }
  }
  void Forget(SequenceId) override {}

 private:
  struct Going {
    DraftTurn* turn = nullptr;
    int32_t length = 0;
  };

  // Guess by guess, all turns that want one more in a call.
  void ProposeTogether(const std::span<DraftTurn> turns) {
    std::vector<Going> going;
    std::vector<models::GuessRow> rows;
    for (DraftTurn& turn : turns) {
      const auto position = static_cast<int32_t>(turn.tokens.size()) - 1;
      const int32_t room = static_cast<int32_t>(turn.pages.size()) * kernels::kPageTokens - position;
      const int32_t length = std::min(turn.most, room);
      if (position < 1 || length < 1) continue;
      going.push_back({&turn, length});
      rows.push_back(
          {.token = turn.tokens.back(), .position = Position(position), .pages = turn.pages, .state = turn.state});
    }
    const models::SequenceMemory memory{.pages = memory_.pages().arena(), .states = memory_.slots().arena()};
    while (!rows.empty()) {
      const kernels::ConstF32View logits = model_.Guess(memory, rows);
      size_t kept = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto row = static_cast<int64_t>(i);
        const std::optional<TokenId> token =
            going[i].turn->sampler->Next({logits.row(row), static_cast<size_t>(logits.cols)});
        if (!token.has_value()) continue;
        std::vector<TokenId>& draft = going[i].turn->draft;
        draft.push_back(*token);
        if (static_cast<int32_t>(draft.size()) == going[i].length) continue;
        models::GuessRow next = rows[i];
        next.token = *token;
        next.position = Position(next.position.value() + 1);
        next.from_row = static_cast<int32_t>(i);
        rows[kept] = next;
        going[kept++] = going[i];
      }
      rows.resize(kept);
      going.resize(kept);
    }
  }

  models::Model& model_;
  const cache::CacheMemory& memory_;
};

}  // namespace

std::unique_ptr<Drafter> MakeMtpDrafter(const DrafterSetting& setting) { return std::make_unique<MtpDrafter>(setting); }

std::string WhyNoMtpDrafter(const models::ModelSpec& spec) { return spec.mtp.why_not; }

}  // namespace invar::engine
