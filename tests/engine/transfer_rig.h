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

namespace invar::engine {

// What becomes of one frame from the producer.
enum class Fate { kArrives, kLost, kTwice, kCuts, kFreezes };

class DirectSource final : public PrefixSource {
 public:
  struct Options {
    int64_t credit_bytes = kChunkBytesMax;
    int64_t bytes_max = int64_t{1} << 30;
    int64_t chunk_bytes = kChunkBytesMax;
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
  int64_t waiting() const { return static_cast<int64_t>(calls_.size()); }

  void Fetch(const int64_t ticket, PrefixWant want, Done done) override {
    auto call = std::make_shared<Call>();
    call->ticket = ticket;
    call->done = std::move(done);
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
    calls_.push_back(call);
    const OpenFrame open = call->receiver->Open();
    if (const Status opened = call->sender->Open(open); !opened.ok()) {
      const bool refused = opened.code() == StatusCode::kFailedPrecondition;
      call->receiver->Fail(refused ? TransferFault::kRefused : TransferFault::kProtocol, opened.message());
      return;
    }
    call->exported =
        PrefixExport::Begin(*producer_,
                            {.request_id = "peer",
                             .scope = open.scope,
                             .tokens = open.tokens,
                             .have_kv = open.have_kv,
                             .have_state = open.have_state,
                             .deadline = kNever,
                             .coded = call->sender->coded()},
                            [call = call.get()](StatusOr<PrefixPart> part) { call->parts.push_back(std::move(part)); });
  }

  void Cancel(const int64_t ticket) override {
    std::erase_if(calls_, [&](const std::shared_ptr<Call>& call) {
      if (call->ticket != ticket) return false;
      if (call->exported != nullptr) call->exported->Cancel();
      return true;
    });
  }

  // Everything that can move does, once.
  void Work() {
    producer_->RunOneStep();
    const auto calls = calls_;
    for (const std::shared_ptr<Call>& call : calls) {
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
      if (call->exported != nullptr) call->exported->Cancel();
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
  };

  void Carry(Call& call) {
    while (!call.receiver->has_ended() && !call.is_frozen) {
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
