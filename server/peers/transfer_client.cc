// See transfer_client.h.
#include "server/peers/transfer_client.h"

#include <fmt/format.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "config/transfer.h"
#include "engine/prefix_receiver.h"
#include "invar/v1/transfer.grpc.pb.h"
#include "server/peers/link_meter.h"
#include "server/peers/run_call.h"
#include "server/wire/translate_transfer.h"

namespace invar::server {

using engine::FetchedPrefix;
using engine::TransferFault;

namespace {

constexpr int64_t kPemBytesMax = int64_t{1} << 20;
// Who was told that we gave up answers within this, or is cut: a round trip and what is on its way, while a thread of
// ours is bound.
constexpr TimeNs kAbortPatience = engine::kTransferBeatNs;
constexpr const char kUnwanted[] = "nobody waits for it any more";
// A producer that came back is found again within this.
constexpr int kReconnectMsMax = 2'000;

// What was read of the file that `field` names.
StatusOr<std::string> Named(const char* const field, StatusOr<std::string> text) {
  if (text.ok()) return text;
  return Status(text.status().code(), fmt::format("{}: {}", field, text.status().message()), field);
}

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const config::Config::Transfer& config) {
  if (!config.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  for (const auto& [path, field, text] :
       {std::tuple(&config.tls_ca, "transfer.tls_ca", &options.pem_root_certs),
        std::tuple(&config.tls_certificate, "transfer.tls_certificate", &options.pem_cert_chain),
        std::tuple(&config.tls_key, "transfer.tls_key", &options.pem_private_key)}) {
    if (path->empty()) continue;
    StatusOr<std::string> pem = Named(field, ReadFile(*path, kPemBytesMax));
    if (!pem.ok()) return pem.status();
    *text = *std::move(pem);
  }
  return grpc::SslCredentials(options);
}

// What a stream's end says where the frames said nothing. `has_come`: some message had.
TransferFault FaultOf(const grpc::Status& status, const bool has_come) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return has_come ? TransferFault::kCut : TransferFault::kUnreachable;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return TransferFault::kDenied;
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:  // Serves no prefixes.
      return TransferFault::kRefused;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return TransferFault::kBusy;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return TransferFault::kLate;
    case grpc::StatusCode::OK:
      return TransferFault::kCut;
    default:
      return TransferFault::kFailed;
  }
}

// Whether another producer may do better at once.
bool IsTheProducers(const TransferFault fault) {
  return fault == TransferFault::kUnreachable || fault == TransferFault::kDenied || fault == TransferFault::kRefused ||
         fault == TransferFault::kBusy || fault == TransferFault::kCut || fault == TransferFault::kSilent;
}

// Where gRPC wants the time of day.
std::chrono::system_clock::time_point TimeOfDay(const TimeNs deadline, const Clock& clock) {
  return std::chrono::system_clock::now() + std::chrono::nanoseconds(std::max<TimeNs>(0, deadline - clock.Now()));
}

}  // namespace

struct TransferClient::Producer {
  std::string name;
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::TransferService::Stub> stub;
  // A connection of its own: tokens of a run do not stand behind what of a prefix waits to be sent.
  std::unique_ptr<v1::TransferService::Stub> run_stub;

  Mutex mu;
  CircuitBreaker breaker GUARDED_BY(mu){{}};
  LinkMeter link GUARDED_BY(mu);
  std::optional<TransferFault> last_fault GUARDED_BY(mu);  // What the log was told.
};

// One call while it is open: read by its own thread, written by that and by a thread that beats, cut by anybody. To
// write may block for as long as the producer takes nothing, so nobody beats for two.
class TransferClient::Stream {
 public:
  Stream(Producer& producer, const std::string& authorization, const uint64_t epoch, const TimeNs deadline,
         const Clock& clock)
      : clock_(clock), epoch_(epoch), heard_at_(clock.Now()), sent_at_(clock.Now()) {
    context_.set_deadline(TimeOfDay(deadline, clock));
    if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
    rpc_ = producer.stub->FetchPrefix(&context_);
    beats_ = std::thread([this] { BeatUntilOver(); });
  }

  bool Read(v1::ProducerMessage& message) {
    if (!rpc_->Read(&message)) return false;
    heard_at_ = clock_.Now();
    return true;
  }
  void Open(const engine::OpenFrame& frame, const OpenExtras& extras) {
    Write(frame, extras);
    const MutexLock lock(mu_);
    is_open_ = true;
    changed_.NotifyAll();
  }
  void Write(const engine::ConsumerFrame& frame, const OpenExtras& extras = {}) {
    while (is_writing_.exchange(true)) is_writing_.wait(true);
    WriteNow(frame, extras);
  }
  // Once, the last thing.
  grpc::Status Finish() {
    {
      const MutexLock lock(mu_);
      is_over_ = true;
      changed_.NotifyAll();
    }
    beats_.join();
    rpc_->WritesDone();
    return rpc_->Finish();
  }

  // Who was silent for the lease is cut, and who has not answered an Abort.
  void CutIfOverdue(const TimeNs now, const TimeNs lease) {
    if (now >= answers_by_) return Cut();
    if (now - heard_at_ <= lease) return;
    is_silent_ = true;
    Cut();
  }
  // We give up: the producer has so long to answer what tells it so.
  void ExpectRelease() {
    TimeNs never = kNever;
    answers_by_.compare_exchange_strong(never, clock_.Now() + kAbortPatience);
  }
  bool expects_release() const { return answers_by_ != kNever; }
  // Tells the producer that nobody waits any more. Never waits.
  void GiveUp() {
    ExpectRelease();
    const MutexLock lock(mu_);
    gives_up_ = true;
    changed_.NotifyAll();
  }
  void Cut() { context_.TryCancel(); }
  bool is_silent() const { return is_silent_; }

 private:
  void BeatUntilOver() {
    for (;;) {
      bool gives_up = false;
      {
        const MutexLock lock(mu_);
        if (!is_over_ && !(is_open_ && gives_up_)) {
          changed_.WaitFor(mu_, std::chrono::nanoseconds(engine::kTransferBeatNs / 2));
        }
        if (is_over_) return;
        if (!is_open_) continue;
        gives_up = std::exchange(gives_up_, false);
      }
      if (gives_up) {
        Write(engine::AbortFrame{.epoch = epoch_, .why = kUnwanted});
        continue;
      }
      // A write that does not go out is the producer's silence.
      if (clock_.Now() - sent_at_ < engine::kTransferBeatNs || is_writing_.exchange(true)) continue;
      WriteNow(engine::HeartbeatFrame{}, {});
    }
  }
  void WriteNow(const engine::ConsumerFrame& frame, const OpenExtras& extras) {
    rpc_->Write(ToMessage(frame, extras));  // Where it fails, so does the next Read.
    sent_at_ = clock_.Now();
    is_writing_ = false;
    is_writing_.notify_one();
  }

  const Clock& clock_;
  const uint64_t epoch_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ConsumerMessage, v1::ProducerMessage>> rpc_;
  std::atomic<bool> is_writing_ = false;
  std::atomic<bool> is_silent_ = false;
  std::atomic<TimeNs> heard_at_;
  std::atomic<TimeNs> sent_at_;
  std::atomic<TimeNs> answers_by_ = kNever;
  Mutex mu_;
  CondVar changed_;
  bool is_over_ GUARDED_BY(mu_) = false;
  bool is_open_ GUARDED_BY(mu_) = false;   // Its Open has gone out, before which nothing goes.
  bool gives_up_ GUARDED_BY(mu_) = false;  // And has not said so yet.
  std::thread beats_;                      // Last: it uses all above.
};

struct TransferClient::Job {
  int64_t ticket = 0;
  engine::PrefixWant want;
  Done done;
  std::atomic<bool> is_cancelled = false;
};

struct TransferClient::Asked {
  std::shared_ptr<Producer> producer;
  CircuitBreaker::Pass pass = CircuitBreaker::Pass::kCall;
  TimeNs begin = 0;
  grpc::ClientContext context;
  v1::QuoteRequest request;
  v1::QuoteResponse response;
  grpc::Status status;
  TimeNs end = 0;
};

void TransferClient::CutAll(const std::vector<std::shared_ptr<Asked>>& asked) {
  for (const std::shared_ptr<Asked>& one : asked) one->context.TryCancel();
}

StatusOr<std::unique_ptr<TransferClient>> TransferClient::Make(const config::Config::Transfer& config,
                                                               engine::TransferIdentity identity, const Clock& clock,
                                                               std::unique_ptr<HostResolver> resolver) {
  StatusOr<std::vector<config::Producer>> producers = config::ParseProducers(config.producers);
  if (!producers.ok()) return producers.status();
  const StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = CredentialsOf(config);
  if (!credentials.ok()) return credentials.status();
  std::unique_ptr<TransferClient> client(new TransferClient(config, std::move(identity), clock));
  if (!config.token_file.empty()) {
    const StatusOr<std::string> token = Named("transfer.token_file", ReadSecretLine(config.token_file));
    if (!token.ok()) return token.status();
    if (!token->empty()) client->authorization_ = "Bearer " + *token;
  }
  client->credentials_ = *credentials;
  client->names_ = std::make_unique<NameWatch>(*std::move(producers), std::move(resolver),
                                               [raw = client.get()](const auto& now) { raw->SetProducers(now); });
  client->names_->Start();
  for (int64_t i = 0; i < config.parallel; ++i) client->threads_.emplace_back([raw = client.get()] { raw->Work(); });
  client->threads_.emplace_back([raw = client.get()] { raw->CutTheSilent(); });
  return client;
}

// Epochs of one process follow one another; where they begin, no other process does.
TransferClient::TransferClient(const config::Config::Transfer& config, engine::TransferIdentity identity,
                               const Clock& clock)
    : config_(config),
      identity_(std::move(identity)),
      clock_(clock),
      last_epoch_((uint64_t{std::random_device()()} << 32) | std::random_device()()) {}

TransferClient::~TransferClient() {
  names_.reset();
  std::map<int64_t, std::shared_ptr<Stream>> open;
  std::map<int64_t, std::shared_ptr<RunCall>> runs;
  std::map<int64_t, std::vector<std::shared_ptr<Asked>>> quotes;
  {
    const MutexLock lock(mu_);
    closing_ = true;
    for (const auto& [ticket, job] : jobs_) job->is_cancelled = true;
    open = streams_;
    runs = runs_;
    quotes = quotes_;
    work_.NotifyAll();
    watch_.NotifyAll();
  }
  for (const auto& [ticket, stream] : open) stream->Cut();
  for (const auto& [ticket, run] : runs) run->Cut();
  for (const auto& [ticket, asked] : quotes) CutAll(asked);
  for (std::thread& thread : threads_) thread.join();
  for (const std::shared_ptr<Job>& job : queue_) job->done({.fault = TransferFault::kFailed, .why = "shutting down"});
}

void TransferClient::SetProducers(const std::vector<config::Producer>& now) {
  std::vector<std::shared_ptr<Producer>> before;
  {
    const MutexLock lock(mu_);
    before = producers_;
  }
  std::vector<std::shared_ptr<Producer>> producers;
  for (const config::Producer& entry : now) {
    const auto known = std::ranges::find_if(
        before, [&](const auto& one) { return one->name == entry.name && one->address == entry.address; });
    if (known != before.end()) {
      producers.push_back(*known);
      continue;
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // What a certificate names is the host that was looked up, not its address.
    if (!entry.dns_host.empty() && config_.tls) arguments.SetSslTargetNameOverride(entry.dns_host);
    auto producer = std::make_shared<Producer>();
    producer->name = entry.name;
    producer->address = entry.address;
    producer->channel = grpc::CreateCustomChannel(entry.address, credentials_, arguments);
    producer->stub = v1::TransferService::NewStub(producer->channel);
    producer->run_stub =
        v1::TransferService::NewStub(grpc::CreateCustomChannel(entry.address, credentials_, arguments));
    producers.push_back(std::move(producer));
  }
  const MutexLock lock(mu_);
  producers_ = std::move(producers);
}

void TransferClient::Fetch(const int64_t ticket, engine::PrefixWant want, Done done) {
  auto job = std::make_shared<Job>();
  job->ticket = ticket;
  job->want = std::move(want);
  job->done = std::move(done);
  {
    const MutexLock lock(mu_);
    if (!closing_ && static_cast<int64_t>(queue_.size()) < config_.parallel) {
      queue_.push_back(job);
      jobs_.emplace(ticket, job);
      work_.NotifyOne();
      watch_.NotifyAll();
      return;
    }
  }
  job->done({.fault = TransferFault::kBusy, .why = "transfer.parallel: enough prefixes are on their way already"});
}

void TransferClient::Cancel(const int64_t ticket) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<RunCall> run;
  std::vector<std::shared_ptr<Asked>> asked;
  {
    const MutexLock lock(mu_);
    const auto job = jobs_.find(ticket);
    if (job == jobs_.end()) return;
    job->second->is_cancelled = true;
    if (const auto open = quotes_.find(ticket); open != quotes_.end()) asked = open->second;
    if (const auto open = runs_.find(ticket); open != runs_.end()) run = open->second;
    if (const auto open = streams_.find(ticket); open != streams_.end()) stream = open->second;
  }
  CutAll(asked);
  if (run != nullptr) run->Cut();
  if (stream != nullptr) stream->GiveUp();
}

TransferAborts TransferClient::aborts() const {
  const MutexLock lock(mu_);
  return aborts_;
}

void TransferClient::Work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      const MutexLock lock(mu_);
      while (queue_.empty() && !closing_) work_.Wait(mu_);
      if (closing_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    FetchedPrefix fetched = FetchFromAny(*job);
    {
      const MutexLock lock(mu_);
      jobs_.erase(job->ticket);
    }
    job->done(std::move(fetched));
  }
}

// One after another, while there is time.
FetchedPrefix TransferClient::FetchFromAny(Job& job) {
  // Whoever were asked would be blamed for not answering in no time.
  if (job.is_cancelled || clock_.Now() >= job.want.deadline) {
    return {.fault = TransferFault::kLate, .why = "its time was over before anybody was asked"};
  }
  if (job.want.problem.has_value()) return FetchAsPlanned(job);
  FetchedPrefix last{.fault = TransferFault::kUnreachable, .why = "no producer answers of late"};
  int64_t bytes = 0;
  for (const std::shared_ptr<Producer>& producer : Candidates(job.want.producer)) {
    if (job.is_cancelled || clock_.Now() >= job.want.deadline) break;
    CircuitBreaker::Pass pass;
    {
      const MutexLock lock(producer->mu);
      pass = producer->breaker.Admit(clock_.Now());
    }
    if (pass == CircuitBreaker::Pass::kRefused) continue;
    last = FetchAndRun(*producer, job.want, job);
    bytes += last.bytes;
    Note(*producer, pass, last, job.is_cancelled);
    if (!last.fault.has_value() || !IsTheProducers(*last.fault)) break;
  }
  last.bytes = bytes;
  return last;
}

std::vector<std::shared_ptr<TransferClient::Producer>> TransferClient::Candidates(const std::string& wanted) {
  const MutexLock lock(mu_);
  const size_t first = next_producer_++;
  std::vector<std::shared_ptr<Producer>> candidates;
  for (size_t i = 0; i < producers_.size(); ++i) {
    const std::shared_ptr<Producer>& producer = producers_[(first + i) % producers_.size()];
    if (wanted.empty() || producer->name == wanted) candidates.push_back(producer);
  }
  return candidates;
}

// All at once, for a small share of what a run here takes: a producer that does not answer by then is too busy to be of
// use.
std::vector<std::shared_ptr<TransferClient::Asked>> TransferClient::Ask(Job& job) {
  constexpr double kShareOfRun = 0.03;
  constexpr TimeNs kLeast = 20'000'000;
  const engine::LocalRun& here = job.want.problem->here;
  const TimeNs lease = std::chrono::nanoseconds(config_.lease).count();
  TimeNs patience = lease;
  if (here.tokens_per_second > 0) {
    const double run = here.queue_seconds + (job.want.problem->end - here.have) / here.tokens_per_second;
    patience = std::clamp(static_cast<TimeNs>(kShareOfRun * run * 1e9), kLeast, std::max(kLeast, lease));
  }
  const engine::PrefixReceiver opener({.identity = identity_, .epoch = 0}, job.want);
  const v1::ConsumerMessage open = ToMessage(opener.Open(), {.request_id = job.want.request_id});
  struct Answers {
    Mutex mu;
    CondVar changed;
    size_t left GUARDED_BY(mu) = 0;
  } answers;
  std::vector<std::shared_ptr<Asked>> asked;
  for (const std::shared_ptr<Producer>& producer : Candidates(job.want.producer)) {
    auto one = std::make_shared<Asked>();
    one->producer = producer;
    {
      const MutexLock lock(producer->mu);
      one->pass = producer->breaker.Admit(clock_.Now());
      one->request.set_padding_bytes(producer->link.padding_wanted(clock_.Now()));
    }
    if (one->pass == CircuitBreaker::Pass::kRefused) continue;
    *one->request.mutable_open() = open.open();
    one->begin = clock_.Now();
    one->context.set_deadline(TimeOfDay(std::min(job.want.deadline, one->begin + patience), clock_));
    if (!authorization_.empty()) one->context.AddMetadata("authorization", authorization_);
    asked.push_back(std::move(one));
  }
  {
    const MutexLock lock(answers.mu);
    answers.left = asked.size();
  }
  {
    const MutexLock lock(mu_);
    quotes_[job.ticket] = asked;
  }
  for (const std::shared_ptr<Asked>& one : asked) {
    one->producer->stub->async()->QuotePrefix(&one->context, &one->request, &one->response,
                                              [this, raw = one.get(), &answers](const grpc::Status& status) {
                                                raw->status = status;
                                                raw->end = clock_.Now();
                                                const MutexLock lock(answers.mu);
                                                --answers.left;
                                                answers.changed.NotifyAll();
                                              });
  }
  // Who cancelled before has not seen them.
  if (job.is_cancelled) CutAll(asked);
  {
    const MutexLock lock(answers.mu);
    while (answers.left > 0) answers.changed.Wait(answers.mu);
  }
  const MutexLock lock(mu_);
  quotes_.erase(job.ticket);
  return asked;
}

FetchedPrefix TransferClient::FetchAsPlanned(Job& job) {
  const std::vector<std::shared_ptr<Asked>> asked = Ask(job);
  std::vector<engine::ProducerQuote> quotes(asked.size());
  FetchedPrefix last{.fault = TransferFault::kUnreachable, .why = "no producer answers of late"};
  for (size_t i = 0; i < asked.size(); ++i) {
    Asked& one = *asked[i];
    if (!one.status.ok()) {
      const TransferFault fault = one.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED
                                      ? TransferFault::kBusy
                                      : FaultOf(one.status, /*has_come=*/false);
      last = {.fault = fault, .why = one.status.error_message()};
      if (job.is_cancelled) last = {.fault = TransferFault::kLate, .why = kUnwanted};
      Note(*one.producer, one.pass, last, job.is_cancelled);
      continue;
    }
    const MutexLock lock(one.producer->mu);
    one.producer->link.Answered(ToSeconds(one.end - one.begin), std::ssize(one.response.padding()), one.end);
    quotes[i] = QuoteOf(one.response, job.want.problem->end);
    quotes[i].point = job.want.point;
    quotes[i].link = one.producer->link.speed();
    // One that has run nothing yet is as fast as we are.
    if (quotes[i].tokens_per_second <= 0) quotes[i].tokens_per_second = job.want.problem->here.tokens_per_second;
  }
  int64_t bytes = 0;
  std::string words;
  const auto answered = [](const engine::ProducerQuote& quote) { return quote.sends_as_is || quote.sends_codes; };
  while (std::ranges::any_of(quotes, answered) && !job.is_cancelled && clock_.Now() < job.want.deadline) {
    engine::TransferProblem problem = *job.want.problem;
    problem.producers = quotes;
    const engine::TransferPlan plan = PlanTransfer(problem);
    words = ToWords(plan);
    if (plan.best.kind == engine::TransferWay::Kind::kHere) {
      last = {.fault = TransferFault::kSlower, .why = words};
      break;
    }
    engine::PrefixWant want = job.want;
    want.tokens.resize(static_cast<size_t>(plan.best.end));
    want.point = plan.best.point;
    if (plan.best.kind == engine::TransferWay::Kind::kAsItIs) want.profile = nullptr;
    Asked& one = *asked[plan.best.producer];
    last = FetchAndRun(*one.producer, want, job);
    bytes += last.bytes;
    Note(*one.producer, one.pass, last, job.is_cancelled);
    one.pass = CircuitBreaker::Pass::kCall;
    quotes[plan.best.producer] = {};
    if (!last.fault.has_value() || !IsTheProducers(*last.fault)) break;
  }
  // Who answered and was not fetched from has shown neither that it serves nor that it does not: it may be tried again.
  for (const std::shared_ptr<Asked>& one : asked) {
    if (!one->status.ok()) continue;
    const MutexLock lock(one->producer->mu);
    one->producer->breaker.Abandoned(one->pass);
  }
  last.bytes = bytes;
  last.plan = words;
  return last;
}

// The first tokens go before the prefix: they need little of the link, and what the run leaves in the producer's cache
// is what is fetched then.
FetchedPrefix TransferClient::FetchAndRun(Producer& producer, const engine::PrefixWant& want, Job& job) {
  if (want.run == nullptr) return FetchFrom(producer, want, job);
  const auto run = std::make_shared<RunCall>(*producer.run_stub, want.run,
                                             RunCall::Options{.identity = identity_,
                                                              .authorization = authorization_,
                                                              .request_id = want.request_id,
                                                              .deadline = want.deadline},
                                             clock_);
  {
    const MutexLock lock(mu_);
    runs_.emplace(job.ticket, run);
  }
  // Who cancelled before has not seen it.
  if (job.is_cancelled) run->Cut();
  const bool is_running = run->AwaitTokens();
  int64_t view_bytes = 0;
  if (is_running && !want.run->view_wish().compressor.empty() && !job.is_cancelled) {
    view_bytes = FetchView(producer, want, job);
  }
  FetchedPrefix fetched = FetchFrom(producer, want, job);
  fetched.bytes += view_bytes;
  {
    const MutexLock lock(mu_);
    runs_.erase(job.ticket);
  }
  return fetched;
}

// Where it does not come, the run goes on without drafts.
int64_t TransferClient::FetchView(Producer& producer, const engine::PrefixWant& want, Job& job) {
  engine::PrefixWant of_view{.request_id = want.request_id,
                             .scope = want.scope,
                             .tokens = want.tokens,
                             .deadline = want.deadline,
                             .view = want.run->view_wish()};
  FetchedPrefix fetched = FetchFrom(producer, of_view, job);
  Status taken = fetched.fault.has_value() ? Status(StatusCode::kUnavailable, fetched.why) : OkStatus();
  if (taken.ok()) taken = want.run->TakeView(*std::move(fetched.view));
  if (!taken.ok()) Logger("server")->debug("no view of a prefix came to draft on: {}", taken.message());
  return fetched.bytes;
}

FetchedPrefix TransferClient::FetchFrom(Producer& producer, const engine::PrefixWant& want, Job& job) {
  uint64_t epoch = 0;
  {
    const MutexLock lock(mu_);
    epoch = ++last_epoch_;
  }
  engine::PrefixReceiver receiver({.identity = identity_,
                                   .epoch = epoch,
                                   .credit_bytes = config_.credit_bytes,
                                   .bytes_max = config_.bytes_max / config_.parallel},
                                  want);
  const auto stream = std::make_shared<Stream>(producer, authorization_, epoch, want.deadline, clock_);
  {
    const MutexLock lock(mu_);
    streams_.emplace(job.ticket, stream);
  }
  // Who cancelled before has not seen the stream.
  if (job.is_cancelled) stream->Cut();
  stream->Open(receiver.Open(), {.request_id = want.request_id,
                                 .timeout_ms = std::max<TimeNs>(1, (want.deadline - clock_.Now()) / 1'000'000)});
  bool has_come = false;
  TimeNs first_chunk = 0;
  int64_t first_bytes = 0;
  const TimeNs begin = clock_.Now();
  v1::ProducerMessage message;
  while (!receiver.is_complete() && !receiver.is_released() && stream->Read(message)) {
    has_come = true;
    if (first_chunk == 0 && message.has_chunk()) {
      first_chunk = clock_.Now();
      first_bytes = std::ssize(message.chunk().payload());
    }
    // The thread that beats tells the producer.
    if (job.is_cancelled) receiver.Fail(TransferFault::kLate, kUnwanted);
    const StatusOr<engine::ProducerFrame> frame = ToFrame(message);
    const std::vector<engine::ConsumerFrame> answers =
        frame.ok() ? receiver.On(*frame) : receiver.GiveUp(TransferFault::kProtocol, frame.status().message());
    if (receiver.has_ended() && !receiver.is_complete()) stream->ExpectRelease();
    for (const engine::ConsumerFrame& answer : answers) stream->Write(answer);
  }
  const TimeNs end = clock_.Now();
  // Whoever was told and does not let go may still be sending.
  if (receiver.has_ended() && !receiver.is_complete() && !receiver.is_released()) stream->Cut();
  const grpc::Status status = stream->Finish();  // May be cut too, where a write is still out.
  {
    const MutexLock lock(mu_);
    streams_.erase(job.ticket);
    if (stream->expects_release() && !receiver.is_complete()) {
      ++(receiver.is_released() ? aborts_.answered : aborts_.unanswered);
    }
  }
  if (job.is_cancelled) receiver.Fail(TransferFault::kLate, kUnwanted);
  if (!receiver.has_ended()) {
    const TransferFault fault = stream->is_silent() ? TransferFault::kSilent : FaultOf(status, has_come);
    receiver.Fail(fault, stream->is_silent() ? "nothing was heard of it" : status.error_message());
  }
  FetchedPrefix fetched = receiver.Take();
  if (!fetched.fault.has_value() && first_chunk > 0) {
    // A prefix that lay ready begins to come at once.
    const bool lay_ready = first_chunk - begin < (end - begin) / 4;
    const MutexLock lock(producer.mu);
    producer.link.Came(fetched.bytes - first_bytes, ToSeconds(end - first_chunk), lay_ready && !fetched.coded.held,
                       end);
  }
  return fetched;
}

void TransferClient::Note(Producer& producer, const CircuitBreaker::Pass pass, const FetchedPrefix& fetched,
                          const bool is_cancelled) {
  const MutexLock lock(producer.mu);
  if (is_cancelled) return producer.breaker.Abandoned(pass);
  const bool is_down =
      fetched.fault.has_value() && IsTheProducers(*fetched.fault) && *fetched.fault != TransferFault::kBusy;
  if (is_down) {
    producer.breaker.Failed(pass, clock_.Now());
  } else if (fetched.fault.has_value()) {
    producer.breaker.Abandoned(pass);
  } else {
    producer.breaker.Succeeded();
  }
  if (fetched.fault == producer.last_fault) return;
  producer.last_fault = fetched.fault;
  if (fetched.fault.has_value()) {
    Logger("server")->warn("no prefix from producer {} at {}: {}: {}; until that changes, more of it is counted only",
                           producer.name, producer.address, engine::NameOf(*fetched.fault), fetched.why);
  } else {
    Logger("server")->info("prefixes come from producer {} at {} again", producer.name, producer.address);
  }
}

void TransferClient::CutTheSilent() {
  const TimeNs lease = std::chrono::nanoseconds(config_.lease).count();
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<RunCall>> runs;
  for (;;) {
    streams.clear();
    runs.clear();
    {
      const MutexLock lock(mu_);
      while (jobs_.empty() && !closing_) watch_.Wait(mu_);
      if (closing_) return;
      watch_.WaitFor(mu_, std::chrono::nanoseconds(engine::kTransferBeatNs / 2));
      for (const auto& [ticket, stream] : streams_) streams.push_back(stream);
      for (const auto& [ticket, run] : runs_) runs.push_back(run);
    }
    const TimeNs now = clock_.Now();
    for (const std::shared_ptr<Stream>& stream : streams) stream->CutIfOverdue(now, lease);
    for (const std::shared_ptr<RunCall>& run : runs) run->CutIfSilent(now, lease);
  }
}

}  // namespace invar::server
