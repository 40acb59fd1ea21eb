// The consumer's end of transfers: a PrefixSource of the engine that fetches from the producers of the configuration,
// one thread a prefix, and one that beats. Frames go to a state machine (engine/prefix_receiver.h); one more thread
// cuts streams whose producer is silent, or was told that we gave up and does not answer. A producer that fails is left
// alone for a while (base/circuit_breaker.h), and another one is asked. Threads: any. Locks: mu_, a producer's, a
// stream's and that of answers to quotes. No thread holds two of them, nor one of them while it calls `done`, gRPC or a
// state machine.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/circuit_breaker.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "config/config.h"
#include "engine/prefix_source.h"
#include "engine/transfer_protocol.h"
#include "server/metrics/transfer_counts.h"
#include "server/peers/name_watch.h"

namespace invar::server {

class RunCall;

class TransferClient final : public engine::PrefixSource {
 public:
  // Connects to nobody yet. Errors: those of reading token and certificates, naming the field.
  static StatusOr<std::unique_ptr<TransferClient>> Make(const config::Config::Transfer& config,
                                                        engine::TransferIdentity identity, const Clock& clock,
                                                        std::unique_ptr<HostResolver> resolver = MakeSystemResolver());
  // Ends what is under way; every `done` has run when it returns.
  ~TransferClient() override;

  void Fetch(int64_t ticket, engine::PrefixWant want, Done done) override;
  void Cancel(int64_t ticket) override;

  TransferAborts aborts() const;

 private:
  struct Producer;
  struct Job;
  class Stream;
  TransferClient(const config::Config::Transfer& config, engine::TransferIdentity identity, const Clock& clock);

  // Those that stay keep what is known of them; those that have gone finish what they are at.
  void SetProducers(const std::vector<config::Producer>& now);
  void Work();
  engine::FetchedPrefix FetchFromAny(Job& job);
  engine::FetchedPrefix FetchFrom(Producer& producer, const engine::PrefixWant& want, Job& job);
  // Alike, while the producer runs the request, where the want says so.
  engine::FetchedPrefix FetchAndRun(Producer& producer, const engine::PrefixWant& want, Job& job);
  // A view of the prefix, for the run to draft on. Gives the bytes that came.
  int64_t FetchView(Producer& producer, const engine::PrefixWant& want, Job& job);
  // By what producers say and what the links to them do; in the way that is soonest, or not at all.
  engine::FetchedPrefix FetchAsPlanned(Job& job);
  // A producer that was asked, and what it said.
  struct Asked;
  std::vector<std::shared_ptr<Asked>> Ask(Job& job);
  static void CutAll(const std::vector<std::shared_ptr<Asked>>& asked);
  // Producers that may be asked, the first one first.
  std::vector<std::shared_ptr<Producer>> Candidates(const std::string& wanted);
  // `is_cancelled`: it ended because of us, and says nothing of the producer.
  void Note(Producer& producer, CircuitBreaker::Pass pass, const engine::FetchedPrefix& fetched, bool is_cancelled);
  // Never waits for a producer.
  void CutTheSilent();

  // Set at construction.
  const config::Config::Transfer config_;
  const engine::TransferIdentity identity_;
  const Clock& clock_;
  std::string authorization_;  // Empty: none is sent.
  std::shared_ptr<grpc::ChannelCredentials> credentials_;

  mutable Mutex mu_;
  CondVar work_;
  CondVar watch_;
  std::deque<std::shared_ptr<Job>> queue_ GUARDED_BY(mu_);
  std::map<int64_t, std::shared_ptr<Job>> jobs_ GUARDED_BY(mu_);                   // Queued and running, by ticket,
  std::map<int64_t, std::shared_ptr<Stream>> streams_ GUARDED_BY(mu_);             // and what is open of these:
  std::map<int64_t, std::shared_ptr<RunCall>> runs_ GUARDED_BY(mu_);               // of the prefix, of a run meanwhile,
  std::map<int64_t, std::vector<std::shared_ptr<Asked>>> quotes_ GUARDED_BY(mu_);  // and of who has it.
  // Shared with the jobs that are at one: it may go meanwhile.
  std::vector<std::shared_ptr<Producer>> producers_ GUARDED_BY(mu_);
  size_t next_producer_ GUARDED_BY(mu_) = 0;
  uint64_t last_epoch_ GUARDED_BY(mu_);
  bool closing_ GUARDED_BY(mu_) = false;
  TransferAborts aborts_ GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Behind what they use.
  std::unique_ptr<NameWatch> names_;  // Alike.
};

}  // namespace invar::server
