// VerifyCall: one request that is run here for a consumer whose prefix is on its way (invar.v1.TransferService,
// VerifyPrefix): messages to a session of the engine (engine/verify_session.h) and back. What has come is noted and
// worked off on the senders' thread, as of FetchPrefix (transfer_service.cc).
// Threads: any.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/verify_session.h"
#include "invar/v1/transfer.grpc.pb.h"
#include "server/calls/served_call.h"
#include "server/metrics/transfer_counts.h"
#include "server/threads/heart.h"
#include "server/threads/turn_queue.h"
#include "server/wire/translate_transfer.h"

namespace invar::server {

class VerifyCall final : public grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>, public ServedCall {
 public:
  // What calls of a service share; outlives them.
  struct Shared {
    TurnQueue& senders;
    Heart& heart;
    VerifyTally& tally;
  };
  // Made with `new`: it deletes itself.
  VerifyCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry, const Shared& shared);
  // Where it was let in: it is read from here on.
  void Listen();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void CutStalledReader(TimeNs limit) override;

 private:
  class Turns;
  struct Mail {
    std::optional<Status> refused;  // It was not let in.
    bool begins = false;
    std::optional<bool> read;  // As OnReadDone,
    TimeNs read_at = 0;        // and when.
    std::optional<bool> written;
    bool cancelled = false;
    bool beats = false;
    TimeNs write_limit = kNever;  // No write may have been out for so long.
    std::vector<engine::VerifySession::Event> events;
  };

  void Refuse(const Status& status) override;
  void FinishRpc(const grpc::Status& status) override { Finish(status); }
  // Senders' thread. True: it has ended, and may be gone.
  bool Work(Mail mail);
  // How it ends; nullopt: it goes on.
  std::optional<Status> WorkOff(Mail& mail);
  Status OnMessage();
  Status Open(engine::VerifyOpenFrame open);
  Status Overdue();
  void Write(const engine::RunProducerFrame& frame);

  // Set at construction.
  const Shared shared_;
  const TimeNs lease_;
  const std::shared_ptr<Turns> turns_;

  int64_t serial_ = 0;  // Set by Listen, read by OnDone. 0: it never listened.

  // Senders' thread only.
  std::shared_ptr<engine::VerifySession> session_;  // From the Open on.
  std::deque<engine::VerifiedFrame> unsent_;
  std::optional<Status> ended_;  // Of the session; what is unsent goes first.
  OpenExtras extras_;
  TimeNs ends_at_;  // Nobody waits any longer.
  TimeNs heard_at_;
  TimeNs sent_at_;  // When the last write began.
  bool is_writing_ = false;
  int64_t written_tokens_ = 0;  // By the write that is out.
  int64_t message_bytes_ = 0;   // Of what is read, in the limit of requests.
  v1::VerifyRequest in_;        // gRPC's from StartRead until OnReadDone,
  v1::VerifyResponse out_;      // and from StartWrite until OnWriteDone.
};

}  // namespace invar::server
