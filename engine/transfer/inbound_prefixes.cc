// See inbound_prefixes.h.
#include "engine/transfer/inbound_prefixes.h"

#include <algorithm>

namespace invar::engine {

std::string_view NameOf(const TransferFault fault) {
  switch (fault) {
    case TransferFault::kUnreachable:
      return "unreachable";
    case TransferFault::kDenied:
      return "denied";
    case TransferFault::kRefused:
      return "refused";
    case TransferFault::kBusy:
      return "busy";
    case TransferFault::kFailed:
      return "failed";
    case TransferFault::kCut:
      return "cut";
    case TransferFault::kSilent:
      return "silent";
    case TransferFault::kLate:
      return "late";
    case TransferFault::kDamaged:
      return "damaged";
    case TransferFault::kProtocol:
      return "protocol";
    case TransferFault::kNoRoom:
      return "no_room";
    case TransferFault::kForgotten:
      return "forgotten";
  }
  return "";
}

InboundPrefixes::InboundPrefixes(const TransferOptions& options, PrefixSource* const source, cache::CacheManager& cache,
                                 const Clock& clock, std::function<void()> wake)
    : options_(options), source_(source), cache_(cache), clock_(clock), mailbox_(std::make_shared<Mailbox>()) {
  const MutexLock lock(mailbox_->mu);
  mailbox_->wake = std::move(wake);
}

InboundPrefixes::~InboundPrefixes() {
  for (const auto& [ticket, waiting] : waiting_) source_->Cancel(ticket);
  const MutexLock lock(mailbox_->mu);
  mailbox_->wake = nullptr;
}

// Half of the time a request has left: what does not come is run here, and that takes time too.
std::optional<int64_t> InboundPrefixes::Begin(const cache::PrefixQuery& query, const Request& request) {
  if (source_ == nullptr || !request.transfer.allowed || !query.read || !query.write) return std::nullopt;
  const int32_t end = query.resume_limit;
  const cache::PrefixMatch have = cache_.Lookup(query);
  if (end - have.state_tokens < std::max(1, options_.tokens_min)) return std::nullopt;
  const TimeNs now = clock_.Now();
  Waiting waiting{.scope = query.scope,
                  .tokens = {query.tokens.begin(), query.tokens.begin() + end},
                  .before = have.state_tokens,
                  .since = now,
                  .deadline = now + options_.timeout,
                  .flushes = cache_.flushes()};
  if (request.deadline != kNever) waiting.deadline = std::min(waiting.deadline, now + (request.deadline - now) / 2);
  PrefixWant want{.request_id = request.request_id,
                  .producer = request.transfer.producer,
                  .scope = query.scope,
                  .tokens = waiting.tokens,
                  .have_kv = have.kv_tokens,
                  .have_state = have.state_tokens,
                  .deadline = waiting.deadline};
  const int64_t ticket = ++last_ticket_;
  waiting_.emplace(ticket, std::move(waiting));
  ++stats_.begun;
  source_->Fetch(ticket, std::move(want), [mailbox = mailbox_, ticket](FetchedPrefix fetched) {
    const MutexLock lock(mailbox->mu);
    if (!mailbox->wake) return;
    mailbox->mail.emplace_back(ticket, std::move(fetched));
    mailbox->wake();
  });
  return ticket;
}

void InboundPrefixes::Cancel(const int64_t ticket) {
  if (waiting_.erase(ticket) == 0) return;
  ++stats_.cancelled;
  source_->Cancel(ticket);
}

std::vector<InboundPrefixes::Landed> InboundPrefixes::Take() {
  std::vector<Landed> landed;
  std::vector<std::pair<int64_t, FetchedPrefix>> mail;
  {
    const MutexLock lock(mailbox_->mu);
    mail.swap(mailbox_->mail);
  }
  const TimeNs now = clock_.Now();
  for (auto& [ticket, fetched] : mail) {
    const auto found = waiting_.find(ticket);
    if (found == waiting_.end()) continue;  // Cancelled, or too late.
    landed.push_back(Land(ticket, found->second, std::move(fetched), now));
    waiting_.erase(found);
  }
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (now < it->second.deadline) {
      ++it;
      continue;
    }
    source_->Cancel(it->first);
    landed.push_back(Land(it->first, it->second, {.fault = TransferFault::kLate}, now));
    it = waiting_.erase(it);
  }
  return landed;
}

TimeNs InboundPrefixes::next_deadline() const {
  TimeNs next = kNever;
  for (const auto& [ticket, waiting] : waiting_) next = std::min(next, waiting.deadline);
  return next;
}

InboundPrefixes::Landed InboundPrefixes::Land(const int64_t ticket, const Waiting& waiting, FetchedPrefix fetched,
                                              const TimeNs now) {
  Landed landed{.ticket = ticket, .before = waiting.before, .end = 0, .bytes = fetched.bytes};
  if (!fetched.fault.has_value() && cache_.flushes() != waiting.flushes) fetched.fault = TransferFault::kForgotten;
  if (!fetched.fault.has_value() && !cache_.Adopt(waiting.scope, waiting.tokens, fetched.image, now)) {
    fetched.fault = TransferFault::kNoRoom;
  }
  stats_.bytes += fetched.bytes;
  stats_.wait_ns += now - waiting.since;
  if (fetched.fault.has_value()) {
    ++stats_.faults[static_cast<size_t>(*fetched.fault)];
    return landed;
  }
  landed.end = fetched.image.end;
  ++stats_.landed;
  stats_.tokens += landed.end - landed.before;
  return landed;
}

}  // namespace invar::engine
