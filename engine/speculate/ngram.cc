// Prompt lookup: what followed the longest earlier occurrence of the text's end probably follows it again. Good where
// the output repeats the prompt or itself: code being edited, extraction, tables, quotations.
//
// The index is that of LZ77 matchers: the last place of every run of kGram tokens in a hash table, and from each place
// the one before with the same hash. Adding a token is one insertion; a look-up walks at most kPlacesMax places and
// compares tokens, so a collision costs time and never a wrong match. Memory: 4 bytes a token for the places and 8 to
// 16 for the table.
#include <algorithm>
#include <map>
#include <utility>

#include "base/split_mix64.h"
#include "engine/speculate/kinds.h"

namespace invar::engine {
namespace {

constexpr int32_t kGram = 3;        // Shorter matches say little: two tokens recur in any text.
constexpr int32_t kLongMatch = 64;  // No need to know how much longer a match is.
constexpr int32_t kPlacesMax = 64;  // Looked at, the latest first.
constexpr int32_t kNone = -1;

class NgramIndex {
 public:
  void Propose(DraftTurn& turn) {
    Add(turn.tokens);
    const int32_t place = LongestMatch(turn.tokens);
    if (place == kNone) return;
    // What follows may run into the end: then the draft repeats itself, as text with a short period does.
    const auto known = static_cast<int32_t>(turn.tokens.size());
    for (int32_t from = place + 1; static_cast<int32_t>(turn.draft.size()) < turn.most; ++from) {
      turn.draft.push_back(from < known ? turn.tokens[static_cast<size_t>(from)]
                                        : turn.draft[static_cast<size_t>(from - known)]);
    }
  }

 private:
  // All places that something follows.
  void Add(const std::span<const TokenId> tokens) {
    const auto end = static_cast<int32_t>(tokens.size()) - 1;
    if (2 * static_cast<size_t>(std::max(end, 0)) > heads_.size()) Grow(end);
    for (; added_ < end; ++added_) {
      previous_.push_back(kNone);
      if (added_ < kGram - 1) continue;
      int32_t& head = heads_[Slot(tokens, added_)];
      previous_.back() = std::exchange(head, added_);
    }
  }
  // The places are added again, which keeps their order.
  void Grow(const int32_t places) {
    size_t size = std::max<size_t>(heads_.size(), 256);
    while (size < 2 * static_cast<size_t>(places)) size *= 2;
    heads_.assign(size, kNone);
    previous_.clear();
    added_ = 0;
  }
  size_t Slot(const std::span<const TokenId> tokens, const int32_t last) const {
    uint64_t hash = 0;
    for (int32_t i = last - kGram + 1; i <= last; ++i) {
      hash = MixBits(hash + static_cast<uint32_t>(tokens[static_cast<size_t>(i)].value()) + 1);
    }
    return hash & (heads_.size() - 1);
  }

  // Where the text's end stood before in its longest company; the latest such place.
  int32_t LongestMatch(const std::span<const TokenId> tokens) const {
    const auto last = static_cast<int32_t>(tokens.size()) - 1;
    if (last < kGram) return kNone;
    int32_t best = kNone;
    int32_t best_length = kGram - 1;
    int32_t place = heads_[Slot(tokens, last)];
    for (int32_t seen = 0; place != kNone && seen < kPlacesMax; ++seen) {
      const int32_t length = MatchLength(tokens, place, last);
      if (length > best_length) {
        best = place;
        best_length = length;
      }
      if (best_length == kLongMatch) break;
      place = previous_[static_cast<size_t>(place)];
    }
    return best;
  }
  static int32_t MatchLength(const std::span<const TokenId> tokens, const int32_t place, const int32_t last) {
    const int32_t most = std::min(kLongMatch, place + 1);
    int32_t length = 0;
    while (length < most && tokens[static_cast<size_t>(place - length)] == tokens[static_cast<size_t>(last - length)]) {
      ++length;
    }
    return length;
  }

  std::vector<int32_t> heads_;     // By hash: the last place with it, or none. A power of two, at most half full.
  std::vector<int32_t> previous_;  // By place: the one before with the same hash, or none.
  int32_t added_ = 0;              // Places so far.
};

class NgramDrafter final : public Drafter {
 public:
  void Propose(const std::span<DraftTurn> turns) override {
    for (DraftTurn& turn : turns) indexes_[turn.id].Propose(turn);
  }
  void Forget(const SequenceId id) override { indexes_.erase(id); }

 private:
  std::map<SequenceId, NgramIndex> indexes_;
};

}  // namespace

std::unique_ptr<Drafter> MakeNgramDrafter(const DrafterSetting& /*setting*/) {
  return std::make_unique<NgramDrafter>();
}

}  // namespace invar::engine
