// VerifySession: a run for a consumer whose prefix is on its way to it (verify_protocol.h), as the producer sees it: a
// request like any other, whose tokens go out, and whose drafts come from outside. So every law of speculation holds,
// and what comes out is what decoding gives, whatever the drafts say.
//
// It decodes by itself until the consumer drafts. From then on it stands behind each draft until the next one comes, so
// that its steps are left to others; one that stays out for two beats is not waited for any more.
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/draft_offers.h"
#include "engine/engine.h"
#include "engine/verify_protocol.h"

namespace invar::engine {

class VerifySession final : public EventSink, public std::enable_shared_from_this<VerifySession> {
 public:
  struct Wanted {
    std::string request_id;
    VerifyOpenFrame open;
    TimeNs deadline = kNever;
  };
  // Tokens, or how it ended: the last call.
  using Event = std::variant<VerifiedFrame, Status>;
  using Take = std::function<void(Event)>;

  // `take` is called on the engine's thread, so that it hands over and does nothing more, or on this one before this
  // returns. A call that is under way may end after Cancel has. Errors, through `take`: as Engine::Submit and those of
  // FailedEvent. Requires: the identities agree; `engine` outlives the request.
  static std::shared_ptr<VerifySession> Begin(Engine& engine, Wanted wanted, Take take);

  // Guesses of the consumer, verified as many at a time as a step has room for; none: it has none, and a token is
  // sampled without. Errors: INVALID_ARGUMENT (no token ids, a place that cannot be, too many).
  Status Offer(DraftFrame draft);
  // So many of the tokens that were handed over have been written to the consumer.
  void Written(int64_t tokens);
  // A beat is over.
  void Beat();
  // Nobody waits for it any more.
  void Cancel();

  bool Push(TokenEvent event) override;

 private:
  VerifySession(Engine& engine, Wanted wanted, Take take)
      : engine_(engine),
        prompt_tokens_(static_cast<int32_t>(wanted.open.prompt.size())),
        wanted_(std::move(wanted)),
        take_(std::move(take)) {}
  void Submit();
  // Says where its tokens stand, or takes them out where nobody wants them any more. False: the engine is to wait.
  bool Note(VerifiedFrame& frame);
  // Whether nothing of the draft is left: the output token before `next_` is its last or was not its.
  bool StandsBehindDraft() const REQUIRES_LOCK(mu_);
  bool MustStand() const REQUIRES_LOCK(mu_);
  // Goes on where it stands and need not any more.
  void GoOn();
  void End(Status status);

  // Set at construction.
  Engine& engine_;
  const int32_t prompt_tokens_;
  const Wanted wanted_;
  const Take take_;
  const std::shared_ptr<DraftOffers> offers_ = std::make_shared<DraftOffers>();

  Mutex mu_;
  std::optional<SequenceId> running_ GUARDED_BY(mu_);
  bool has_ended_ GUARDED_BY(mu_) = false;
  bool stands_ GUARDED_BY(mu_) = false;          // The engine was told so.
  int32_t next_ GUARDED_BY(mu_) = 0;             // Output token.
  int64_t unwritten_ GUARDED_BY(mu_) = 0;        // Tokens.
  bool drafts_ GUARDED_BY(mu_) = false;          // The consumer does.
  int silent_beats_ GUARDED_BY(mu_) = 0;         // While it stands.
  DraftFrame draft_ GUARDED_BY(mu_);             // The last one.
  std::optional<TokenId> last_ GUARDED_BY(mu_);  // Output token before next_.
};

}  // namespace invar::engine
