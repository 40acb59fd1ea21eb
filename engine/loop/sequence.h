// One request inside the engine: its tokens, its memory, its place in life.
//
//   kWaiting --admit--> kPrefill --all known tokens run--> kDecode --> kEnded
//      ^                   |                                  |
//      +-----preempt-------+----------------------------------+        (and kEnded from anywhere)
//
// Invariant: a waiting sequence holds no memory; a running one holds a lease with its state slot and the pages of its
// computed tokens. `tokens` only grows, so a preempted sequence goes on from what the cache kept, or runs them again,
// and comes to the same bits.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "cache/lease.h"
#include "engine/compressed/served_view.h"
#include "engine/loop/own_pages.h"
#include "engine/loop/round.h"
#include "engine/request.h"
#include "engine/sample/penalties.h"
#include "engine/sample/stop.h"
#include "engine/schedule/step.h"
#include "engine/slow/away_kv.h"
#include "engine/speculate/speculated_sequence.h"
#include "engine/transfer/inbound_prefixes.h"
#include "engine/transfer/live_export.h"
#include "models/text.h"

namespace invar::engine {

enum class SequenceState { kWaiting, kPrefill, kDecode, kEnded };

class Sequence final : public SpeculatedSequence {
 public:
  // `output_limit`: tokens it may generate. `tokenizer` may be null. `view`: of an approximate one, else null.
  // `live_export`: into `sink`, of one that gives its prefix away, else null. Requires: the request is valid.
  Sequence(SequenceId id, Request request, std::shared_ptr<EventSink> sink, int32_t output_limit,
           const models::Tokenizer* tokenizer, std::unique_ptr<ServedView> view,
           std::unique_ptr<LiveExport> live_export, TimeNs now);

  SequenceId id() const override { return id_; }
  const Request& request() const override { return request_; }
  SequenceState state() const { return state_; }
  bool running() const { return state_ == SequenceState::kPrefill || state_ == SequenceState::kDecode; }
  const std::vector<TokenId>& tokens() const override { return tokens_; }
  int32_t prompt_tokens() const { return static_cast<int32_t>(request_.prompt.size()); }
  int32_t output_tokens() const override { return static_cast<int32_t>(tokens_.size()) - prompt_tokens(); }
  int32_t output_left() const override { return output_limit_ - output_tokens(); }
  int32_t computed() const override { return computed_; }
  int32_t preemptions() const { return preemptions_; }
  // What it came to the cache with; null: it was never preempted.
  const cache::PrefixEntry* entry() const { return entry_.has_value() ? &*entry_ : nullptr; }
  const TokenCounts& counts() const override { return counts_; }
  // First position whose logits row is wanted.
  int32_t logits_from() const;

  // Memory. A lease is of running sequences only.
  cache::PrefixLease& lease() { return *lease_; }
  const cache::PrefixLease& lease() const { return *lease_; }
  bool has_lease() const { return lease_.has_value(); }
  std::span<const PageId> page_ids() const override { return lease_->pages().ids(); }
  SlotId slot() const override { return lease_->slot(); }
  // Pages held, and those of them that no other sequence holds; 0 without a lease.
  int32_t pages() const { return has_lease() ? lease_->pages().size() : 0; }
  int32_t own_pages(const cache::PagePool& pool) { return has_lease() ? own_pages_.Count(lease_->pages(), pool) : 0; }
  // Whether tiers were asked for its prefix since it began to wait; awaits_prefix() while they are at it.
  bool asked_tiers() const { return asked_tiers_; }
  // Whether an instance was asked, once in its life.
  bool asked_peers() const { return asked_peers_; }
  const std::optional<int64_t>& peer_ticket() const { return peer_ticket_; }
  void AskedPeers(const std::optional<int64_t> ticket) {
    asked_peers_ = true;
    peer_ticket_ = ticket;
  }
  // Must not be admitted yet: what it lacks is on its way.
  bool awaits_prefix() const { return ticket_.has_value() || peer_ticket_.has_value(); }
  void AskedTiers(const std::optional<int64_t> ticket) {
    asked_tiers_ = true;
    ticket_ = ticket;
  }
  // The ticket may be another's.
  void Arrived(int64_t ticket, std::string_view tier);
  void Landed(const InboundPrefixes::Landed& landed);
  // Of what it reads and leaves in the cache; exact ones have none. It stays once a sequence was admitted.
  const std::string& provenance() const { return provenance_; }
  void SetProvenance(std::string provenance) {
    if (!admitted_at_.has_value()) provenance_ = std::move(provenance);
  }
  std::span<const TokenId> computed_tokens() const { return std::span(tokens_).first(computed_); }

  // Null where it computes on full KV to its end.
  ServedView* view() { return view_.get(); }
  const ServedView* view() const { return view_.get(); }

  // --- The slow tier ---
  // Null where all its KV lies in the fast tier, and nothing of it is on its way out.
  AwayKv* away() { return away_.get(); }
  const AwayKv* away() const override { return away_.get(); }
  void SetAway(std::unique_ptr<AwayKv> away) {
    round_ = {};
    away_ = std::move(away);
  }
  // Most pages that it holds while its prompt is run: as it goes, those before them move out. INT32_MAX: all stay.
  int32_t pages_max() const { return pages_max_; }
  void SetPagesMax(const int32_t pages) { pages_max_ = pages; }
  bool moves_out_in_prefill() const { return state_ == SequenceState::kPrefill && pages_max_ != INT32_MAX; }
  // Of one that is away.
  Round& round() { return round_; }
  const Round& round() const { return round_; }
  // Whether it stands aside in this step: its KV has no turn to come.
  bool stands_aside() const { return stands_aside_; }
  void SetStandsAside(const bool aside) { stands_aside_ = aside; }
  void AddStreamed(const int64_t bytes) { streamed_bytes_ += bytes; }
  int64_t streamed_bytes() const { return streamed_bytes_; }
  int32_t away_pages() const override { return away_ == nullptr ? 0 : away_->pages(); }

  // Computed positions that take no places in its pages.
  int32_t saved_tokens() const;

  // --- Speculation ---
  // Of a decoding sequence only.
  std::span<const TokenId> draft() const override { return draft_; }
  void SetDraft(std::vector<TokenId> draft) override { draft_ = std::move(draft); }
  void DropDraft() { draft_.clear(); }

  // --- Transitions; each checks that it is legal ---
  // Goes on where the lease's match ends. Effects: pushes Started at the first admission of its life, where no token
  // came before.
  // `made_of_codes`: its provenance in words.
  void Admit(cache::PrefixLease lease, std::string made_of_codes, TimeNs now);
  // Back to waiting. The memory goes to the caller, who forgets what was computed with it once it is put away.
  cache::PrefixLease Preempt();
  void ForgetComputed() {
    computed_ = 0;
    round_ = {};
    away_.reset();
    pages_max_ = INT32_MAX;
    stands_aside_ = false;
    if (view_ != nullptr) view_->Forget();
  }
  // `length` more tokens are in the cache.
  void Advance(int32_t length);
  // A prompt position's score, in order.
  void AddPromptLogprob(TokenLogprob logprob) { prompt_logprobs_.push_back(std::move(logprob)); }
  // Takes a sampled token, pushes its Delta. True: the output has ended, call Finish.
  bool Accept(TokenId token, std::optional<TokenLogprob> logprob, TimeNs now);
  // Alike one that was sampled elsewhere, while it waits; the first pushes Started.
  bool AcceptRemote(TokenId token, std::optional<TokenLogprob> logprob, TimeNs now);
  // Of one that gives its prefix away; else null.
  LiveExport* live_export() { return live_export_.get(); }
  const LiveExport* live_export() const { return live_export_.get(); }
  // Its memory, before Finish or Fail, to keep what is worth keeping.
  cache::PrefixLease TakeLease();
  // Ends it with Finished / Failed and gives its memory back. Exactly one of them, once.
  void Finish(int64_t kv_bytes, std::optional<SpeculationReport> speculation, std::optional<ViewReport> view,
              TimeNs now);
  void Fail(Status status);

  FinishReason finish_reason() const { return finish_reason_; }

  // --- The reader ---
  bool paused() const override { return paused_since_.has_value(); }
  std::optional<TimeNs> paused_since() const { return paused_since_; }
  void Unpause() { paused_since_.reset(); }

 private:
  void MoveTo(SequenceState next);
  void Push(TokenEvent event, TimeNs now);
  void Start(TimeNs now);
  bool IsStopToken(TokenId token) const;
  // Text of `token` that became certain; sets the match.
  std::string TextOf(TokenId token, bool is_stop, bool armed);

  // Set at construction.
  const SequenceId id_;
  const Request request_;
  const std::shared_ptr<EventSink> sink_;  // Shared: the RPC and the engine really end independently.
  const int32_t output_limit_;
  const TimeNs submitted_at_;

  SequenceState state_ = SequenceState::kWaiting;
  std::vector<TokenId> tokens_;  // Prompt, then output.
  std::vector<TokenId> draft_;
  int32_t computed_ = 0;
  int32_t preemptions_ = 0;
  std::optional<cache::PrefixEntry> entry_;  // From its last preemption.
  std::optional<cache::PrefixLease> lease_;
  OwnPages own_pages_;
  const std::unique_ptr<ServedView> view_;
  std::unique_ptr<AwayKv> away_;
  int32_t pages_max_ = INT32_MAX;
  Round round_;  // Behind what it streams.
  bool stands_aside_ = false;
  int64_t streamed_bytes_ = 0;
  PrefixReuse reuse_;              // Of the first admission; at the end with the tokens that were really run.
  int32_t prompt_tokens_run_ = 0;  // More than the prompt has where a preemption made some run again.
  bool asked_tiers_ = false;
  std::optional<int64_t> ticket_;
  bool asked_peers_ = false;
  std::optional<int64_t> peer_ticket_;
  InboundPrefixes::Landed landed_;
  int32_t remote_tokens_ = 0;  // Of its output.
  std::string provenance_;
  const std::unique_ptr<LiveExport> live_export_;  // Into sink_.

  // Output.
  TokenCounts counts_;
  StopMatcher stop_;
  std::optional<models::Detokenizer> detokenizer_;
  std::vector<TokenLogprob> prompt_logprobs_;
  FinishReason finish_reason_ = FinishReason::kLength;
  std::variant<std::monostate, std::string, TokenId> matched_;

  // Times of first occurrence.
  std::optional<TimeNs> started_at_;
  std::optional<TimeNs> admitted_at_;
  std::optional<TimeNs> first_token_at_;
  std::optional<TimeNs> paused_since_;
};

// Whether a token of the output is sampled from the last rows of `span`, which the step ran of `sequence`.
inline bool Samples(const Sequence& sequence, const Span& span) {
  const bool ends_in_last = span.first + span.length - span.drafted == static_cast<int32_t>(sequence.tokens().size());
  return ends_in_last && sequence.output_left() > 0 && span.logits_rows > span.drafted;
}

}  // namespace invar::engine
