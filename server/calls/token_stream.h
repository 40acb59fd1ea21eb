// TokenStream: the way of one request's output from the engine thread to one RPC.
//   engine thread --Push--> pending events (bounded) --writers' thread--> one write in flight --OnWriteDone--> next
// A reader that lags fills the bound; Push then says so, the engine pauses that sequence alone, and once half of the
// bound is free again the engine is told to go on. Deltas that wait together travel as one message.
// Threads: Push on the engine's; OnWriteDone, OnReaderGone on gRPC's; CutStalledReader on the watch's; SetId on the one
// that prepares the call. The writer is called from the thread of `writers` alone.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "server/metrics/metrics.h"
#include "server/threads/turn_queue.h"
#include "server/wire/translate.h"

namespace invar::server {

// Where messages go: a gRPC reactor, or a test's collector.
class MessageWriter {
 public:
  virtual ~MessageWriter() = default;
  // `message` stays valid until OnWriteDone is called. At most one in flight.
  virtual void Write(const v1::GenerateResponse* message) = 0;
  // Once, the last call: the writer may be gone when it returns.
  virtual void Finish(const Status& status) = 0;
};

// What a request came to: for its line in the log. Nothing that was said, and nothing that grows with it.
struct RequestSummary {
  struct End {
    engine::FinishReason reason = engine::FinishReason::kLength;
    int32_t cached_tokens = 0;
    int32_t preemptions = 0;
    TimeNs queued_for = 0, prefill_for = 0, decode_for = 0, first_token_after = 0;
  };
  int64_t output_tokens = 0;
  std::optional<End> finished;  // Absent where it failed.
};

class TokenStream final : public engine::EventSink,
                          public TurnQueue::Node,
                          public std::enable_shared_from_this<TokenStream> {
 public:
  struct Options {
    AnswerForm form;
    int64_t pending_bytes_max = 0;
    TimeNs arrived = 0;
  };
  // Requires: all references outlive the stream; `writer` lives until its Finish.
  TokenStream(Options options, MessageWriter& writer, engine::Engine& engine, TurnQueue& writers, Metrics& metrics,
              const Clock& clock);

  // The engine has taken the request; makes good what was asked for before its id was known.
  void SetId(SequenceId id);
  bool Push(engine::TokenEvent event) override;

  RequestSummary summary();

  // The last write is done; `ok` false: the reader is gone.
  void OnWriteDone(bool ok);
  // The call was cancelled or its connection broke. Effects: the engine stops the request at the next step boundary.
  void OnReaderGone();
  // Ends the call with ABORTED where one write has been in flight for `limit` or longer; otherwise nothing. Engine or
  // no engine: the request may have ended long ago. Effects: as OnReaderGone.
  void CutStalledReader(TimeNs limit);

 private:
  // Writes the next message, or finishes, or rests.
  void TakeTurn() override;
  // Moves the next message out of pending_ into message_; at the end sets status_. False: nothing to write.
  bool TakeMessage() REQUIRES_LOCK(mu_);
  void TakeDeltas() REQUIRES_LOCK(mu_);
  void TakeFinished() REQUIRES_LOCK(mu_);
  void Record(const engine::TokenEvent& event);
  void Summarize(const engine::TokenEvent& event) REQUIRES_LOCK(mu_);
  void AskForTurn() { writers_.Ask(shared_from_this()); }

  // Set at construction.
  const Options options_;
  MessageWriter& writer_;
  engine::Engine& engine_;
  TurnQueue& writers_;
  Metrics& metrics_;
  const Clock& clock_;

  // Engine thread only.
  TimeNs last_token_ = 0;

  Mutex mu_;
  std::optional<SequenceId> id_ GUARDED_BY(mu_);
  bool cancel_wanted_ GUARDED_BY(mu_) = false;
  bool unpause_wanted_ GUARDED_BY(mu_) = false;
  std::deque<engine::TokenEvent> pending_ GUARDED_BY(mu_);
  int64_t pending_bytes_ GUARDED_BY(mu_) = 0;
  bool writing_ GUARDED_BY(mu_) = false;  // A write is in flight.
  TimeNs write_began_ GUARDED_BY(mu_) = 0;
  bool paused_ GUARDED_BY(mu_) = false;  // Push has said so.
  bool reader_gone_ GUARDED_BY(mu_) = false;
  bool finished_ GUARDED_BY(mu_) = false;         // Finish has been or is being called.
  std::optional<Status> status_ GUARDED_BY(mu_);  // How the call ends once what waits is written.
  std::optional<Status> cut_ GUARDED_BY(mu_);     // How it ends behind what is in flight; nothing more is taken then.
  RequestSummary summary_ GUARDED_BY(mu_);
  v1::Delta whole_ GUARDED_BY(mu_);  // What stream=false gathers for its one message.
  v1::GenerateResponse message_;     // In flight: belongs to the writer until OnWriteDone.
};

}  // namespace invar::server
