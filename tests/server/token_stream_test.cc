// One request's output towards a writer that the test completes by hand: one write in flight, merged deltas, a bound
// that pauses, and exactly one end.
#include "server/calls/token_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace invar::server {
namespace {

class ManualWriter final : public MessageWriter {
 public:
  void Write(const v1::GenerateResponse* message) override {
    MutexLock lock(mu_);
    Check(!in_flight_, "one write in flight");
    NoteThread();
    in_flight_ = true;
    messages_.push_back(*message);
    changed_.NotifyAll();
  }
  void Finish(const Status& status) override {
    MutexLock lock(mu_);
    Check(!status_, "one end");
    NoteThread();
    status_ = status;
    changed_.NotifyAll();
  }

  // Waits for message number `count` (from 1) and gives it.
  v1::GenerateResponse Await(const size_t count) {
    MutexLock lock(mu_);
    while (messages_.size() < count) changed_.Wait(mu_);
    return messages_[count - 1];
  }
  Status AwaitEnd() {
    MutexLock lock(mu_);
    while (!status_) changed_.Wait(mu_);
    return *status_;
  }
  void Complete(TokenStream& stream, const bool ok = true) {
    {
      MutexLock lock(mu_);
      in_flight_ = false;
    }
    stream.OnWriteDone(ok);
  }
  size_t count() {
    MutexLock lock(mu_);
    return messages_.size();
  }
  size_t thread_count() {
    MutexLock lock(mu_);
    return threads_.size();
  }
  bool ended() {
    MutexLock lock(mu_);
    return status_.has_value();
  }

 private:
  void NoteThread() REQUIRES_LOCK(mu_) { threads_.insert(std::this_thread::get_id()); }

  Mutex mu_;
  CondVar changed_;
  std::set<std::thread::id> threads_ GUARDED_BY(mu_);
  bool in_flight_ GUARDED_BY(mu_) = false;
  std::vector<v1::GenerateResponse> messages_ GUARDED_BY(mu_);
  std::optional<Status> status_ GUARDED_BY(mu_);
};

// Moves when told to; read by the writers' thread meanwhile.
class HandClock final : public Clock {
 public:
  TimeNs Now() const override { return now_; }
  void Advance(const TimeNs by) { now_ += by; }

 private:
  std::atomic<TimeNs> now_ = 1;
};

class TokenStreamTest : public testing::Test {
 protected:
  TokenStreamTest()
      : engine_(
            *engine::Engine::Create({.kv_budget_bytes = 1 << 20}, models::MakeFingerprintModel({}), nullptr, clock_)) {}

  std::shared_ptr<TokenStream> Make(const bool stream, const int64_t bytes_max = 1 << 20) {
    AnswerForm form;
    form.stream = stream;
    form.token_ids = true;
    return std::make_shared<TokenStream>(
        TokenStream::Options{.form = form, .pending_bytes_max = bytes_max, .arrived = 0}, writer_, *engine_, writers_,
        metrics_, clock_);
  }
  static engine::DeltaEvent Delta(const std::string& text, const int32_t id) {
    return {.text = text, .tokens = {TokenId(id)}, .logprobs = {}};
  }

  HandClock clock_;
  Metrics metrics_{false};
  std::unique_ptr<engine::Engine> engine_;
  ManualWriter writer_;
  TurnQueue writers_;
};

TEST_F(TokenStreamTest, MergesDeltasThatWaitBehindAWrite) {
  const auto stream = Make(true);
  EXPECT_TRUE(stream->Push(engine::StartedEvent{.prompt_tokens = 3, .reuse = {}}));
  EXPECT_TRUE(writer_.Await(1).has_started());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(stream->Push(Delta("x", i)));
  EXPECT_EQ(writer_.count(), 1U) << "one write in flight";
  writer_.Complete(*stream);
  const v1::GenerateResponse merged = writer_.Await(2);
  EXPECT_EQ(merged.delta().text(), "xxxxx");
  EXPECT_EQ(merged.delta().token_ids_size(), 5);
  engine::FinishedEvent finished;
  finished.text_tail = "tail";
  stream->Push(finished);
  writer_.Complete(*stream);
  EXPECT_EQ(writer_.Await(3).delta().text(), "tail");
  writer_.Complete(*stream);
  EXPECT_TRUE(writer_.Await(4).has_finished());
  EXPECT_FALSE(writer_.ended());
  writer_.Complete(*stream);
  EXPECT_TRUE(writer_.AwaitEnd().ok());
}

TEST_F(TokenStreamTest, GathersEverythingIntoFinishedWithoutStreaming) {
  const auto stream = Make(false);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);
  writer_.Complete(*stream);
  stream->Push(Delta("a", 1));
  stream->Push(Delta("b", 2));
  engine::FinishedEvent finished;
  finished.text_tail = "c";
  stream->Push(finished);
  const v1::GenerateResponse last = writer_.Await(2);
  EXPECT_EQ(last.finished().text(), "abc");
  EXPECT_EQ(last.finished().token_ids_size(), 2);
  writer_.Complete(*stream);
  EXPECT_TRUE(writer_.AwaitEnd().ok());
}

TEST_F(TokenStreamTest, SaysSoWhenTheReaderIsBehindItsBound) {
  const auto stream = Make(true, 2000);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);  // Never completed: the reader does not take it.
  int taken = 0;
  while (stream->Push(Delta("0123456789", taken)) && taken < 1000) ++taken;
  EXPECT_GT(taken, 2);
  EXPECT_LT(taken, 20);
}

// What the log needs of it is a few numbers; what was said is handed over once and kept nowhere else.
TEST_F(TokenStreamTest, CountsAndSummarizesTheEndByWhatItHolds) {
  const auto stream = Make(true, 4000);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);  // Never completed.
  engine::FinishedEvent finished;
  finished.reason = engine::FinishReason::kStop;
  finished.cached_tokens = 5;
  finished.preemptions = 2;
  finished.queued_for = 7;
  engine::TokenLogprob logprob;
  logprob.top.resize(2);
  finished.prompt_logprobs.resize(100, logprob);
  EXPECT_FALSE(stream->Push(std::move(finished))) << "a hundred entries are more than 4000 bytes";
  const RequestSummary summary = stream->summary();
  ASSERT_TRUE(summary.finished.has_value());
  EXPECT_EQ(summary.finished->reason, engine::FinishReason::kStop);
  EXPECT_EQ(summary.finished->cached_tokens, 5);
  EXPECT_EQ(summary.finished->preemptions, 2);
  EXPECT_EQ(summary.finished->queued_for, 7);
}

// What was posted to a queue of fixed length could be more than it holds: streams that were reset still wait in it.
TEST_F(TokenStreamTest, AnyNumberOfStreamsMayWaitForTheirTurn) {
  constexpr int kStreams = 5000;
  std::vector<std::unique_ptr<ManualWriter>> writers;
  std::vector<std::shared_ptr<TokenStream>> streams;
  AnswerForm form;
  form.stream = true;
  for (int i = 0; i < kStreams; ++i) {
    writers.push_back(std::make_unique<ManualWriter>());
    streams.push_back(
        std::make_shared<TokenStream>(TokenStream::Options{.form = form, .pending_bytes_max = 1 << 20, .arrived = 0},
                                      *writers.back(), *engine_, writers_, metrics_, clock_));
  }
  for (const auto& stream : streams) stream->Push(engine::FailedEvent{Status(StatusCode::kAborted, "over")});
  for (int i = 0; i < kStreams; ++i) EXPECT_EQ(writers[i]->AwaitEnd().code(), StatusCode::kAborted) << i;
}

TEST_F(TokenStreamTest, EndsBehindAStuckWriteWhenTheEngineGivesUpOnTheReader) {
  const auto stream = Make(true, 100);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);
  while (stream->Push(Delta("0123456789", 1))) {
  }
  stream->Push(engine::FailedEvent{Status(StatusCode::kAborted, "stalled")});
  EXPECT_EQ(writer_.AwaitEnd().code(), StatusCode::kAborted);
  writer_.Complete(*stream);  // Comes later; changes nothing.
  EXPECT_EQ(writer_.count(), 1U);
}

TEST_F(TokenStreamTest, AFailureEndsTheCallAfterWhatWasWritten) {
  const auto stream = Make(true);
  stream->Push(engine::FailedEvent{Status(StatusCode::kDeadlineExceeded, "late")});
  EXPECT_EQ(writer_.AwaitEnd().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(writer_.count(), 0U);
}

TEST_F(TokenStreamTest, WritesNothingMoreOnceTheReaderIsGone) {
  const auto stream = Make(true);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);
  stream->OnReaderGone();
  writer_.Complete(*stream, /*ok=*/false);
  stream->Push(Delta("x", 1));
  stream->Push(engine::FailedEvent{Status(StatusCode::kCancelled, "gone")});
  EXPECT_EQ(writer_.AwaitEnd().code(), StatusCode::kCancelled);
  EXPECT_EQ(writer_.count(), 1U);
}

TEST_F(TokenStreamTest, AWriteThatFailsCancelsTheRequestInTheEngine) {
  const auto stream = Make(true);
  engine::Request request;
  request.prompt = {TokenId(1)};
  request.stopping.max_tokens = 1000;
  const StatusOr<SequenceId> id = engine_->Submit(request, stream);
  ASSERT_TRUE(id.ok()) << id.status().message();
  stream->SetId(*id);
  ASSERT_TRUE(engine_->RunOneStep());
  writer_.Await(1);
  writer_.Complete(*stream, /*ok=*/false);
  engine_->RunOneStep();
  EXPECT_EQ(engine_->Stats().cancelled, 1);
  EXPECT_EQ(writer_.AwaitEnd().code(), StatusCode::kCancelled);
}

TEST_F(TokenStreamTest, CutsAReaderThatStallsAfterTheEngineHasFinished) {
  const auto stream = Make(true);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);
  stream->Push(engine::FinishedEvent{});
  clock_.Advance(999);
  stream->CutStalledReader(1000);
  clock_.Advance(1);
  stream->CutStalledReader(1000);
  stream->CutStalledReader(1000);
  EXPECT_EQ(writer_.AwaitEnd().code(), StatusCode::kAborted);
  writer_.Complete(*stream);  // Comes later; changes nothing.
  EXPECT_EQ(writer_.count(), 1U);
}

TEST_F(TokenStreamTest, DoesNotCutAReaderThatOnlyHasNothingToRead) {
  const auto stream = Make(true);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);
  writer_.Complete(*stream);
  clock_.Advance(5000);
  stream->CutStalledReader(1000);
  stream->Push(engine::FinishedEvent{});
  EXPECT_TRUE(writer_.Await(2).has_finished());
  writer_.Complete(*stream);
  EXPECT_TRUE(writer_.AwaitEnd().ok());
}

TEST_F(TokenStreamTest, OneThreadAloneCallsTheWriter) {
  const auto stream = Make(true);
  stream->Push(engine::StartedEvent{});
  writer_.Await(1);
  stream->Push(Delta("x", 1));
  writer_.Complete(*stream);  // From this thread, as gRPC completes from its own.
  writer_.Await(2);
  stream->Push(engine::FailedEvent{Status(StatusCode::kDeadlineExceeded, "late")});
  EXPECT_EQ(writer_.AwaitEnd().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(writer_.thread_count(), 1U);
}

}  // namespace
}  // namespace invar::server
