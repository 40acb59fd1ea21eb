// The lock is held for decisions, never while reading.
#include "engine/slow/layer_streams.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace invar::engine {

LayerStream::LayerStream(LayerStreams& streams, const AwayKv& kv, const int32_t depth)
    : streams_(streams), kv_(kv), depth_(depth), layers_(kv.parts().layers) {
  const bool is_there = kv_.IsInMemory();
  MutexLock lock(streams_.mu_);
  ++streams_.counts_.streams;
  streams_.streams_.push_back(this);
  if (is_there) {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      layers_[layer] = kv_.InPlace(layer);
      streams_.counts_.bytes += kv_.PartBytes(layer);
    }
    read_ = static_cast<int32_t>(layers_.size());
    return;
  }
  if (!streams_.rings_.empty()) {
    ring_ = std::move(streams_.rings_.back());
    streams_.rings_.pop_back();
  }
  if (static_cast<int32_t>(ring_.size()) < depth_) ring_.resize(static_cast<size_t>(depth_));
  streams_.changed_.NotifyAll();
}

LayerStream::~LayerStream() {
  MutexLock lock(streams_.mu_);
  while (reading_) streams_.changed_.Wait(streams_.mu_);
  streams_.streams_.remove(this);
  if (!ring_.empty()) streams_.rings_.push_back(std::move(ring_));
}

const std::byte* LayerStream::Layer(const int32_t layer) {
  MutexLock lock(streams_.mu_);
  Check(layer >= asked_, "layers are asked for in their order", layer, asked_);
  asked_ = layer;
  if (read_ < static_cast<int32_t>(layers_.size())) streams_.changed_.NotifyAll();
  if (read_ <= layer && failure_.ok()) {
    const TimeNs begin = streams_.clock_.Now();
    while (read_ <= layer && failure_.ok()) {
      if (streams_.reads_on_a_thread_) {
        streams_.changed_.Wait(streams_.mu_);
      } else {
        streams_.ReadNext(*this, streams_.clock_);
      }
    }
    streams_.counts_.stall_ns += streams_.clock_.Now() - begin;
  }
  if (failure_.ok()) return layers_[static_cast<size_t>(layer)];
  while (reading_) streams_.changed_.Wait(streams_.mu_);
  BlockBuffer& buffer = ring_[static_cast<size_t>(layer % depth_)];
  const int64_t bytes = kv_.PartBytes(static_cast<size_t>(layer));
  buffer.Reserve(bytes);
  std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
  return buffer.data();
}

bool LayerStream::IsReady() const {
  MutexLock lock(streams_.mu_);
  const auto layers = static_cast<int32_t>(kv_.parts().layers);
  return !failure_.ok() || read_ == layers || read_ - asked_ == depth_;
}

Status LayerStream::status() const {
  MutexLock lock(streams_.mu_);
  return failure_;
}

LayerStreams::LayerStreams(const Clock& clock, const bool reads_on_a_thread)
    : clock_(clock), reads_on_a_thread_(reads_on_a_thread) {
  if (reads_on_a_thread_) thread_ = std::thread([this] { ThreadMain(); });
}

LayerStreams::~LayerStreams() {
  {
    MutexLock lock(mu_);
    Check(streams_.empty(), "streams end before what reads them");
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<LayerStream> LayerStreams::Begin(const AwayKv& kv, const int64_t staging_bytes) {
  const auto layers = static_cast<int64_t>(kv.parts().layers);
  const int64_t fitting = staging_bytes / std::max<int64_t>(1, kv.PartBytes(0) + kBlockBytes);
  return std::make_unique<LayerStream>(*this, kv, static_cast<int32_t>(std::clamp<int64_t>(fitting, 2, layers + 1)));
}

LayerStream* LayerStreams::NextToRead() const {
  for (LayerStream* const stream : streams_) {
    const bool has_more = stream->read_ < static_cast<int32_t>(stream->kv_.parts().layers);
    const bool has_room = stream->read_ - stream->asked_ < stream->depth_;
    if (has_more && has_room && stream->failure_.ok()) return stream;
  }
  return nullptr;
}

bool LayerStreams::IsIdle() const {
  MutexLock lock(mu_);
  return std::none_of(streams_.begin(), streams_.end(), [](const LayerStream* s) { return s->reading_; }) &&
         NextToRead() == nullptr;
}

LayerStreams::Counts LayerStreams::counts() const {
  MutexLock lock(mu_);
  return counts_;
}

void LayerStreams::ReadBeside() {
  if (reads_on_a_thread_) return;
  MutexLock lock(mu_);
  if (LayerStream* const stream = NextToRead(); stream != nullptr) ReadNext(*stream, clock_);
}

void LayerStreams::ReadNext(LayerStream& stream, const Clock& clock) {
  const auto part = static_cast<size_t>(stream.read_);
  const int64_t bytes = stream.kv_.PartBytes(part);
  BlockBuffer& buffer = stream.ring_[part % static_cast<size_t>(stream.depth_)];
  stream.reading_ = true;
  mu_.Unlock();
  const TimeNs begin = clock.Now();
  StatusOr<const std::byte*> read = stream.kv_.Part(part, buffer, bounce_);
  const TimeNs took = clock.Now() - begin;
  mu_.Lock();
  stream.reading_ = false;
  if (read.ok()) {
    stream.layers_[part] = *read;
    ++stream.read_;
    counts_.bytes += bytes;
    counts_.read_ns += took;
  } else {
    stream.failure_ = read.status();
  }
  changed_.NotifyAll();
}

void LayerStreams::ThreadMain() {
  const RealClock real;  // A simulated one is the engine thread's.
  mu_.Lock();
  while (!stop_) {
    LayerStream* const stream = NextToRead();
    if (stream == nullptr) {
      changed_.Wait(mu_);
    } else {
      ReadNext(*stream, real);
    }
  }
  mu_.Unlock();
}

}  // namespace invar::engine
