// PrefixReceiver: the consumer's side of one transfer as a state machine of frames (transfer_protocol.h). Everything
// that comes is compared with what must come next before a byte of it is used, and nothing can be taken before the
// commit was checked: whatever a producer, a link or a stranger does, the result is all of the prefix or a named fault.
// Threads: its driver's, one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/prefix_source.h"
#include "engine/transfer_protocol.h"

namespace invar::engine {

class PrefixReceiver {
 public:
  struct Options {
    TransferIdentity identity;
    uint64_t epoch = 0;        // Never used before between the two.
    int64_t credit_bytes = 0;  // Granted and not yet arrived, at most; at least kChunkBytesMax.
    int64_t bytes_max = 0;     // Of the whole prefix.
  };
  PrefixReceiver(Options options, PrefixWant want) : options_(std::move(options)), want_(std::move(want)) {}

  // What begins the transfer.
  OpenFrame Open() const;
  // A frame from the producer; gives what is to be answered. After a fault or the end nothing happens, but that the
  // answer to what GiveUp says is noted.
  std::vector<ConsumerFrame> On(const ProducerFrame& frame);
  // The transfer ends without a commit, and the producer cannot be told or need not be.
  void Fail(TransferFault fault, std::string why);
  // Alike, and what tells the producer. Nothing where it has ended.
  std::vector<ConsumerFrame> GiveUp(TransferFault fault, std::string why);

  bool is_complete() const { return state_ == State::kComplete; }
  bool has_ended() const { return is_complete() || fault_.has_value(); }
  // The producer was told that we gave up, and has let go.
  bool is_released() const { return is_released_; }
  // What came of it. Requires: has_ended; once.
  FetchedPrefix Take();

 private:
  enum class State { kOpened, kGranted, kComplete };
  struct Refusal {
    TransferFault fault;
    std::string why;
  };
  std::optional<Refusal> WhyNot(const ManifestFrame& manifest) const;
  std::vector<ConsumerFrame> OnManifest(const ManifestFrame& manifest);
  // Whether the producer is what it must be, and sends what was asked for. Errors: kRefused.
  std::optional<std::string> WhyRefused(const ManifestFrame& manifest) const;
  int64_t BytesOf(const ManifestFrame& manifest) const;
  void TakeMemory(const ManifestFrame& manifest);
  std::vector<ConsumerFrame> OnChunk(const ChunkFrame& chunk);
  std::vector<ConsumerFrame> OnAbortAck(const AbortAckFrame& ack);
  std::vector<ConsumerFrame> OnCommit(const CommitFrame& commit);

  // Set at construction.
  const Options options_;
  const PrefixWant want_;

  State state_ = State::kOpened;
  std::optional<TransferFault> fault_;
  bool is_released_ = false;
  std::string why_;
  cache::PrefixImage image_;
  CodedPrefix coded_;
  std::optional<PrefixView> view_;  // Its state comes into the image's.
  ChunkPlan plan_;
  std::optional<RootHash> root_;
  int64_t next_ = 0;        // Chunk.
  int64_t bytes_ = 0;       // Arrived.
  int64_t used_bytes_ = 0;  // Arrived, and not granted again yet.
};

}  // namespace invar::engine
