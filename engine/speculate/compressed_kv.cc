// Drafts by the model itself on a compressed view of the sequence's KV (VeriCache, arXiv 2605.17613): cheaper to read
// than the full KV, which verifies. With a view that keeps everything, every guess is right.
//
//   full KV        [0, t)  in the sequence's pages: only forwards of the engine write it
//   view           [0, t)  bodies here, tail in pages of the drafter
//   of one draft   token t, guess, guess, ...: rows behind the tail, states in a slot of the drafter
//
// Nothing made while drafting outlives the draft: above the first attention layer its rows and states are approximate.
// The state begins each draft as a copy of the verified one, rows of the view come from the full KV once they are
// verified, and the next draft writes over those of the last.
//
// Views live in memory of drafters alone, so a draft never takes room from anybody's full KV. A sequence that finds
// none goes without, until there is as much as it lacked. Views of sequences that are not asked for drafts any more
// (preempted, paused, or where drafts do not pay) go first.
//
// On two levels another drafter guesses first, and one forward on the view says how much of that stands, as the engine
// does with drafts and the full KV: so the draft is the one that the view alone gives, in fewer forwards.
#include "engine/compressed/compressed_kv.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/compressor.h"
#include "engine/speculate/kinds.h"
#include "kernels/numerics.h"
#include "models/state_log_memory.h"

namespace invar::engine {
namespace {

// Calls without a turn until a sequence may lose its view to another: as long as making it anew takes, about.
constexpr int64_t kIdleCalls = 64;

// What is kept of one sequence. Memory is held by those with a view only.
struct Drafting {
  Drafting(const Drafter& drafter, const models::Model& model, const DraftTurn& turn)
      : drafter(drafter),
        compressor(cache::MakeCompressor(turn.compressor).value()),
        budget(cache::Budget::ShareOrAll(turn.kv_budget)),
        model(model) {}

  void Drop() {
    kv.reset();
    bodies.reset();
    state.reset();
    tail.clear();
    tail_ids.clear();
  }
  int64_t bytes() const {
    int64_t sum = bodies.has_value() ? bodies->bytes() : 0;
    for (const cache::PageRef& page : tail) sum += std::ssize(page.bytes());
    return state.has_value() ? sum + std::ssize(state->bytes()) : sum;
  }

  const Drafter& drafter;  // Of the sequence.
  const std::unique_ptr<cache::Compressor> compressor;
  const cache::Budget budget;
  const models::Model& model;
  std::optional<CompressedKv> kv;
  std::optional<cache::ByteClaim> bodies;
  std::optional<cache::SlotRef> state;  // None of models without states.
  std::vector<cache::PageRef> tail;
  std::vector<PageId> tail_ids;
  int32_t settled = 0;     // Tokens at the last upkeep.
  int32_t room = 0;        // Rows that a draft may write.
  int64_t lacked = 0;      // Bytes that must be free before it is tried again.
  int64_t last_asked = 0;  // Call of Propose.
};

// Of a forward's guesses.
struct Logs {
  const Drafter& drafter;
  cache::ByteClaim claim;
  models::StateLogMemory memory;
};

}  // namespace

struct DraftViews {
  std::map<SequenceId, Drafting> of;
  std::optional<Logs> logs;
  int64_t calls = 0;  // Of Propose.
};
std::shared_ptr<DraftViews> MakeDraftViews() { return std::make_shared<DraftViews>(); }

namespace {

class CompressedKvDrafter final : public Drafter {
 public:
  // `first`: guesses before the view does, null: nobody.
  CompressedKvDrafter(const DrafterSetting& setting, std::unique_ptr<Drafter> first)
      : model_(setting.model),
        sequences_(setting.memory),
        rows_max_(static_cast<size_t>(setting.rows_max)),
        own_(*setting.own),
        first_(std::move(first)),
        views_(setting.views) {}

  bool IsReady(const SequenceId id) const override {
    const auto found = drafting_.find(id);
    return found != drafting_.end() && found->second.kv.has_value();
  }

  int32_t ViewTokens(const SequenceId id) const override {
    return IsReady(id) ? drafting_.find(id)->second.kv->tokens() : 0;
  }

  int64_t ViewBytes(const std::string_view compressor, const std::optional<float>& kv_budget,
                    const int32_t tokens) const override {
    return LeastBytes(*cache::MakeCompressor(compressor).value(), cache::Budget::ShareOrAll(kv_budget), tokens);
  }

  void Prepare(DraftTurn& turn) override {
    const auto computed = static_cast<int32_t>(turn.tokens.size()) - 1;
    // Beside a draft there is no time to read what is away: a view that was lost is made again before one.
    const bool is_lost = !IsReady(turn.id) && ((turn.away_pages > 0 && turn.away == nullptr) || !turn.draft.empty());
    if (computed == 0 || is_lost) return;
    Drafting& drafting = drafting_.try_emplace(turn.id, *this, model_, turn).first->second;
    drafting.last_asked = calls_;
    if (!turn.draft.empty()) return;  // All stands as its last guess left it.
    if (drafting.kv.has_value() ? Follow(drafting, turn, computed) : Make(drafting, turn, computed)) return;
    if (!turn.failure.ok()) return drafting.Drop();
    turn.no_memory = true;
    drafting.lacked = std::max(drafting.bytes() + own_.pages().block_bytes(), drafting.lacked);
    drafting.Drop();
  }

  void Propose(std::span<DraftTurn> turns) override {
    ++calls_;
    for (; !turns.empty(); turns = turns.subspan(std::min(rows_max_, turns.size()))) {
      ProposeTogether(turns.first(std::min(rows_max_, turns.size())));
    }
  }

  void Forget(const SequenceId id) override {
    drafting_.erase(id);
    if (first_ != nullptr) first_->Forget(id);
    if (drafting_.empty()) logs_.reset();
  }

  int64_t held_bytes() const override {
    int64_t bytes = logs_.has_value() && &logs_->drafter == this ? logs_->claim.bytes() : 0;
    for (const auto& [id, drafting] : drafting_) {
      if (&drafting.drafter != this) continue;
      bytes += drafting.bytes();
      Check(drafting.kv.has_value() == drafting.bodies.has_value(), "a view that is there is paid for", id);
    }
    return bytes;
  }

 private:
  struct Going {
    DraftTurn* turn = nullptr;
    Drafting* drafting = nullptr;
    int32_t length = 0;
    std::vector<TokenId> tokens;  // Run next, from `position` on: one that is chosen, then guesses at what follows.
    Position position;
    std::span<std::byte> log = {};  // Of models with states, where there are guesses.
  };

  // --- Views ---
  PageRows FullKv(const DraftTurn& turn) const {
    return {sequences_.pages().arena(), turn.pages, turn.away_pages * kernels::kPageTokens};
  }
  PageRows Tail(const Drafting& drafting) const { return {own_.pages().arena(), drafting.tail_ids}; }

  static ReadLayer LayersOf(const AwayKv& away) {
    return [&away](const size_t layer, BlockBuffer& into) {
      BlockBuffer bounce;
      return away.Part(layer, into, bounce);
    };
  }

  // False: there is no memory for it, or what is away could not be read.
  bool Make(Drafting& drafting, DraftTurn& turn, const int32_t computed) {
    const int64_t least = std::max(drafting.lacked, LeastBytes(*drafting.compressor, drafting.budget, computed));
    if (least > own_.budget_bytes()) return false;
    while (own_.used_bytes() + least > own_.budget_bytes()) {
      if (!MakeRoom(drafting)) return false;
    }
    drafting.kv.emplace(model_, *drafting.compressor, drafting.budget);
    if (turn.away_pages == 0) {
      drafting.kv->Make(FullKv(turn), computed);
    } else {
      turn.failure = drafting.kv->MakeBehind(LayersOf(*turn.away), FullKv(turn), computed);
      if (!turn.failure.ok()) return false;
    }
    drafting.settled = computed;
    drafting.lacked = 0;
    if (!ClaimBodies(drafting) || !TakeState(drafting) || !TakeRoom(drafting, std::max(turn.most, turn.room)))
      return false;
    drafting.kv->WriteTail(0, Tail(drafting));
    return true;
  }

  // Takes in what was verified since the last turn.
  bool Follow(Drafting& drafting, const DraftTurn& turn, const int32_t computed) {
    CompressedKv& kv = *drafting.kv;
    const int32_t rows = computed - kv.tokens();
    Check(rows >= 0, "known tokens only grow", kv.tokens(), computed);
    kv.TakeFull(FullKv(turn), rows);
    const bool upkeep = computed - drafting.settled >= CompressedKv::kUpkeepTokens;
    if (upkeep) {
      kv.Settle();
      drafting.settled = computed;
      if (!ClaimBodies(drafting)) return false;
    }
    if (!TakeRoom(drafting, std::max(turn.most, turn.room))) return false;
    if (upkeep) {
      kv.WriteTail(0, Tail(drafting));
    } else {
      kv.WriteTailEnd(rows, Tail(drafting));
    }
    return true;
  }

  // What a view of so many tokens takes at least: asked before the work of making it.
  int64_t LeastBytes(const cache::Compressor& compressor, const cache::Budget& budget, const int32_t tokens) const {
    const kernels::AttentionShape& shape = model_.spec().attention.shape;
    const int64_t body =
        compressor.BodyBytes(model_.backend()->KvPageShape(shape.kv_heads, shape.head_dim), tokens, budget);
    return body * std::ssize(model_.spec().attention.page_offsets_bytes) + own_.pages().block_bytes() +
           own_.slots().block_bytes();
  }

  // Bodies are there before they are paid for: how large they get, their making says.
  bool ClaimBodies(Drafting& drafting) {
    drafting.bodies.reset();
    const int64_t bytes = drafting.kv->body_bytes();
    drafting.bodies = Find(drafting, [&] { return own_.Reserve(bytes); });
    if (!drafting.bodies.has_value()) drafting.lacked = bytes + own_.slots().block_bytes();
    return drafting.bodies.has_value();
  }

  bool TakeState(Drafting& drafting) {
    if (model_.spec().state_bytes == 0) return true;
    drafting.state = Find(drafting, [&] { return own_.TakeSlot(cache::Fill::kNone); });
    return drafting.state.has_value();
  }

  // Pages for the tail and `most` rows behind it, or for as many as there is memory for. False: for none.
  bool TakeRoom(Drafting& drafting, const int32_t most) {
    const int32_t tail = drafting.kv->tail_slots();
    const auto wanted = static_cast<size_t>(cache::StateShape::PagesFor(int64_t{tail} + most));
    while (drafting.tail.size() > wanted) {
      drafting.tail.pop_back();
      drafting.tail_ids.pop_back();
    }
    while (drafting.tail.size() < wanted) {
      std::optional<cache::PageRef> page = Find(drafting, [&] { return own_.TakePage(cache::Fill::kZero); });
      if (!page.has_value()) break;
      drafting.tail_ids.push_back(page->id());
      drafting.tail.push_back(*std::move(page));
    }
    drafting.room = static_cast<int32_t>(drafting.tail.size()) * kernels::kPageTokens - tail;
    return drafting.room > 0;
  }

  // What `take` gives, once what others do not use has made room for it if need be.
  template <typename Take>
  std::invoke_result_t<Take> Find(const Drafting& taker, const Take& take) {
    auto taken = take();
    while (!taken.has_value() && MakeRoom(taker)) taken = take();
    return taken;
  }

  // A view that nobody asked for, of whichever drafter; then the logs: guesses save less than a view does.
  bool MakeRoom(const Drafting& spared) {
    Drafting* idlest = nullptr;
    for (auto& [id, drafting] : drafting_) {
      const bool may_go = &drafting != &spared && drafting.kv.has_value() && calls_ - drafting.last_asked >= kIdleCalls;
      if (may_go && (idlest == nullptr || drafting.last_asked < idlest->last_asked)) idlest = &drafting;
    }
    const bool found = idlest != nullptr || logs_.has_value();
    if (idlest != nullptr) {
      idlest->Drop();
    } else {
      logs_.reset();
    }
    return found;
  }

  // --- Drafts: forward by forward, all turns that want more in one ---
  void ProposeTogether(const std::span<DraftTurn> turns) {
    going_.clear();
    for (DraftTurn& turn : turns) {
      const auto found = drafting_.find(turn.id);
      if (found == drafting_.end() || !found->second.kv.has_value()) continue;
      Drafting& drafting = found->second;
      const bool begins = turn.draft.empty();
      const auto drafted = static_cast<int32_t>(turn.draft.size());
      const int32_t length = std::min(turn.most, drafting.room);
      if (drafted >= length) continue;
      if (begins && drafting.state.has_value()) drafting.state->CopyFrom(VerifiedState(turn));
      going_.push_back({.turn = &turn,
                        .drafting = &drafting,
                        .length = length,
                        .tokens = {begins ? turn.tokens.back() : turn.draft.back()},
                        .position = Position(static_cast<int32_t>(turn.tokens.size()) + drafted - 1)});
    }
    if (first_ != nullptr) GuessFirst();
    while (!going_.empty()) {
      const kernels::ConstF32View logits = Forward();
      advances_.clear();
      size_t kept = 0;
      int64_t row = 0;
      for (size_t i = 0; i < going_.size(); ++i) {
        Going& g = going_[i];
        const int64_t next_row = row + std::ssize(g.tokens);
        if (Choose(g, logits, row) && kept++ != i) going_[kept - 1] = std::move(g);
        row = next_row;
      }
      going_.resize(kept);
      if (!advances_.empty()) model_.Advance(OwnMemory(), advances_);
    }
  }

  // From the rows of what has just run: the next row counts while the token chosen is the one it was run with. False:
  // the draft has ended.
  bool Choose(Going& g, const kernels::ConstF32View& logits, const int64_t first_row) {
    std::vector<TokenId>& draft = g.turn->draft;
    std::optional<TokenId> token;
    int32_t rows = 0;
    do {
      token = g.turn->sampler->Next({logits.row(first_row + rows), static_cast<size_t>(logits.cols)});
      ++rows;
      if (token.has_value()) draft.push_back(*token);
    } while (token.has_value() && rows < std::ssize(g.tokens) && *token == g.tokens[static_cast<size_t>(rows)]);
    if (!token.has_value()) return false;
    if (!g.log.empty()) {
      advances_.push_back({.state = g.drafting->state->id(), .first = g.position, .log = g.log, .rows = rows});
    }
    g.tokens = {*token};
    g.position = Position(g.position.value() + rows);
    g.log = {};
    return static_cast<int32_t>(draft.size()) < g.length;
  }

  // Adds guesses to what is run first, as many as the forward and memory for logs have room for.
  void GuessFirst() {
    const models::ModelSpec& spec = model_.spec();
    const auto rows = static_cast<int32_t>(rows_max_ / std::max<size_t>(1, going_.size()));
    int64_t log_bytes = 0;
    for (Going& g : going_) {
      if (!g.turn->draft.empty()) continue;  // Looked up when the round began.
      DraftTurn turn = *g.turn;
      turn.most = std::min(rows, g.length) - 1;
      if (turn.most < 1) continue;
      first_->Propose({&turn, 1});
      g.tokens.insert(g.tokens.end(), turn.draft.begin(), turn.draft.end());
      if (g.tokens.size() > 1) log_bytes += spec.StateLogBytes(std::ssize(g.tokens));
    }
    if (spec.state_bytes == 0 || log_bytes == 0) return;
    const bool room = TakeLogs(log_bytes);
    std::byte* log = room ? logs_->memory.get() : nullptr;
    for (Going& g : going_) {
      if (!room) g.tokens.resize(1);
      if (g.tokens.size() == 1) continue;
      g.log = {log, static_cast<size_t>(spec.StateLogBytes(std::ssize(g.tokens)))};
      log += g.log.size();
    }
  }

  bool TakeLogs(const int64_t bytes) {
    if (logs_.has_value() && logs_->claim.bytes() >= bytes) return true;
    logs_.reset();
    std::optional<cache::ByteClaim> claim = own_.Reserve(bytes);
    if (!claim.has_value()) return false;
    logs_.emplace(Logs{*this, *std::move(claim), models::MakeStateLogMemory(bytes)});
    return true;
  }

  kernels::ConstF32View Forward() {
    spans_.clear();
    for (const Going& g : going_) {
      spans_.push_back({.tokens = g.tokens,
                        .first = g.position,
                        .pages = g.drafting->tail_ids,
                        .state = g.drafting->state.has_value() ? g.drafting->state->id() : SlotId(),
                        .logits_rows = static_cast<int32_t>(g.tokens.size()),
                        .view = g.drafting->kv->At(g.position),
                        .state_log = g.log});
    }
    return model_.Forward(OwnMemory(), spans_);
  }

  models::SequenceMemory OwnMemory() const { return {.pages = own_.pages().arena(), .states = own_.slots().arena()}; }

  std::span<const std::byte> VerifiedState(const DraftTurn& turn) const {
    const int64_t bytes = sequences_.slots().block_bytes();
    return {sequences_.slots().arena() + turn.state.value() * bytes, static_cast<size_t>(bytes)};
  }

  // Set at construction.
  models::Model& model_;
  const cache::CacheMemory& sequences_;
  const size_t rows_max_;
  cache::CacheMemory& own_;
  const std::unique_ptr<Drafter> first_;

  // Shared with all drafters on this memory, so that each can make room in what another left.
  const std::shared_ptr<DraftViews> views_;
  std::map<SequenceId, Drafting>& drafting_ = views_->of;
  std::optional<Logs>& logs_ = views_->logs;
  int64_t& calls_ = views_->calls;
  // Of the call under way, kept for their memory.
  std::vector<Going> going_;
  std::vector<models::ForwardSpan> spans_;
  std::vector<models::StateAdvance> advances_;
};

}  // namespace

std::unique_ptr<Drafter> MakeCompressedKvDrafter(const DrafterSetting& setting) {
  return std::make_unique<CompressedKvDrafter>(setting, nullptr);
}

std::unique_ptr<Drafter> MakeNgramCompressedKvDrafter(const DrafterSetting& setting) {
  return std::make_unique<CompressedKvDrafter>(setting, MakeNgramDrafter(setting));
}

}  // namespace invar::engine
