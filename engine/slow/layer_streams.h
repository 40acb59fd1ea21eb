// LayerStreams: full KV on its way from the slow store into forwards, layer by layer. One thread reads, stream after
// stream in the order in which they began; each stream has room for a few layers, and goes on reading when the forward
// has gone on to the next layer. So reading layer l + 1 goes beside computing layer l, and what is begun before its
// forward goes beside whatever runs until then. What the page cache has does not have to come: its stream is there when
// it begins, and its forward reads it where it lies.
//
//   layers   0 .... | asked for | read | read | being read ...      a ring of depth() of them
//
// Without that thread, as runs that repeat exactly want it, a layer is read each step, and what is missing when it is
// asked for.
//
// Threads: engine thread, and the one that reads. A stream never outlives its AwayKv, and nothing is appended to that
// meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/slow/away_kv.h"
#include "engine/slow/block_buffer.h"
#include "models/model.h"

namespace invar::engine {

class LayerStreams;

// One sequence's. Dropping it ends it.
class LayerStream final : public models::KvSource {
 public:
  LayerStream(LayerStreams& streams, const AwayKv& kv, int32_t depth);
  ~LayerStream() override;

  const std::byte* Layer(int32_t layer) override;
  // Whether all was read that there is room for: its forward need not wait for the first layers.
  bool IsReady() const;
  // Not OK: what Layer gave since is zeros, and nothing that came of it may be used.
  Status status() const;

 private:
  friend class LayerStreams;

  // Set at construction.
  LayerStreams& streams_;
  const AwayKv& kv_;
  const int32_t depth_;

  // Under the lock of streams_.
  std::vector<BlockBuffer> ring_;
  std::vector<const std::byte*> layers_;  // Where those that were read lie.
  int32_t read_ = 0;                      // Layers that are there or were.
  int32_t asked_ = 0;                     // The layer that the forward is at; those before it may be written over.
  bool reading_ = false;
  Status failure_;
};

class LayerStreams {
 public:
  LayerStreams(const Clock& clock, bool reads_on_a_thread);
  ~LayerStreams();
  LayerStreams(const LayerStreams&) = delete;
  LayerStreams& operator=(const LayerStreams&) = delete;

  // `staging_bytes`: what it may take of memory; two layers at least.
  std::unique_ptr<LayerStream> Begin(const AwayKv& kv, int64_t staging_bytes);
  // Once a step. Reads a layer, where no thread does.
  void ReadBeside();
  // Nothing is being read, and nothing could be.
  bool IsIdle() const;

  // Counters.
  struct Counts {
    int64_t streams = 0;
    int64_t bytes = 0;
    int64_t read_ns = 0;   // That reads took.
    int64_t stall_ns = 0;  // That forwards waited for them.
  };
  Counts counts() const;

 private:
  friend class LayerStream;
  void ThreadMain();
  LayerStream* NextToRead() const REQUIRES_LOCK(mu_);
  // Gives the lock back meanwhile. Requires: the stream has room, and is not being read.
  void ReadNext(LayerStream& stream, const Clock& clock) REQUIRES_LOCK(mu_);

  const Clock& clock_;  // Engine thread only.
  const bool reads_on_a_thread_;
  BlockBuffer bounce_;  // Of whoever reads.

  mutable Mutex mu_;
  CondVar changed_;
  std::list<LayerStream*> streams_ GUARDED_BY(mu_);              // In the order of their beginning.
  std::vector<std::vector<BlockBuffer>> rings_ GUARDED_BY(mu_);  // Of streams that have ended, for those to come.
  Counts counts_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: begins when all else is there.
};

}  // namespace invar::engine
