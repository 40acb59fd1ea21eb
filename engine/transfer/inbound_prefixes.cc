// See inbound_prefixes.h.
#include "engine/transfer/inbound_prefixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/transfer/scd_payload.h"
#include "engine/transfer_protocol.h"
#include "kernels/numerics.h"

namespace invar::engine {
namespace {

// The closest to answers of the consumer's own; of equals, the one of the fewest bytes.
size_t PointToAskFor(const TransferOptions& options) {
  const ScdProfile& profile = options.profile->profile;
  if (!options.point.empty()) return options.profile->FindPoint(options.point);
  size_t best = 0;
  const auto rank = [&](const size_t point) {
    return std::pair(profile.qualities[point].kl, ScdPayloadBytes(profile.shape, profile.points[point], kStreamTokens));
  };
  for (size_t point = 1; point < profile.points.size(); ++point) {
    if (rank(point) < rank(best)) best = point;
  }
  return best;
}

}  // namespace

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
    case TransferFault::kSlower:
      return "slower";
  }
  return "";
}

InboundPrefixes::InboundPrefixes(const TransferOptions& options, PrefixSource* const source, cache::CacheManager& cache,
                                 models::Model& model, const int64_t rows_max, const Clock& clock,
                                 const int32_t usable_ids, std::function<void()> wake)
    : options_(options),
      source_(source),
      cache_(cache),
      model_(model),
      rows_max_(rows_max),
      clock_(clock),
      usable_ids_(usable_ids),
      mailbox_(std::make_shared<Mailbox>()) {
  const MutexLock lock(mailbox_->mu);
  mailbox_->wake = std::move(wake);
}

InboundPrefixes::~InboundPrefixes() {
  for (const auto& [ticket, waiting] : waiting_) source_->Cancel(ticket);
  const MutexLock lock(mailbox_->mu);
  mailbox_->wake = nullptr;
}

std::string InboundPrefixes::BestProvenance(const cache::PrefixQuery& query, const Request& request) const {
  if (!request.transfer.coded || options_.profile == nullptr || !query.read) return query.scope.provenance;
  cache::PrefixQuery other = query;
  int32_t furthest = cache_.Lookup(query).state_tokens;
  std::string best = query.scope.provenance;
  for (size_t point = 0; point < options_.profile->profile.points.size(); ++point) {
    other.scope.provenance = ProvenanceOf(*options_.profile, point);
    const int32_t reach = cache_.Lookup(other).state_tokens;
    if (reach <= furthest) continue;
    furthest = reach;
    best = other.scope.provenance;
  }
  return best;
}

std::string InboundPrefixes::WordsOf(const std::string& provenance) const {
  if (provenance.empty()) return {};
  const ScdProfile& profile = options_.profile->profile;
  for (size_t point = 0; point < profile.points.size(); ++point) {
    if (provenance != ProvenanceOf(*options_.profile, point)) continue;
    return fmt::format("{} of {}: {}", profile.points[point].name, options_.profile->digest,
                       ToWords(profile.points[point]));
  }
  return provenance;
}

double InboundPrefixes::ExpectedSeconds(const size_t point, const int32_t tokens,
                                        const double tokens_per_second) const {
  if (tokens_per_second <= 0) return 0.0;
  const ScdProfile& profile = options_.profile->profile;
  const ScdWork work = ScdWorkOf(profile, model_.spec(), profile.points[point], tokens);
  const double flops_per_token = ScdPrefillFlops(model_.spec(), kStreamTokens) / kStreamTokens;
  return (work.recompute_flops + work.reconstruct_flops) / (tokens_per_second * flops_per_token);
}

TransferProblem InboundPrefixes::ProblemOf(const PrefixWant& want, const LocalLoad& load) const {
  const auto end = static_cast<int32_t>(want.tokens.size());
  const models::ModelSpec& spec = model_.spec();
  TransferProblem problem{.end = end,
                          .here = {.have = want.have_state, .tokens_per_second = load.tokens_per_second},
                          .size = {.have_kv = want.have_kv,
                                   .page_tokens = kernels::kPageTokens,
                                   .page_bytes = spec.page_bytes,
                                   .state_bytes = spec.state_bytes,
                                   .layers = spec.attention_layers + spec.recurrent_layers}};
  if (load.tokens_per_second > 0) {
    problem.here.queue_seconds = static_cast<double>(load.tokens_ahead) / load.tokens_per_second;
  }
  if (want.profile == nullptr) return problem;
  const ScdProfile& profile = want.profile->profile;
  for (size_t point = 0; point < profile.points.size(); ++point) {
    if (!options_.point.empty() && point != want.point) continue;
    CodedWay way{.point = point, .kl = profile.qualities[point].kl};
    for (size_t layer = 0; layer < profile.shape.layers.size(); ++layer) {
      const int64_t bytes = ScdLayerBytes(profile.shape, profile.points[point], layer, end);
      way.bytes += bytes;
      if (ScdRowSourceOf(profile.points[point], layer) == ScdRowSource::kNone) way.last_bytes += bytes;
    }
    way.rebuild_seconds = rebuild_factor_ * ExpectedSeconds(point, end, load.tokens_per_second);
    problem.codes.push_back(way);
  }
  return problem;
}

// Half of the time a request has left: what does not come is run here, and that takes time too.
std::optional<int64_t> InboundPrefixes::Begin(const cache::PrefixQuery& query, const Request& request,
                                              const LocalLoad& load) {
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
                  .flushes = cache_.flushes(query.scope.tenant)};
  if (request.deadline != kNever) waiting.deadline = std::min(waiting.deadline, now + (request.deadline - now) / 2);
  // Nothing that comes goes on from what was made of codes here: neither codes, which are of a whole prefix, nor what
  // one of equal weights has.
  const bool goes_on = query.scope.provenance.empty();
  waiting.scope.provenance.clear();
  PrefixWant want{.request_id = request.request_id,
                  .producer = request.transfer.producer,
                  .scope = waiting.scope,
                  .tokens = waiting.tokens,
                  .have_kv = goes_on ? have.kv_tokens : 0,
                  .have_state = goes_on ? have.state_tokens : 0,
                  .deadline = waiting.deadline};
  if (request.transfer.coded && options_.profile != nullptr) {
    want.profile = options_.profile;
    want.point = PointToAskFor(options_);
  }
  prefill_rate_ = load.tokens_per_second;
  if (options_.plans) {
    want.problem = ProblemOf(want, load);
    want.problem->here.have = have.state_tokens;
  }
  if (options_.runs_there) want.run = waiting.run = MakeRun(waiting.scope, request);
  const int64_t ticket = ++last_ticket_;
  waiting_.emplace(ticket, std::move(waiting));
  ++stats_.begun;
  // Locks: the mailbox's, then what `wake` takes (the Inbox's). A source is called with none of ours, and calls back
  // with none of its own.
  source_->Fetch(ticket, std::move(want), [mailbox = mailbox_, ticket](FetchedPrefix fetched) {
    const MutexLock lock(mailbox->mu);
    // Held while it wakes: nobody is woken who has gone.
    if (!mailbox->wake) return;
    mailbox->mail.emplace_back(ticket, std::move(fetched));
    mailbox->wake();
  });
  return ticket;
}

// What a producer can give of it: tokens, one after another, that are those of a run here.
std::shared_ptr<RemoteRun> InboundPrefixes::MakeRun(const cache::Scope& scope, const Request& request) const {
  if (request.approximation.has_value() || request.stopping.max_tokens == 0) return nullptr;
  VerifyOpenFrame open{.identity = {},
                       .scope = scope,
                       .prompt = request.prompt,
                       .sampling = request.sampling,
                       .stopping = request.stopping,
                       .output = request.output};
  open.stopping.stop.clear();
  RemoteRun::Options options{.usable_ids = usable_ids_, .wake = [mailbox = mailbox_] {
                               const MutexLock lock(mailbox->mu);
                               if (mailbox->wake) mailbox->wake();
                             }};
  if (!options_.view.compressor.empty()) {
    options.view = options_.view;
    // The model may be gone by then, and so may this.
    const kernels::AttentionShape& shape = model_.spec().attention.shape;
    const ViewShape of{.attention_layers = model_.spec().attention.page_offsets_bytes.size(),
                       .state_bytes = model_.spec().state_bytes,
                       .page = model_.backend()->KvPageShape(shape.kv_heads, shape.head_dim)};
    options.import = [of, wish = options_.view](PrefixView view) {
      return ImportPrefixView(std::move(view), of, wish);
    };
  }
  return std::make_shared<RemoteRun>(std::move(open), std::move(options));
}

RemoteRun* InboundPrefixes::RunOf(const int64_t ticket) const {
  const auto found = waiting_.find(ticket);
  return found == waiting_.end() ? nullptr : found->second.run.get();
}

void InboundPrefixes::Cancel(const int64_t ticket) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end()) return;
  rebuilding_ -= found->second.rebuild != nullptr ? 1 : 0;
  waiting_.erase(found);
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
    if (BeginRebuild(found->second, fetched)) continue;
    landed.push_back(Land(ticket, found->second, std::move(fetched), now));
    waiting_.erase(found);
  }
  for (auto it = waiting_.begin(); rebuilding_ > 0 && it != waiting_.end();) {
    std::optional<FetchedPrefix> made;
    if (it->second.rebuild != nullptr) made = GoOn(it->second);
    if (!made.has_value()) {
      ++it;
      continue;
    }
    landed.push_back(Land(it->first, it->second, *std::move(made), clock_.Now()));
    it = waiting_.erase(it);
  }
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    // What has come in time is made a prefix of, which is what it takes the time for.
    if (now < it->second.deadline || it->second.rebuild != nullptr) {
      ++it;
      continue;
    }
    source_->Cancel(it->first);
    landed.push_back(Land(it->first, it->second, {.fault = TransferFault::kLate}, now));
    it = waiting_.erase(it);
  }
  return landed;
}

bool InboundPrefixes::BeginRebuild(Waiting& waiting, FetchedPrefix& fetched) {
  if (fetched.fault.has_value() || fetched.coded.held == nullptr) return false;
  waiting.held = fetched.coded.held;
  waiting.point = fetched.coded.point;
  waiting.bytes = fetched.bytes;
  waiting.plan = fetched.plan;
  waiting.expected_s = ExpectedSeconds(waiting.point, fetched.coded.end, prefill_rate_);
  const std::span<const TokenId> tokens = std::span(waiting.tokens).first(static_cast<size_t>(fetched.coded.end));
  StatusOr<std::unique_ptr<ScdRebuild>> made = ScdRebuild::Make(model_, rows_max_, std::move(fetched.coded), tokens);
  if (!made.ok()) {
    fetched = {.fault = TransferFault::kNoRoom, .why = made.status().message(), .bytes = waiting.bytes};
    return false;
  }
  waiting.rebuild = *std::move(made);
  ++rebuilding_;
  return true;
}

std::optional<FetchedPrefix> InboundPrefixes::GoOn(Waiting& waiting) {
  const TimeNs begin = clock_.Now();
  const StatusOr<bool> done = waiting.rebuild->GoOn();
  const TimeNs took = clock_.Now() - begin;
  stats_.rebuild_ns += took;
  waiting.took += took;
  if (done.ok() && !*done) return std::nullopt;
  FetchedPrefix made{.fault = std::nullopt, .bytes = waiting.bytes, .plan = std::move(waiting.plan)};
  if (done.ok()) {
    if (waiting.expected_s > 0) {
      rebuild_factor_ = 0.5 * rebuild_factor_ + 0.5 * ToSeconds(waiting.took) / waiting.expected_s;
    }
    made.image = waiting.rebuild->Take();
    waiting.scope.provenance = ProvenanceOf(*waiting.held, waiting.point);
  } else {
    made.fault = TransferFault::kDamaged;
    made.why = done.status().message();
    waiting.held = nullptr;
  }
  waiting.rebuild.reset();
  --rebuilding_;
  return made;
}

TimeNs InboundPrefixes::next_deadline() const {
  if (rebuilding_ > 0) return clock_.Now();
  TimeNs next = kNever;
  for (const auto& [ticket, waiting] : waiting_) next = std::min(next, waiting.deadline);
  return next;
}

InboundPrefixes::Landed InboundPrefixes::Land(const int64_t ticket, const Waiting& waiting, FetchedPrefix fetched,
                                              const TimeNs now) {
  Landed landed{.ticket = ticket, .before = waiting.before, .end = 0, .bytes = fetched.bytes, .plan = fetched.plan};
  if (!fetched.fault.has_value() && cache_.flushes(waiting.scope.tenant) != waiting.flushes) {
    fetched.fault = TransferFault::kForgotten;
  }
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
  landed.provenance = waiting.scope.provenance;
  ++stats_.landed;
  stats_.tokens += landed.end - landed.before;
  if (waiting.held == nullptr) {
    landed.mode = "raw";
    return landed;
  }
  landed.mode = ModesOf(waiting.held->profile.points[waiting.point]);
  ++stats_.coded_landed;
  stats_.coded_tokens += landed.end - landed.before;
  stats_.coded_bytes += fetched.bytes;
  return landed;
}

}  // namespace invar::engine
