// PrefixSender: the producer's side of one transfer as a state machine of frames (transfer_protocol.h). Who drives it
// brings the frames that came, the prefix once it is there, and takes what is to be sent next.
//   Open -> (the driver finds or computes it) -> Offer* -> Next* with Offer* and On* between -> acknowledged, or
//   aborted: nothing is offered any more, Next gives the answer, and then it is released
// Threads: its driver's, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "cache/prefix_image.h"
#include "engine/byte_queue.h"
#include "engine/prefix_export.h"
#include "engine/transfer_protocol.h"

namespace invar::engine {

class PrefixSender {
 public:
  // What a transfer may ask for.
  struct Limits {
    int32_t tokens_max = 0;
    int64_t salt_bytes_max = 0;
    int64_t chunk_bytes = kChunkBytesMax;
  };
  // `profiles`: what prefixes may be coded by; null: they may not. Requires: it outlives this.
  PrefixSender(TransferIdentity identity, const Limits& limits, const ScdProfiles* const profiles = nullptr)
      : identity_(std::move(identity)), limits_(limits), profiles_(profiles) {}

  // Errors: FAILED_PRECONDITION naming the field in which the two differ; INVALID_ARGUMENT.
  Status Open(const OpenFrame& open);
  // What the prefix is to be offered as: in codes; or as a view, where one names a compressor; or as it is. Requires:
  // Open.
  const std::optional<CodedExport>& coded() const { return coded_; }
  const WantedView& view() const { return view_wish_; }
  // Memory that the copy of the prefix takes while it is on its way. Requires: Open.
  int64_t prefix_bytes() const { return prefix_bytes_; }
  // What goes out now, as far as credits reach; parts in order, while the rest is computed. Requires: Open; the prefix
  // reaches further than the consumer is; it was not aborted.
  void Offer(PrefixPart part);
  // A frame from the consumer. Effects: an Abort lets go of what was offered. Errors end the transfer: INVALID_ARGUMENT
  // (it does not follow the protocol).
  Status On(const ConsumerFrame& frame);
  // The next frame; nullopt: none before something comes.
  std::optional<ProducerFrame> Next();

  // The consumer has all and said so.
  bool acknowledged() const { return acknowledged_; }
  // The consumer gave up, and why.
  const std::optional<AbortFrame>& aborted() const { return aborted_; }
  // Its answer was taken: there is nothing more to say.
  bool released() const { return state_ == State::kReleased; }
  int64_t sent_bytes() const { return sent_bytes_; }
  // Of the memory that holds what was offered. It lies here once: parts stay where they came in, and go as they are
  // sent. What lies on a shelf too is counted there.
  int64_t memory_bytes() const;

 private:
  enum class State { kNew, kOpen, kOffered, kAnnounced, kGranted, kCommitted, kReleased };
  Status CheckWhoAsks(const OpenFrame& open);
  int64_t BytesOf(const OpenFrame& open) const;
  Status OnAbort(const AbortFrame& abort);
  void LetGo();
  Status OnGrant(const GrantFrame& grant);
  Status OnCredit(uint64_t epoch, int64_t bytes);
  // What a prefix that was offered in parts has of a layer and has not sent: chunks go in the order of each queue.
  struct Layer {
    ByteQueue body = {};     // Pages or codes,
    int64_t body_bytes = 0;  // so many in all.
    ByteQueue state = {};
    int64_t state_bytes = 0;
  };
  void Announce(ManifestFrame manifest);
  void OfferImage(cache::PrefixImage image);
  void OfferLayers(PrefixLayers part);
  void OfferCodes(PrefixCodes part);
  void OfferShelved(ShelvedCodes part);
  void OfferView(PrefixView view);
  Status CheckView(const OpenFrame& open) const;
  void CheckWhole() const;
  bool IsThere(const ChunkHeader& chunk);
  ByteQueue& QueueOf(const ChunkHeader& chunk);
  ChunkFrame NextChunk();

  // Set at construction.
  const TransferIdentity identity_;
  const Limits limits_;
  const ScdProfiles* const profiles_;

  std::optional<CodedExport> coded_;
  WantedView view_wish_;
  int64_t prefix_bytes_ = 0;
  State state_ = State::kNew;
  bool acknowledged_ = false;
  std::optional<AbortFrame> aborted_;
  std::optional<cache::PrefixImage> image_;          // Of a prefix that lay ready,
  std::shared_ptr<const CodeShelf::Codes> shelved_;  // or its codes did,
  std::vector<Layer> layers_;                        // and else the layers of the stack or of the identity.
  bool is_whole_ = false;
  ManifestFrame manifest_;
  ChunkPlan plan_;
  std::optional<RootHash> root_;
  uint64_t epoch_ = 0;
  int64_t credit_bytes_ = 0;
  int64_t next_ = 0;  // Chunk.
  int64_t sent_bytes_ = 0;
};

}  // namespace invar::engine
