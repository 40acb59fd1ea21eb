// See prefix_receiver.h.
#include "engine/prefix_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cache/state_shape.h"

namespace invar::engine {
namespace {

AbortReason ReasonOf(const TransferFault fault) {
  switch (fault) {
    case TransferFault::kRefused:
      return AbortReason::kRefused;
    case TransferFault::kNoRoom:
      return AbortReason::kNoRoom;
    case TransferFault::kDamaged:
      return AbortReason::kDamaged;
    case TransferFault::kProtocol:
      return AbortReason::kProtocol;
    default:
      return AbortReason::kUnwanted;
  }
}

}  // namespace

OpenFrame PrefixReceiver::Open() const {
  OpenFrame open{.identity = options_.identity,
                 .scope = want_.scope,
                 .tokens = want_.tokens,
                 .have_kv = want_.have_kv,
                 .have_state = want_.have_state,
                 .view = want_.view};
  if (want_.profile != nullptr) {
    open.identity.profile = want_.profile->digest;
    open.point = want_.profile->profile.points[want_.point].name;
  }
  return open;
}

std::vector<ConsumerFrame> PrefixReceiver::On(const ProducerFrame& frame) {
  if (const auto* const ack = std::get_if<AbortAckFrame>(&frame); ack != nullptr) return OnAbortAck(*ack);
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
  coded_ = {};
  view_.reset();
}

std::vector<ConsumerFrame> PrefixReceiver::GiveUp(const TransferFault fault, std::string why) {
  if (has_ended()) return {};
  Fail(fault, std::move(why));
  return {AbortFrame{.epoch = options_.epoch, .reason = ReasonOf(fault), .why = why_}};
}

std::vector<ConsumerFrame> PrefixReceiver::OnAbortAck(const AbortAckFrame& ack) {
  if (!has_ended()) return GiveUp(TransferFault::kProtocol, "an answer to what was not said");
  is_released_ = fault_.has_value() && ack.epoch == options_.epoch;
  return {};
}

FetchedPrefix PrefixReceiver::Take() {
  Check(has_ended(), "a transfer is taken at its end");
  if (view_.has_value()) view_->state = std::move(image_.state);
  return {.fault = fault_,
          .why = std::move(why_),
          .image = std::move(image_),
          .coded = std::move(coded_),
          .view = std::move(view_),
          .bytes = bytes_};
}

std::optional<std::string> PrefixReceiver::WhyRefused(const ManifestFrame& manifest) const {
  const bool wants_view = !want_.view.compressor.empty();
  if (wants_view != (manifest.codec == ChunkCodec::kView)) return "a codec that was not asked for";
  if (manifest.codec != ChunkCodec::kScd) {
    const auto difference = DifferenceOf(options_.identity, manifest.identity);
    return difference.has_value() ? std::optional(difference->sentence) : std::nullopt;
  }
  if (want_.profile == nullptr) return "a codec that was not asked for";
  TransferIdentity asked = options_.identity;
  asked.profile = want_.profile->digest;
  const auto difference = CodedDifferenceOf(asked, manifest.identity, want_.profile->profile);
  if (difference.has_value()) return difference->sentence;
  const std::string& point = want_.profile->profile.points[want_.point].name;
  if (manifest.point == point) return std::nullopt;
  return fmt::format("point differs: '{}' on the consumer, '{}' on the producer", point, manifest.point);
}

std::optional<PrefixReceiver::Refusal> PrefixReceiver::WhyNot(const ManifestFrame& manifest) const {
  if (state_ != State::kOpened) return Refusal{TransferFault::kProtocol, "a second manifest"};
  if (const auto why = WhyRefused(manifest); why.has_value()) return Refusal{TransferFault::kRefused, *why};
  const bool coded = manifest.codec == ChunkCodec::kScd;
  const int32_t first_page = coded ? 0 : FirstPageToSend(want_.have_kv, manifest.end);
  const int64_t end_min = coded ? std::ssize(want_.tokens) : int64_t{want_.have_state} + 1;
  if (manifest.end < end_min || manifest.end > std::ssize(want_.tokens) || manifest.first_page != first_page) {
    return Refusal{TransferFault::kProtocol,
                   fmt::format("a manifest of {} tokens from page {} on", manifest.end, manifest.first_page)};
  }
  if (manifest.chunk_bytes < 1 || manifest.chunk_bytes > kChunkBytesMax || manifest.piece_pages < 0) {
    return Refusal{TransferFault::kProtocol,
                   fmt::format("chunks of {} bytes, pieces of {} pages", manifest.chunk_bytes, manifest.piece_pages)};
  }
  const bool is_view = manifest.codec == ChunkCodec::kView;
  const auto is_size = [&](const int64_t bytes) { return bytes >= 0 && bytes <= options_.bytes_max; };
  if (std::ssize(manifest.view_bytes) != (is_view ? options_.identity.attention_layers : 0) ||
      !std::ranges::all_of(manifest.view_bytes, is_size)) {
    return Refusal{TransferFault::kProtocol, fmt::format("a view of {} layers", manifest.view_bytes.size())};
  }
  const int64_t bytes = BytesOf(manifest);
  if (bytes > options_.bytes_max) {
    return Refusal{TransferFault::kNoRoom, fmt::format("{} bytes where {} may come", bytes, options_.bytes_max)};
  }
  if (ChunksAtMost(manifest, bytes) > kChunksMax) {
    return Refusal{TransferFault::kProtocol, fmt::format("chunks of {} bytes for {}", manifest.chunk_bytes, bytes)};
  }
  return std::nullopt;
}

// Of memory that it takes.
int64_t PrefixReceiver::BytesOf(const ManifestFrame& manifest) const {
  const int64_t pages = cache::StateShape::PagesFor(manifest.end) - manifest.first_page;
  int64_t bytes = options_.identity.state_bytes;
  if (manifest.codec == ChunkCodec::kView) {
    for (const int64_t layer : manifest.view_bytes) bytes += layer;
    return bytes;
  }
  bytes += pages * options_.identity.page_bytes;
  // What is made of codes takes as much as a prefix that comes as it is.
  if (manifest.codec == ChunkCodec::kScd) {
    const ScdProfile& profile = want_.profile->profile;
    bytes += ScdPayloadBytes(profile.shape, profile.points[want_.point], manifest.end);
  }
  return bytes;
}

// Sizes from outside are compared before memory is taken by them.
std::vector<ConsumerFrame> PrefixReceiver::OnManifest(const ManifestFrame& manifest) {
  if (std::optional<Refusal> no = WhyNot(manifest); no.has_value()) return GiveUp(no->fault, std::move(no->why));
  plan_ = manifest.codec == ChunkCodec::kScd
              ? ChunkPlan(manifest, want_.profile->profile.shape, want_.profile->profile.points[want_.point])
              : ChunkPlan(manifest);
  TakeMemory(manifest);
  root_.emplace(options_.epoch, manifest);
  state_ = State::kGranted;
  return {GrantFrame{.epoch = options_.epoch, .credit_bytes = options_.credit_bytes}};
}

void PrefixReceiver::TakeMemory(const ManifestFrame& manifest) {
  if (manifest.codec == ChunkCodec::kScd) {
    coded_ = {.held = want_.profile, .point = want_.point, .end = manifest.end};
    const ScdProfile& profile = want_.profile->profile;
    coded_.layers.resize(profile.shape.layers.size());
    for (size_t i = 0; i < coded_.layers.size(); ++i) {
      coded_.layers[i].resize(
          static_cast<size_t>(ScdLayerBytes(profile.shape, profile.points[want_.point], i, manifest.end)));
    }
    return;
  }
  image_ = {.first_page = manifest.first_page, .end = manifest.end};
  image_.state.resize(static_cast<size_t>(manifest.identity.state_bytes));
  if (manifest.codec == ChunkCodec::kView) {
    view_ = {.end = manifest.end};
    for (const int64_t bytes : manifest.view_bytes) view_->layers.emplace_back(static_cast<size_t>(bytes));
    return;
  }
  image_.pages.resize(static_cast<size_t>(plan_.pages()));
  for (auto& page : image_.pages) page.resize(static_cast<size_t>(manifest.identity.page_bytes));
}

std::vector<ConsumerFrame> PrefixReceiver::OnChunk(const ChunkFrame& chunk) {
  if (state_ != State::kGranted) return GiveUp(TransferFault::kProtocol, "a chunk that was not granted");
  bytes_ += static_cast<int64_t>(chunk.bytes.size());
  if (chunk.epoch != options_.epoch) return GiveUp(TransferFault::kProtocol, "a chunk of another epoch");
  if (next_ >= plan_.count() || chunk.header != plan_.At(next_) ||
      static_cast<int64_t>(chunk.bytes.size()) != chunk.header.bytes) {
    return GiveUp(TransferFault::kProtocol, fmt::format("chunk {} is not what comes next", chunk.header.index));
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(chunk.bytes));
  if (chunk.crc32c != ChecksumOf(options_.epoch, chunk.header, bytes)) {
    return GiveUp(TransferFault::kDamaged, fmt::format("the checksum of chunk {} is wrong", next_));
  }
  if (chunk.header.kind == ChunkKind::kCodes) {
    std::ranges::copy(bytes, coded_.layers[static_cast<size_t>(chunk.header.layer)].begin() + chunk.header.offset);
  } else if (chunk.header.kind == ChunkKind::kView) {
    std::ranges::copy(bytes, view_->layers[static_cast<size_t>(chunk.header.layer)].begin() + chunk.header.offset);
  } else {
    const std::byte* from = bytes.data();
    for (const std::span<std::byte> to : plan_.PlacesOf(chunk.header, image_)) {
      std::memcpy(to.data(), from, to.size());
      from += to.size();
    }
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
    return GiveUp(TransferFault::kProtocol, fmt::format("a commit after {} of {} chunks", next_, plan_.count()));
  }
  if (!EqualConstantTime(commit.root, root_->Finish())) {
    return GiveUp(TransferFault::kDamaged, "the hash of all chunks is wrong");
  }
  state_ = State::kComplete;
  return {AckFrame{.epoch = options_.epoch}};
}

}  // namespace invar::engine
