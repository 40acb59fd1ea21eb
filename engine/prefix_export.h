// PrefixExport: a prefix for another instance: out of the cache where that has nearly all of it, or run as a request
// that generates nothing, in its tenant's turn, with the cache, preemption and limits that every request has; then it
// comes in parts, while it runs. Codes for one of other weights are made of what layers read, which is in no cache:
// they are run, but for those that lie on a shelf.
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
#include "base/fingerprint.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "cache/prefix_image.h"
#include "cache/scope.h"
#include "engine/code_shelf.h"
#include "engine/engine.h"
#include "engine/transfer_protocol.h"

namespace invar::engine {

// What of a prefix that is run follows the parts before.
struct PrefixLayers {
  int32_t first_page = 0;   // Of the whole prefix,
  int32_t end = 0;          // how far it reaches,
  int32_t piece_pages = 0;  // and in what pieces it comes (ManifestFrame).
  std::vector<LayerPart> layers = {};
  bool is_last = false;
};
// Alike of its codes.
struct PrefixCodes {
  int32_t end = 0;
  std::vector<CodedPart> codes = {};
  bool is_last = false;
};
// All codes of a prefix that lay on a shelf, which has them too.
struct ShelvedCodes {
  int32_t end = 0;
  std::shared_ptr<const CodeShelf::Codes> codes;
};
// The image is all of a prefix that lay ready.
// A view is made of an image by whoever passes it on (MakePrefixView): what it takes is none of the engine's time.
using PrefixPart = std::variant<cache::PrefixImage, PrefixLayers, PrefixCodes, ShelvedCodes, PrefixView>;
bool IsLast(const PrefixPart& part);

class PrefixExport final : public EventSink, public std::enable_shared_from_this<PrefixExport> {
 public:
  struct Wanted {
    std::string request_id;
    cache::Scope scope;
    std::vector<TokenId> tokens;
    int32_t have_kv = 0;     // Of the consumer.
    int32_t have_state = 0;  // Alike: the prefix must reach further.
    TimeNs deadline = kNever;
    std::optional<CodedExport> coded = {};  // Given: codes are wanted, of the whole prefix.
    CodeShelf* shelf = nullptr;             // Where they may be kept; null: nowhere. Outlives the last request.
    // Nothing is run for it. Errors: NOT_FOUND where the cache has not nearly all of it.
    bool only_cached = false;
  };
  using Take = std::function<void(StatusOr<PrefixPart>)>;

  // `take` is called for part after part, or at any point with an error, which is the last call; on the engine's
  // thread, so that it hands them over and does nothing more, or on this one before this returns. A call that is under
  // way may end after Cancel has. Errors, through `take`: as Engine::Submit and those of FailedEvent. Requires:
  // `engine` outlives the last of its requests.
  static std::shared_ptr<PrefixExport> Begin(Engine& engine, Wanted wanted, Take take);

  // Nobody waits for it any more.
  void Cancel();

  bool Push(TokenEvent event) override;

 private:
  PrefixExport(Engine& engine, Wanted wanted, Take take)
      : engine_(engine),
        wanted_(std::move(wanted)),
        end_(static_cast<int32_t>(wanted_.tokens.size())),
        first_page_(wanted_.coded.has_value() ? 0 : FirstPageToSend(wanted_.have_kv, end_)),
        take_(std::move(take)) {
    if (wanted_.coded.has_value() && wanted_.shelf != nullptr) {
      shelf_key_ = CodeShelf::KeyOf(*wanted_.coded, wanted_.scope, wanted_.tokens);
    }
  }
  // Of the cache; nullopt: it has too little.
  void TakeCached(std::optional<cache::PrefixImage> image);
  // Of the shelf, or run.
  void TakeShelved(int64_t flushes);
  void Run();
  void Give(StatusOr<PrefixPart> part);

  // Set at construction.
  Engine& engine_;
  Wanted wanted_;  // Its tokens go into what is run.
  const int32_t end_;
  const int32_t first_page_;
  const Take take_;
  std::optional<Digest> shelf_key_;  // Of codes that may be kept.

  // Engine thread only.
  int64_t flushes_ = 0;
  CodeShelf::Codes kept_;  // As far as they went out.

  Mutex mu_;
  bool has_ended_ GUARDED_BY(mu_) = false;
  std::optional<SequenceId> running_ GUARDED_BY(mu_);
};

}  // namespace invar::engine
