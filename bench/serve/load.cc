// One reactor a request on gRPC's callback API, so that hundreds of streams need no threads of ours. The driver's
// thread only waits: for the next intended time, for a free place, for the last end.
#include "bench/serve/load.h"

#include <fmt/format.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace invar::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::duration;

constexpr auto kProgressPeriod = std::chrono::milliseconds(200);

void AddToken(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
}

// Places in flight and the count of what has ended. Threads: any.
class Gate {
 public:
  explicit Gate(const int32_t places) : places_(places) {}

  // Takes a place; returns false when none was free until `until`.
  bool TakeUntil(const SteadyClock::time_point until) {
    std::unique_lock lock(mu_);
    if (!changed_.wait_until(lock, until, [&] { return places_ > 0; })) return false;
    --places_;
    return true;
  }
  void GiveBack() {
    // Notified under the lock: the gate may be gone as soon as the last one has been counted.
    const std::lock_guard lock(mu_);
    ++places_;
    ++finished_;
    changed_.notify_all();
  }
  // Waits until `count` have ended or until `until`; returns how many have.
  int32_t WaitFinished(const int32_t count, const SteadyClock::time_point until) {
    std::unique_lock lock(mu_);
    changed_.wait_until(lock, until, [&] { return finished_ >= count; });
    return finished_;
  }
  int32_t finished() {
    const std::lock_guard lock(mu_);
    return finished_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int32_t places_;        // Guarded by mu_.
  int32_t finished_ = 0;  // Guarded by mu_.
};

const char* CodeName(const grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

v1::GenerateRequest ToProto(const PlannedRequest& planned, const Workload& workload) {
  v1::GenerateRequest request;
  request.mutable_tokens()->mutable_ids()->Assign(planned.prompt.begin(), planned.prompt.end());
  request.mutable_sampling()->set_temperature(static_cast<float>(workload.temperature));
  request.mutable_sampling()->set_seed(static_cast<int64_t>(workload.seed >> 1));
  request.mutable_stopping()->set_max_tokens(planned.output_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_output()->set_token_ids(true);
  request.set_stream(true);
  return request;
}

// One stream. Owns itself from Start to OnDone, which writes the record and gives the place back.
class Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(const SteadyClock::time_point start, Gate& gate, RequestRecord& record)
      : start_(start), gate_(gate), record_(record) {}

  void Start(v1::GenerationService::Stub& stub, v1::GenerateRequest request, const std::string& token) {
    AddToken(context_, token);
    request_ = std::move(request);
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(const bool ok) override {
    if (!ok) return;
    Note(duration<double>(SteadyClock::now() - start_).count());
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) {
      record_.error = CodeName(status.error_code());
    } else if (!finished_) {
      record_.error = "INCOMPLETE";  // OK without Finished: the server broke its contract.
    }
    Gate& gate = gate_;
    delete this;
    gate.GiveBack();
  }

 private:
  void Note(const double now_s) {
    if (response_.has_delta() && response_.delta().token_ids_size() > 0) {
      if (record_.output_tokens == 0) record_.first_token_s = now_s;
      record_.output_tokens += response_.delta().token_ids_size();
      record_.end_s = now_s;
    } else if (response_.has_finished()) {
      finished_ = true;
      const v1::Finished& finished = response_.finished();
      if (finished.reason() == v1::Finished::ERROR) record_.error = "ERROR";
      record_.prompt_tokens = finished.usage().prompt_tokens();
      record_.cached_tokens = finished.usage().cached_tokens();
      if (record_.output_tokens == 0) record_.first_token_s = record_.end_s = now_s;
      record_.output_tokens = finished.usage().completion_tokens();
    }
  }

  const SteadyClock::time_point start_;
  Gate& gate_;
  RequestRecord& record_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  bool finished_ = false;
};

}  // namespace

StatusOr<int32_t> ReadTokenIds(v1::GenerationService::StubInterface& stub, const std::string& token) {
  grpc::ClientContext context;
  AddToken(context, token);
  v1::ListModelsResponse response;
  const grpc::Status status = stub.ListModels(&context, {}, &response);
  if (!status.ok()) {
    return Status(static_cast<StatusCode>(status.error_code()),
                  fmt::format("the daemon does not list its models: {}", status.error_message()));
  }
  if (response.models_size() == 0 || response.models(0).token_ids() <= 0) {
    return FailedPrecondition("the daemon serves no model with a vocabulary");
  }
  return response.models(0).token_ids();
}

LoadResult RunLoad(v1::GenerationService::Stub& stub, const Workload& workload, const std::vector<PlannedRequest>& plan,
                   const std::string& token, const Progress& progress) {
  const bool open = workload.mode == Workload::Mode::kOpen;
  const auto total = static_cast<int32_t>(plan.size());
  LoadResult result;
  result.records.resize(plan.size());
  Gate gate(open ? workload.in_flight_max : workload.concurrency);
  const SteadyClock::time_point start = SteadyClock::now();
  const auto seconds_after_start = [&] { return duration<double>(SteadyClock::now() - start).count(); };

  for (int32_t i = 0; i < total; ++i) {
    RequestRecord& record = result.records[static_cast<size_t>(i)];
    if (open) {
      const double arrival_s = plan[static_cast<size_t>(i)].arrival_s;
      const auto intended = start + std::chrono::duration_cast<SteadyClock::duration>(duration<double>(arrival_s));
      while (SteadyClock::now() < intended) {
        progress(gate.WaitFinished(total, std::min(intended, SteadyClock::now() + kProgressPeriod)), total);
      }
      record.intended_s = arrival_s;
    }
    while (!gate.TakeUntil(SteadyClock::now() + kProgressPeriod)) progress(gate.finished(), total);
    if (!open) record.intended_s = seconds_after_start();
    // Owned by itself until OnDone.
    (new Call(start, gate, record))->Start(stub, ToProto(plan[static_cast<size_t>(i)], workload), token);
  }
  for (int32_t finished = 0; finished < total;) {
    finished = gate.WaitFinished(total, SteadyClock::now() + kProgressPeriod);
    progress(finished, total);
  }
  result.duration_s = seconds_after_start();
  return result;
}

}  // namespace invar::bench
