// What a sequence has computed is put away before its lease goes: it may come back, and others may share it.
#include "engine/loop/live_sequences.h"

#include <utility>

#include "base/check.h"
#include "engine/loop/bind_model.h"
#include "kernels/numerics.h"

namespace invar::engine {

Sequence* LiveSequences::FindOrNull(const SequenceId id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second.get();
}

Sequence& LiveSequences::Find(const SequenceId id) {
  Sequence* const sequence = FindOrNull(id);
  Check(sequence != nullptr, "a planned sequence is alive", id);
  return *sequence;
}

void LiveSequences::Add(Submission submission, const int32_t output_limit, const models::Tokenizer* const tokenizer) {
  ++stats_.submitted;
  shares_.Arrive(submission.request.tenant);
  std::unique_ptr<ServedView> view;
  if (const Request& request = submission.request; request.approximation.has_value()) {
    view = std::make_unique<ServedView>(model_, *request.approximation, static_cast<int32_t>(request.prompt.size()));
  }
  std::unique_ptr<LiveExport> live_export = MakeLiveExport(submission.request, model_, step_tokens_, *submission.sink);
  auto sequence =
      std::make_unique<Sequence>(submission.id, std::move(submission.request), std::move(submission.sink), output_limit,
                                 tokenizer, std::move(view), std::move(live_export), submission.at);
  live_.emplace(submission.id, std::move(sequence));
}

void LiveSequences::Admit(Sequence& sequence, const cache::PrefixQuery& query) {
  ++moves_;
  if (sequence.preemptions() == 0) {
    stats_.prompt_tokens += sequence.prompt_tokens();
    Charge(sequence, sequence.prompt_tokens());
  }
  sequence.Admit(cache_.Acquire(query, clock_.Now()), inbound_.WordsOf(sequence.provenance()), clock_.Now());
}

// What it has computed stays in the cache while memory allows: it goes on from there, or runs again what was evicted.
void LiveSequences::Preempt(Sequence& sequence) {
  stats_.preemptions_in_prefill += sequence.state() == SequenceState::kPrefill ? 1 : 0;
  ++stats_.preemptions;
  ++moves_;
  speculator_.Dropped(sequence);
  cache::PrefixLease lease = sequence.Preempt();
  cache_.Release(std::move(lease), sequence.computed_tokens(), cache::CheckpointKind::kPreempted, clock_.Now());
  sequence.ForgetComputed();
}

std::optional<ViewReport> LiveSequences::ReportView(const Sequence& sequence) const {
  if (sequence.view() == nullptr) return std::nullopt;
  if (!sequence.view()->serves()) return ViewReport{};
  return ViewReport{.compressor = sequence.view()->compressor(),
                    .bytes = sequence.view()->bytes() + sequence.pages() * cache_.memory().pages().block_bytes() +
                             model_.spec().state_bytes};
}

void LiveSequences::Export(Sequence& sequence) {
  if (sequence.live_export() == nullptr) return;
  sequence.live_export()->Ran(PlaceOf(cache_.memory(), sequence.lease()), sequence.computed());
}

void LiveSequences::Finish(Sequence& sequence, const int64_t kv_bytes) {
  std::optional<ViewReport> view = ReportView(sequence);
  if (sequence.has_lease()) {
    cache_.Release(sequence.TakeLease(), sequence.computed_tokens(), cache::CheckpointKind::kEnd, clock_.Now());
  }
  // One that ended by tokens from elsewhere waits for its prefix still.
  if (sequence.peer_ticket().has_value()) inbound_.Cancel(*sequence.peer_ticket());
  std::optional<SpeculationReport> speculation = speculator_.End(sequence);
  if (speculation.has_value()) {
    speculation->slow_tier_bytes = sequence.away_pages() * model_.spec().page_bytes;
    speculation->slow_tier_bytes_read = sequence.streamed_bytes();
  }
  sequence.Finish(kv_bytes, std::move(speculation), std::move(view), clock_.Now());
  ++(sequence.finish_reason() == FinishReason::kStop ? stats_.finished_stop : stats_.finished_length);
  shares_.Leave(sequence.request().tenant);
  live_.erase(sequence.id());
}

// What a cancelled request has computed is right, and its caller may well come back with it.
void LiveSequences::Fail(Sequence& sequence, Status status, int64_t& counter) {
  if (sequence.has_lease() && status.code() != StatusCode::kInternal) {
    cache_.Release(sequence.TakeLease(), sequence.computed_tokens(), cache::CheckpointKind::kEnd, clock_.Now());
  }
  if (sequence.peer_ticket().has_value()) inbound_.Cancel(*sequence.peer_ticket());
  speculator_.End(sequence);
  sequence.Fail(std::move(status));
  ++counter;
  shares_.Leave(sequence.request().tenant);
  live_.erase(sequence.id());
}

void LiveSequences::CheckIntegrity() const {
  for (const auto& [id, sequence] : live_) {
    Check(sequence->state() != SequenceState::kEnded, "an ended sequence is gone", id);
    Check(sequence->has_lease() == sequence->running(), "running sequences hold memory, others do not", id);
    Check(sequence->computed() < static_cast<int32_t>(sequence->tokens().size()), "a live sequence has work left", id);
  }
  Check(shares_.empty() == live_.empty(), "tenants are live as long as their requests");
  const int64_t ended =
      stats_.finished_stop + stats_.finished_length + stats_.cancelled + stats_.expired + stats_.failed;
  Check(stats_.submitted == ended + static_cast<int64_t>(live_.size()), "every request is counted once",
        stats_.submitted);
}

}  // namespace invar::engine
