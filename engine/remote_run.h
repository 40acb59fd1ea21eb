// RemoteRun: a request that is run where its prefix lies while that is on its way here, as the consumer sees it: tokens
// that were verified there wait in it until the engine takes them, and so does a view of the prefix, which the engine
// may draft on; its guesses wait for who sends them. Tokens are those of a run here, so where the run ends, for
// whatever reason, the engine goes on from what it took: nothing of a run is ever taken back. Threads: those of the
// source and the engine's; shared, because either may end first.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/prefix_view.h"
#include "engine/request.h"
#include "engine/verify_protocol.h"

namespace invar::engine {

class RemoteRun {
 public:
  struct Token {
    TokenId id;
    std::optional<TokenLogprob> logprob;
  };
  using Import = std::function<StatusOr<ImportedView>(PrefixView)>;
  struct Options {
    int32_t usable_ids = 0;      // As the engine's.
    WantedView view = {};        // That it drafts on; without a compressor: none.
    Import import = {};          // Of such a view; any thread.
    std::function<void()> wake;  // Something has come; called by Take and TakeView.
  };
  // `open`: all but the identity.
  RemoteRun(VerifyOpenFrame open, Options options) : open_(std::move(open)), options_(std::move(options)) {}

  // --- The source's ---
  const VerifyOpenFrame& open() const { return open_; }
  const WantedView& view_wish() const { return options_.view; }
  // What came before, of whichever producer, is left out: it says the same. Errors: INVALID_ARGUMENT
  // (tokens are missing before it, or it is not what was asked for), DATA_LOSS (its checksum); nothing of it is taken.
  Status Take(VerifiedFrame frame);
  // Errors: those of ImportPrefixView; nothing of it is taken.
  Status TakeView(PrefixView view);
  // What is called when there is a draft to send, under this one's lock; empty: nobody sends any more.
  void SetSender(std::function<void()> sender);
  // The latest, once.
  std::optional<DraftFrame> NextDraft();

  // --- The engine's ---
  // The next token; nullopt: none before Take.
  std::optional<Token> Next();
  // Once it has come, once.
  std::optional<ImportedView> NextView();
  // Whether somebody sends drafts.
  bool has_sender();
  // A later draft replaces one that has not been sent.
  void Offer(DraftFrame draft);

 private:
  Status WhyNot(const VerifiedFrame& frame) const;

  // Set at construction.
  const VerifyOpenFrame open_;
  const Options options_;

  Mutex mu_;
  int32_t taken_ GUARDED_BY(mu_) = 0;  // Tokens that have come.
  std::deque<Token> waiting_ GUARDED_BY(mu_);
  std::optional<ImportedView> view_ GUARDED_BY(mu_);
  std::optional<DraftFrame> draft_ GUARDED_BY(mu_);
  std::function<void()> sender_ GUARDED_BY(mu_);
};

}  // namespace invar::engine
