// The producer's end of transfers (invar.v1.TransferService), a reactor a prefix: frames go to a state machine
// (engine/prefix_sender.h), and the prefix comes from the engine (engine/prefix_export.h). One thread sends for all of
// them and ends those whose consumer is silent; another beats.
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/prefix_export.h"
#include "engine/prefix_sender.h"
#include "engine/transfer_protocol.h"
#include "invar/v1/transfer.grpc.pb.h"
#include "server/calls/call_gate.h"
#include "server/calls/unary_call.h"
#include "server/metrics/transfer_counts.h"
#include "server/threads/heart.h"
#include "server/threads/task_queue.h"
#include "server/threads/turn_queue.h"

namespace invar::server {

class TransferService final : public v1::TransferService::CallbackService {
 public:
  // Requires: `gate` outlives it. The destructor requires: no call is open.
  explicit TransferService(CallGate& gate);
  grpc::ServerBidiReactor<v1::ConsumerMessage, v1::ProducerMessage>* FetchPrefix(
      grpc::CallbackServerContext* context) override;

  grpc::ServerUnaryReactor* QuotePrefix(grpc::CallbackServerContext* context, const v1::QuoteRequest* request,
                                        v1::QuoteResponse* response) override;

  grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* VerifyPrefix(
      grpc::CallbackServerContext* context) override;

  TransferCounts counts() const;
  VerifyCounts verify_counts() const { return tally_.counts(); }

 private:
  class FetchCall;
  class FetchTurns;
  class QuoteTurn;
  enum class End { kSent, kRefused, kFailed, kAborted, kAbandoned, kExpired };

  // What takes a prefix from the engine for a call: as it is; or as the view that `open` wants, made on a thread of
  // ours.
  static engine::PrefixExport::Take HandsOver(std::shared_ptr<FetchTurns> turns);
  engine::PrefixExport::Take MakesView(const std::shared_ptr<FetchTurns>& turns, const engine::OpenFrame& open);
  // Ends `call` with what a fetch would find, or with the error.
  void Quote(const v1::QuoteRequest& request, v1::QuoteResponse& response, UnaryCall& call);
  // What would send what `open` asks for. Errors: as PrefixSender::Open; PERMISSION_DENIED.
  StatusOr<std::unique_ptr<engine::PrefixSender>> SenderFor(const engine::OpenFrame& open, const Caller& caller) const;
  // Memory for the copy of a prefix of `tenant`, which has its share. Errors: RESOURCE_EXHAUSTED.
  Status Take(const std::string& tenant, int64_t bytes);
  void GiveBack(const std::string& tenant, int64_t bytes);
  // `reason`: of kAborted.
  void Count(End end, int64_t bytes, engine::AbortReason reason);

  CallGate& gate_;

  mutable Mutex mu_;
  TransferCounts counts_ GUARDED_BY(mu_);
  std::map<std::string, int64_t> held_ GUARDED_BY(mu_);  // Bytes of counts_.held_bytes, by tenant.

  VerifyTally tally_;
  TurnQueue senders_;
  TaskQueue views_;  // Asks for turns.
  Heart heart_;      // Asks for turns.
};

}  // namespace invar::server
