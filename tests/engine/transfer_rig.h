// Two engines and the two ends of a transfer in one thread: frames go from hand to hand, and a test may do to each of
// them what a link, a machine or a stranger would.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_export.h"
#include "engine/prefix_receiver.h"
#include "engine/prefix_sender.h"
#include "engine/remote_run.h"
#include "engine/verify_session.h"

namespace invar::engine {

// What becomes of one frame from the producer.
enum class Fate { kArrives, kLost, kTwice, kCuts, kFreezes };

class DirectSource final : public PrefixSource {
 public:
  struct Options {
    int64_t credit_bytes = kChunkBytesMax;
    int64_t bytes_max = int64_t{1} << 30;
    int64_t chunk_bytes = kChunkBytesMax;
    int64_t frames_per_step = INT64_MAX;  // Of a prefix: a slow link.
  };
  explicit DirectSource(const Options& options) : options_(options) {}

  // Who computes, and as what the two ends present themselves.
  void Serve(Engine& producer) {
    producer_ = &producer;
    consumer_identity = producer_identity = IdentityOf(producer.spec());
  }
  // What the producer may code prefixes by.
  const ScdProfiles* profiles = nullptr;
  TransferIdentity consumer_identity;
  TransferIdentity producer_identity;
  // Asked of each frame from the producer, counted from 0; may change it.
  std::function<Fate(int index, ProducerFrame& frame)> tamper;
  int frames_sent() const { return frames_sent_; }  // By the producer, in the last transfer.
  // Alike of what a run elsewhere gives.
  std::function<Fate(int index, VerifiedFrame& frame)> tamper_run;
  int run_frames_sent() const { return run_frames_sent_; }
  // Alike of a view; false: the rest of it is lost.
  std::function<bool(int index, ProducerFrame& frame)> tamper_view;
  int views_brought() const { return views_brought_; }
  int64_t waiting() const { return static_cast<int64_t>(calls_.size()); }

  void Fetch(const int64_t ticket, PrefixWant want, Done done) override {
    auto call = std::make_shared<Call>();
    call->ticket = ticket;
    call->done = std::move(done);
    call->run = want.run;
    call->receiver = std::make_unique<PrefixReceiver>(PrefixReceiver::Options{.identity = consumer_identity,
                                                                              .epoch = ++epoch_,
                                                                              .credit_bytes = options_.credit_bytes,
                                                                              .bytes_max = options_.bytes_max},
                                                      std::move(want));
    call->sender = std::make_unique<PrefixSender>(
        producer_identity,
        PrefixSender::Limits{.tokens_max = 1 << 20, .salt_bytes_max = 256, .chunk_bytes = options_.chunk_bytes},
        profiles);
    frames_sent_ = 0;
    run_frames_sent_ = 0;
    calls_.push_back(call);
    if (call->run != nullptr) return BeginRun(*call);
    BeginFetch(*call);
  }

  void Cancel(const int64_t ticket) override {
    std::erase_if(calls_, [&](const std::shared_ptr<Call>& call) {
      if (call->ticket == ticket) Drop(*call);
      return call->ticket == ticket;
    });
  }

  // Everything that can move does, once.
  void Work() {
    producer_->RunOneStep();
    const auto calls = calls_;
    for (const std::shared_ptr<Call>& call : calls) {
      if (call->session != nullptr) CarryRun(*call);
      for (StatusOr<PrefixPart>& part : std::exchange(call->parts, {})) {
        if (part.ok()) {
          call->sender->Offer(*std::move(part));
        } else {
          call->receiver->Fail(TransferFault::kFailed, part.status().message());
        }
      }
      Carry(*call);
      if (!call->receiver->has_ended()) continue;
      if (call->sender->aborted().has_value()) CarryAnswer(*call);
      std::erase(calls_, call);
      Drop(*call);
      call->done(call->receiver->Take());
    }
  }

 private:
  struct Call {
    int64_t ticket = 0;
    Done done;
    std::unique_ptr<PrefixReceiver> receiver;
    std::unique_ptr<PrefixSender> sender;
    std::shared_ptr<PrefixExport> exported;
    std::vector<StatusOr<PrefixPart>> parts;
    bool is_frozen = false;
    std::shared_ptr<RemoteRun> run;
    std::shared_ptr<VerifySession> session;
    bool has_view = false;  // It was asked for, whatever came of it.
    std::vector<VerifySession::Event> events;
    bool is_run_frozen = false;
  };

  static void Drop(Call& call) {
    if (call.exported != nullptr) call.exported->Cancel();
    if (call.run != nullptr) call.run->SetSender({});
    if (call.session != nullptr) call.session->Cancel();
  }

  // The prefix is asked for behind the first token, or where none comes.
  void BeginRun(Call& call) {
    call.run->SetSender([] {});
    call.session =
        VerifySession::Begin(*producer_, {.request_id = "peer", .open = call.run->open()},
                             [&call](VerifySession::Event event) { call.events.push_back(std::move(event)); });
  }
  void CarryRun(Call& call) {
    if (std::optional<DraftFrame> draft = call.run->NextDraft(); draft.has_value() && !call.is_run_frozen) {
      EXPECT_TRUE(call.session->Offer(*std::move(draft)).ok());
    }
    for (VerifySession::Event& event : std::exchange(call.events, {})) {
      auto* const frame = std::get_if<VerifiedFrame>(&event);
      Fate fate = Fate::kCuts;
      if (call.is_run_frozen) continue;
      if (frame != nullptr) {
        fate = tamper_run ? tamper_run(run_frames_sent_, *frame) : Fate::kArrives;
        ++run_frames_sent_;
      }
      call.is_run_frozen = fate == Fate::kFreezes;
      const bool arrives = fate == Fate::kArrives || fate == Fate::kTwice;
      for (int times = fate == Fate::kTwice ? 2 : 1; times > 0 && arrives; --times) {
        call.session->Written(std::ssize(frame->tokens));
        if (!call.run->Take(*frame).ok()) fate = Fate::kCuts;
      }
      if (!std::exchange(call.has_view, true) && fate != Fate::kCuts && !call.run->view_wish().compressor.empty()) {
        BringView(call);
      }
      if (call.exported == nullptr && !call.receiver->has_ended()) BeginFetch(call);
      if (fate != Fate::kCuts) continue;
      call.run->SetSender({});
      call.session->Cancel();
      call.session = nullptr;
      return;
    }
  }

  // At once, over a wire of its own.
  void BringView(Call& call) {
    const VerifyOpenFrame& open = call.run->open();
    PrefixReceiver receiver(
        {.identity = consumer_identity,
         .epoch = ++epoch_,
         .credit_bytes = options_.credit_bytes,
         .bytes_max = options_.bytes_max},
        {.scope = open.scope, .tokens = {open.prompt.begin(), open.prompt.end() - 1}, .view = call.run->view_wish()});
    PrefixSender sender(producer_identity,
                        {.tokens_max = 1 << 20, .salt_bytes_max = 256, .chunk_bytes = options_.chunk_bytes});
    EXPECT_TRUE(sender.Open(receiver.Open()).ok());
    std::optional<StatusOr<PrefixPart>> part;
    const auto exported = PrefixExport::Begin(
        *producer_, {.request_id = "peer", .scope = open.scope, .tokens = receiver.Open().tokens, .only_cached = true},
        [&](StatusOr<PrefixPart> came) { part = std::move(came); });
    for (int steps = 0; steps < 100 && !part.has_value(); ++steps) producer_->RunOneStep();
    ASSERT_TRUE(part.has_value());
    if (!part->ok()) return;  // Not in the cache.
    sender.Offer(producer_->MakeView(std::get<cache::PrefixImage>(**part), call.run->view_wish()).value());
    int index = 0;
    while (std::optional<ProducerFrame> frame = sender.Next()) {
      if (tamper_view && !tamper_view(index++, *frame)) return;
      for (const ConsumerFrame& answer : receiver.On(*frame)) {
        if (!sender.On(answer).ok()) return;
      }
    }
    if (!receiver.is_complete()) return;
    EXPECT_TRUE(call.run->TakeView(*receiver.Take().view).ok());
    ++views_brought_;
  }

  void BeginFetch(Call& call_now) {
    Call* const call = &call_now;
    const OpenFrame open = call->receiver->Open();
    if (const Status opened = call->sender->Open(open); !opened.ok()) {
      const bool refused = opened.code() == StatusCode::kFailedPrecondition;
      call->receiver->Fail(refused ? TransferFault::kRefused : TransferFault::kProtocol, opened.message());
      return;
    }
    call->exported = PrefixExport::Begin(*producer_,
                                         {.request_id = "peer",
                                          .scope = open.scope,
                                          .tokens = open.tokens,
                                          .have_kv = open.have_kv,
                                          .have_state = open.have_state,
                                          .deadline = kNever,
                                          .coded = call->sender->coded()},
                                         [call](StatusOr<PrefixPart> part) { call->parts.push_back(std::move(part)); });
  }

  void Carry(Call& call) {
    for (int64_t i = 0; i < options_.frames_per_step && !call.receiver->has_ended() && !call.is_frozen; ++i) {
      std::optional<ProducerFrame> frame = call.sender->Next();
      if (!frame.has_value()) return;
      const Fate fate = tamper ? tamper(frames_sent_, *frame) : Fate::kArrives;
      ++frames_sent_;
      if (fate == Fate::kCuts) return call.receiver->Fail(TransferFault::kCut, "the link was cut");
      call.is_frozen = fate == Fate::kFreezes;
      if (fate == Fate::kFreezes || fate == Fate::kLost) continue;
      for (int times = fate == Fate::kTwice ? 2 : 1; times > 0; --times) {
        for (const ConsumerFrame& answer : call.receiver->On(*frame)) {
          if (!call.sender->On(answer).ok()) break;
        }
      }
    }
  }

  static void CarryAnswer(Call& call) {
    EXPECT_EQ(call.sender->memory_bytes(), 0);
    while (std::optional<ProducerFrame> frame = call.sender->Next()) call.receiver->On(*frame);
    EXPECT_TRUE(call.receiver->is_released());
  }

  const Options options_;
  Engine* producer_ = nullptr;
  uint64_t epoch_ = 0;
  int frames_sent_ = 0;
  int run_frames_sent_ = 0;
  int views_brought_ = 0;
  std::vector<std::shared_ptr<Call>> calls_;
};

// Neither side waits for anything or holds memory of a request.
inline void ExpectNothingHeld(Engine& consumer, Engine& producer, const DirectSource& source) {
  for (Engine* const engine : {&consumer, &producer}) {
    while (engine->RunOneStep()) {
    }
    engine->CheckIntegrity();
    EXPECT_EQ(engine->Stats().pages_used, 0);
    EXPECT_EQ(engine->Stats().running + engine->Stats().waiting, 0);
  }
  EXPECT_EQ(source.waiting(), 0);
  EXPECT_EQ(consumer.Stats().transfer.under_way, 0);
}

}  // namespace invar::engine
