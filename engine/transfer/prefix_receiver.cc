// See prefix_receiver.h.
#include "engine/prefix_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace invar::engine {

OpenFrame PrefixReceiver::Open() const {
  return {.identity = options_.identity,
          .scope = want_.scope,
          .tokens = want_.tokens,
          .have_kv = want_.have_kv,
          .have_state = want_.have_state};
}

std::vector<ConsumerFrame> PrefixReceiver::On(const ProducerFrame& frame) {
  if (has_ended() || std::holds_alternative<HeartbeatFrame>(frame)) return {};
  if (const auto* const chunk = std::get_if<ChunkFrame>(&frame); chunk != nullptr) return OnChunk(*chunk);
  if (const auto* const manifest = std::get_if<ManifestFrame>(&frame); manifest != nullptr) {
    return OnManifest(*manifest);
  }
  return OnCommit(std::get<CommitFrame>(frame));
}

void PrefixReceiver::Fail(const TransferFault fault, std::string why) {
  if (has_ended()) return;
  fault_ = fault;
  why_ = std::move(why);
  image_ = {};
}

std::vector<ConsumerFrame> PrefixReceiver::Refuse(const TransferFault fault, std::string why) {
  Fail(fault, std::move(why));
  return {AbortFrame{why_}};
}

FetchedPrefix PrefixReceiver::Take() {
  Check(has_ended(), "a transfer is taken at its end");
  return {.fault = fault_, .why = std::move(why_), .image = std::move(image_), .bytes = bytes_};
}

// Sizes from outside are compared before memory is taken by them.
std::vector<ConsumerFrame> PrefixReceiver::OnManifest(const ManifestFrame& manifest) {
  if (state_ != State::kOpened) return Refuse(TransferFault::kProtocol, "a second manifest");
  if (const auto difference = DifferenceOf(options_.identity, manifest.identity); difference.has_value()) {
    return Refuse(TransferFault::kRefused, *difference);
  }
  if (manifest.codec != ChunkCodec::kRaw) return Refuse(TransferFault::kRefused, "a codec that was not asked for");
  if (manifest.end <= want_.have_state || manifest.end > static_cast<int64_t>(want_.tokens.size()) ||
      manifest.first_page != FirstPageToSend(want_.have_kv, manifest.end)) {
    return Refuse(TransferFault::kProtocol,
                  fmt::format("a manifest of {} tokens from page {} on", manifest.end, manifest.first_page));
  }
  if (manifest.chunk_bytes < 1 || manifest.chunk_bytes > kChunkBytesMax) {
    return Refuse(TransferFault::kProtocol, fmt::format("chunks of {} bytes", manifest.chunk_bytes));
  }
  plan_ = ChunkPlan(manifest);
  if (plan_.total_bytes() > options_.bytes_max) {
    return Refuse(TransferFault::kNoRoom,
                  fmt::format("{} bytes where {} may come", plan_.total_bytes(), options_.bytes_max));
  }
  image_ = {.first_page = manifest.first_page, .end = manifest.end};
  image_.pages.resize(static_cast<size_t>(plan_.pages()));
  for (auto& page : image_.pages) page.resize(static_cast<size_t>(manifest.identity.page_bytes));
  image_.state.resize(static_cast<size_t>(manifest.identity.state_bytes));
  root_.emplace(options_.epoch, manifest);
  state_ = State::kGranted;
  return {GrantFrame{.epoch = options_.epoch, .credit_bytes = options_.credit_bytes}};
}

std::vector<ConsumerFrame> PrefixReceiver::OnChunk(const ChunkFrame& chunk) {
  if (state_ != State::kGranted) return Refuse(TransferFault::kProtocol, "a chunk that was not granted");
  bytes_ += static_cast<int64_t>(chunk.bytes.size());
  if (chunk.epoch != options_.epoch) return Refuse(TransferFault::kProtocol, "a chunk of another epoch");
  if (next_ >= plan_.count() || chunk.header != plan_.At(next_) ||
      static_cast<int64_t>(chunk.bytes.size()) != chunk.header.bytes) {
    return Refuse(TransferFault::kProtocol, fmt::format("chunk {} is not what comes next", chunk.header.index));
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(chunk.bytes));
  if (chunk.crc32c != ChecksumOf(options_.epoch, chunk.header, bytes)) {
    return Refuse(TransferFault::kDamaged, fmt::format("the checksum of chunk {} is wrong", next_));
  }
  const std::byte* from = bytes.data();
  for (const std::span<std::byte> to : plan_.PlacesOf(chunk.header, image_)) {
    std::memcpy(to.data(), from, to.size());
    from += to.size();
  }
  root_->Add(chunk.header, bytes);
  ++next_;
  used_bytes_ += chunk.header.bytes;
  // Half of the window at a time: a message for each chunk would say no more.
  if (used_bytes_ * 2 < options_.credit_bytes || next_ == plan_.count()) return {};
  return {CreditFrame{.epoch = options_.epoch, .bytes = std::exchange(used_bytes_, 0)}};
}

std::vector<ConsumerFrame> PrefixReceiver::OnCommit(const CommitFrame& commit) {
  if (state_ != State::kGranted || commit.epoch != options_.epoch || commit.chunks != next_ || next_ != plan_.count()) {
    return Refuse(TransferFault::kProtocol, fmt::format("a commit after {} of {} chunks", next_, plan_.count()));
  }
  if (!EqualConstantTime(commit.root, root_->Finish())) {
    return Refuse(TransferFault::kDamaged, "the hash of all chunks is wrong");
  }
  state_ = State::kComplete;
  return {AckFrame{.epoch = options_.epoch}};
}

}  // namespace invar::engine
