// A real Daemon in this process on ports the system chooses, its clients, and models that tests can hold still.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "invar/v1/generation.grpc.pb.h"
#include "server/daemon.h"

namespace invar::e2e {

// Lets a test stop the model between two forwards. Open at first. Threads: any.
class StepGate {
 public:
  void Close();
  void Open();
  // Lets `steps` more forwards pass, then closes.
  void Allow(int64_t steps);
  // What the model calls: waits until it may go on.
  void Pass();
  // Waits until a forward stands at the closed gate.
  void AwaitStanding();

 private:
  Mutex mu_;
  CondVar changed_;
  int64_t allowed_ GUARDED_BY(mu_) = INT64_MAX;
  bool standing_ GUARDED_BY(mu_) = false;
};

// Time that passes when the test says so: what a busy machine makes of the seconds does not matter. Threads: any.
class HandClock final : public Clock {
 public:
  TimeNs Now() const override { return now_; }
  void Advance(const std::chrono::nanoseconds by) { now_ += by.count(); }

 private:
  std::atomic<TimeNs> now_ = 1;
};

// assets/tiny-hybrid.
std::string TinyModelFolder();
// Loopback, port 0, the tiny model, quiet logs.
config::Config TinyConfig();
// The fingerprint model of long sequences (65536) behind the tiny model's tokenizer: a microsecond a token, so that
// tests see many tokens; `gate` may be null.
server::ModelLoader FingerprintLoader(StepGate* gate);

class RunningDaemon {
 public:
  // Waits until the model serves. Fails the test where it does not. A `clock` of the test's outlives this.
  explicit RunningDaemon(const config::Config& config, server::ModelLoader loader = server::LoadModelFolder,
                         const Clock* clock = nullptr);

  server::Daemon& daemon() { return *daemon_; }
  engine::EngineStats stats() { return daemon_->model()->engine->Stats(); }
  void Destroy() { daemon_.reset(); }

  // A channel of its own each: a connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel(const grpc::ChannelArguments& arguments = {}) const;
  std::unique_ptr<v1::GenerationService::Stub> NewStub() const;

  // Waits until so many Generate calls have reached the engine's inbox or queue.
  void AwaitCallsOpen(int64_t calls);
  // True once nothing runs, waits or holds memory; gives up after 10 s.
  bool BecomesIdle();

 private:
  RealClock real_clock_;
  std::unique_ptr<server::Daemon> daemon_;
};

// What one call gave.
struct Outcome {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;
  std::string text;  // Deltas, then Finished's.
  std::vector<int32_t> token_ids;
  std::vector<uint32_t> logit_bits, logprob_bits;
  v1::Finished finished;
  int finished_count = 0;
};
Outcome Collect(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request,
                std::chrono::milliseconds timeout = std::chrono::seconds(60), const std::string& token = {});

// Token ids, greedy, with ids and bits in the answer.
v1::GenerateRequest TokensRequest(const std::vector<int32_t>& ids, int32_t max_tokens);
v1::GenerateRequest TextRequest(const std::string& text, int32_t max_tokens);

// GET on the ops port. 0 where nothing answers.
struct HttpAnswer {
  int status = 0;
  std::string body;
};
HttpAnswer HttpGet(const std::string& address, const std::string& path);
// Sum over all series of a metric in exposition text; nullopt-like -1 where it is absent.
double MetricSum(const std::string& text, const std::string& name, const std::string& label_part = {});

}  // namespace invar::e2e
