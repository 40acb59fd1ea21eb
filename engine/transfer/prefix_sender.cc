// See prefix_sender.h.
#include "engine/prefix_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/state_shape.h"
#include "engine/validate.h"

namespace invar::engine {
namespace {

// Beyond any window that makes sense; bounds the sum of credits.
constexpr int64_t kCreditBytesMax = int64_t{1} << 40;

// Fields are named as on the wire (proto/invar/v1/transfer.proto).
Status Refused(const StatusCode code, const std::string& field, const std::string_view what) {
  return Status(code, fmt::format("{}: {}", field, what), field);
}
Status Protocol(const std::string& field, const std::string_view what) {
  return Refused(StatusCode::kInvalidArgument, field, what);
}
Status Differs(const std::string& field, const std::string_view what) {
  return Refused(StatusCode::kFailedPrecondition, field, what).WithReason("PREFIX_DIFFERS");
}
Status Differs(const IdentityDifference& difference) {
  return Differs(std::string("open.identity.") + difference.field, difference.sentence);
}

}  // namespace

// One of equal weights gets what there is, as it is, whatever it has a profile of.
Status PrefixSender::CheckWhoAsks(const OpenFrame& open) {
  TransferIdentity asks = open.identity;
  asks.profile.clear();
  const std::optional<IdentityDifference> difference = DifferenceOf(asks, identity_);
  if (!difference.has_value()) return OkStatus();
  if (open.identity.profile.empty()) return Differs(*difference);
  const auto held = profiles_ == nullptr ? nullptr : profiles_->ToSend(open.identity.profile);
  if (held == nullptr) {
    return Differs(
        {.field = "profile",
         .sentence = fmt::format("profile differs: '{}' on the consumer, '{}' on the producer", open.identity.profile,
                                 profiles_ == nullptr ? "" : profiles_->DigestsToSend())});
  }
  TransferIdentity own = identity_;
  own.profile = held->digest;
  if (const auto coded = CodedDifferenceOf(open.identity, own, held->profile); coded.has_value()) {
    return Differs(*coded);
  }
  const size_t point = held->FindPoint(open.point);
  if (point == held->profile.points.size()) {
    return Differs("open.point", fmt::format("the profile has no point '{}'", open.point));
  }
  coded_ = {.held = held, .point = point};
  return OkStatus();
}

Status PrefixSender::Open(const OpenFrame& open) {
  if (state_ != State::kNew) return Protocol("open", "comes once");
  if (Status s = CheckWhoAsks(open); !s.ok()) return s;
  if (!open.scope.provenance.empty()) {
    return Differs("open.provenance", fmt::format("provenance differs: '{}' on the consumer, exact on the producer",
                                                  open.scope.provenance));
  }
  if (open.tokens.empty() || static_cast<int64_t>(open.tokens.size()) > limits_.tokens_max) {
    return Protocol("open.tokens", fmt::format("wants 1 to {} tokens, got {}", limits_.tokens_max, open.tokens.size()));
  }
  if (static_cast<int64_t>(open.scope.salt.size()) > limits_.salt_bytes_max) {
    return Protocol("open.salt", fmt::format("{} bytes exceed {}", open.scope.salt.size(), limits_.salt_bytes_max));
  }
  if (open.have_kv < 0) return Protocol("open.have_kv_tokens", fmt::format("wants 0 or more, got {}", open.have_kv));
  if (open.have_state < 0 || open.have_state >= std::ssize(open.tokens)) {
    return Protocol("open.have_state_tokens",
                    fmt::format("wants 0 to less than the {} tokens, got {}", open.tokens.size(), open.have_state));
  }
  if (Status s = CheckView(open); !s.ok()) return s;
  view_wish_ = open.view;
  prefix_bytes_ = BytesOf(open);
  state_ = State::kOpen;
  return OkStatus();
}

// Views are for those who draft on them, and of weights that verify what they draft.
Status PrefixSender::CheckView(const OpenFrame& open) const {
  if (open.view.compressor.empty()) return OkStatus();
  if (coded_.has_value()) return Differs("open.view_compressor", "views are of equal weights alone");
  if (open.have_kv != 0) return Protocol("open.have_kv_tokens", "a view is of all the KV: wants 0");
  return engine::CheckView(open.view.compressor, ViewUse::kDrafts, open.view.kv_budget,
                           {.compressor = "open.view_compressor", .kv_budget = "open.view_kv_budget"});
}

int64_t PrefixSender::BytesOf(const OpenFrame& open) const {
  const auto tokens = static_cast<int32_t>(open.tokens.size());
  if (coded_.has_value()) {
    const ScdProfile& profile = coded_->held->profile;
    return ScdPayloadBytes(profile.shape, profile.points[coded_->point], tokens);
  }
  const int64_t pages = cache::StateShape::PagesFor(tokens) - FirstPageToSend(open.have_kv, tokens);
  return pages * identity_.page_bytes + identity_.state_bytes;
}

void PrefixSender::Offer(PrefixPart part) {
  Check(state_ != State::kNew && !is_whole_ && !aborted_.has_value(),
        "a prefix is offered after it was asked for, until it is whole");
  is_whole_ = IsLast(part);
  if (auto* const image = std::get_if<cache::PrefixImage>(&part); image != nullptr) {
    OfferImage(std::move(*image));
  } else if (auto* const layers = std::get_if<PrefixLayers>(&part); layers != nullptr) {
    OfferLayers(std::move(*layers));
  } else if (auto* const codes = std::get_if<PrefixCodes>(&part); codes != nullptr) {
    OfferCodes(std::move(*codes));
  } else if (auto* const shelved = std::get_if<ShelvedCodes>(&part); shelved != nullptr) {
    OfferShelved(std::move(*shelved));
  } else {
    OfferView(std::move(std::get<PrefixView>(part)));
  }
  if (is_whole_) CheckWhole();
}

void PrefixSender::Announce(ManifestFrame manifest) {
  manifest_ = std::move(manifest);
  manifest_.chunk_bytes = limits_.chunk_bytes;
  if (coded_.has_value()) {
    const ScdProfile& profile = coded_->held->profile;
    manifest_.identity.profile = coded_->held->digest;
    manifest_.codec = ChunkCodec::kScd;
    manifest_.point = profile.points[coded_->point].name;
    plan_ = ChunkPlan(manifest_, profile.shape, profile.points[coded_->point]);
    layers_.resize(profile.shape.layers.size());
  } else {
    plan_ = ChunkPlan(manifest_);
    layers_.resize(std::max({size_t{1}, identity_.layers.size(), manifest_.view_bytes.size()}));
  }
  for (int64_t i = 0; i < plan_.count(); ++i) {
    const ChunkHeader& chunk = plan_.At(i);
    Layer& layer = layers_[static_cast<size_t>(chunk.layer)];
    (chunk.kind == ChunkKind::kState ? layer.state_bytes : layer.body_bytes) += chunk.bytes;
  }
  state_ = State::kOffered;
}

void PrefixSender::OfferImage(cache::PrefixImage image) {
  Check(state_ == State::kOpen && !coded_.has_value() && view_wish_.compressor.empty(),
        "an image is all of a prefix that goes as it is");
  Announce({.identity = identity_, .first_page = image.first_page, .end = image.end});
  Check(std::ssize(image.pages) == plan_.pages(), "a prefix has the pages it says", plan_.pages());
  image_ = std::move(image);
}

void PrefixSender::OfferLayers(PrefixLayers part) {
  Check(!coded_.has_value(), "layers are of a prefix that goes as it is");
  if (state_ == State::kOpen) {
    Announce({.identity = identity_, .first_page = part.first_page, .end = part.end, .piece_pages = part.piece_pages});
  }
  for (LayerPart& more : part.layers) {
    Layer& layer = layers_[static_cast<size_t>(more.layer)];
    layer.body.Put(std::move(more.kv));
    layer.state.Put(std::move(more.state));
  }
}

void PrefixSender::OfferCodes(PrefixCodes part) {
  Check(coded_.has_value(), "codes are sent to who asked for them");
  if (state_ == State::kOpen) Announce({.identity = identity_, .end = part.end});
  for (CodedPart& more : part.codes) layers_[more.layer].body.Put(std::move(more.bytes));
}

void PrefixSender::OfferShelved(ShelvedCodes part) {
  Check(state_ == State::kOpen && coded_.has_value(), "what lay on the shelf is all of a prefix in codes");
  Announce({.identity = identity_, .end = part.end});
  Check(part.codes->size() == layers_.size(), "codes are of every layer", part.codes->size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    Check(std::ssize((*part.codes)[i]) == layers_[i].body_bytes, "codes have the bytes of the plan", i);
  }
  shelved_ = std::move(part.codes);
}

void PrefixSender::OfferView(PrefixView view) {
  Check(state_ == State::kOpen && !view_wish_.compressor.empty(), "a view goes to who asked for it, whole");
  ManifestFrame manifest{.identity = identity_, .end = view.end, .codec = ChunkCodec::kView};
  for (const std::vector<std::byte>& layer : view.layers) manifest.view_bytes.push_back(std::ssize(layer));
  Announce(std::move(manifest));
  for (size_t i = 0; i < view.layers.size(); ++i) layers_[i].body.Put(std::move(view.layers[i]));
  const std::vector<LayerPlace> places = LayerPlacesOf(identity_);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto begin = view.state.begin() + places[i].state_offset;
    layers_[i].state.Put({begin, begin + places[i].bytes.state});
  }
}

void PrefixSender::CheckWhole() const {
  if (image_.has_value() || shelved_ != nullptr) return;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    Check(layer.body.put() == layer.body_bytes && layer.state.put() == layer.state_bytes,
          "a prefix has all of its layers at its end", i, layer.body.put(), layer.state.put());
  }
}

int64_t PrefixSender::memory_bytes() const {
  int64_t bytes = 0;
  for (const Layer& layer : layers_) bytes += layer.body.memory_bytes() + layer.state.memory_bytes();
  if (!image_.has_value()) return bytes;
  for (const std::vector<std::byte>& page : image_->pages) bytes += static_cast<int64_t>(page.capacity());
  return bytes + static_cast<int64_t>(image_->state.capacity());
}

Status PrefixSender::On(const ConsumerFrame& frame) {
  // What crossed the answer to an Abort means nothing.
  if (std::holds_alternative<HeartbeatFrame>(frame) || aborted_.has_value()) return OkStatus();
  if (const auto* const abort = std::get_if<AbortFrame>(&frame); abort != nullptr) return OnAbort(*abort);
  if (const auto* const grant = std::get_if<GrantFrame>(&frame); grant != nullptr) return OnGrant(*grant);
  if (const auto* const credit = std::get_if<CreditFrame>(&frame); credit != nullptr) {
    return OnCredit(credit->epoch, credit->bytes);
  }
  if (const auto* const ack = std::get_if<AckFrame>(&frame); ack != nullptr) {
    if (state_ != State::kCommitted || ack->epoch != epoch_) {
      return Protocol("ack.epoch", "wants the epoch that was granted, after its commit");
    }
    acknowledged_ = true;
    return OkStatus();
  }
  return Protocol("open", "comes once");
}

Status PrefixSender::OnAbort(const AbortFrame& abort) {
  if ((state_ == State::kGranted || state_ == State::kCommitted) && abort.epoch != epoch_) {
    return Protocol("abort.epoch", "wants the epoch that was granted");
  }
  aborted_ = abort;
  LetGo();
  return OkStatus();
}

void PrefixSender::LetGo() {
  image_.reset();
  shelved_.reset();
  layers_.clear();
}

Status PrefixSender::OnGrant(const GrantFrame& grant) {
  if (state_ != State::kAnnounced) return Protocol("grant", "comes once, after the manifest");
  epoch_ = grant.epoch;
  root_.emplace(epoch_, manifest_);
  state_ = State::kGranted;
  return OnCredit(grant.epoch, grant.credit_bytes);
}

Status PrefixSender::OnCredit(const uint64_t epoch, const int64_t bytes) {
  if (state_ == State::kCommitted && epoch == epoch_) return OkStatus();  // For what was sent already.
  if (state_ != State::kGranted || epoch != epoch_) {
    return Protocol("credit.epoch", "wants the epoch that was granted");
  }
  if (bytes < 0 || bytes > kCreditBytesMax - credit_bytes_) {
    return Protocol("credit.bytes", fmt::format("wants 0 to {} in all, got {}", kCreditBytesMax, bytes));
  }
  credit_bytes_ += bytes;
  return OkStatus();
}

std::optional<ProducerFrame> PrefixSender::Next() {
  if (aborted_.has_value()) {
    if (std::exchange(state_, State::kReleased) == State::kReleased) return std::nullopt;
    return AbortAckFrame{.epoch = aborted_->epoch};
  }
  if (state_ == State::kOffered) {
    state_ = State::kAnnounced;
    return manifest_;
  }
  if (state_ != State::kGranted) return std::nullopt;
  if (next_ == plan_.count()) {
    if (!is_whole_) return std::nullopt;  // All is there, and the run that made it may still fail.
    state_ = State::kCommitted;
    LetGo();
    return CommitFrame{.epoch = epoch_, .chunks = next_, .root = root_->Finish()};
  }
  if (const ChunkHeader next = plan_.At(next_); next.bytes > credit_bytes_ || !IsThere(next)) return std::nullopt;
  return NextChunk();
}

ByteQueue& PrefixSender::QueueOf(const ChunkHeader& chunk) {
  Layer& layer = layers_[static_cast<size_t>(chunk.layer)];
  return chunk.kind == ChunkKind::kState ? layer.state : layer.body;
}

bool PrefixSender::IsThere(const ChunkHeader& chunk) {
  return image_.has_value() || shelved_ != nullptr || QueueOf(chunk).size() >= chunk.bytes;
}

ChunkFrame PrefixSender::NextChunk() {
  ChunkFrame chunk{.epoch = epoch_, .header = plan_.At(next_++), .bytes = {}};
  chunk.bytes.reserve(static_cast<size_t>(chunk.header.bytes));
  if (image_.has_value()) {
    for (const std::span<const std::byte> part : plan_.PlacesOf(chunk.header, *image_)) {
      chunk.bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
  } else if (shelved_ != nullptr) {
    const std::vector<std::byte>& layer = (*shelved_)[static_cast<size_t>(chunk.header.layer)];
    chunk.bytes.append(reinterpret_cast<const char*>(layer.data()) + plan_.LayerOffsetOf(chunk.header),
                       static_cast<size_t>(chunk.header.bytes));
  } else {
    ByteQueue& queue = QueueOf(chunk.header);
    Check(queue.taken() == plan_.LayerOffsetOf(chunk.header), "the bytes of a layer go in their order",
          chunk.header.index, queue.taken());
    queue.Take(chunk.header.bytes, chunk.bytes);
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(chunk.bytes));
  chunk.crc32c = ChecksumOf(epoch_, chunk.header, bytes);
  root_->Add(chunk.header, bytes);
  credit_bytes_ -= chunk.header.bytes;
  sent_bytes_ += chunk.header.bytes;
  return chunk;
}

}  // namespace invar::engine
