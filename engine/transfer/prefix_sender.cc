// See prefix_sender.h.
#include "engine/prefix_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/state_shape.h"

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
  prefix_bytes_ = BytesOf(open);
  state_ = State::kOpen;
  return OkStatus();
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
  Check(state_ != State::kNew && !is_whole_, "a prefix is offered after it was asked for, until it is whole");
  if (state_ == State::kOpen) {
    Announce(part);
    state_ = State::kOffered;
  }
  is_whole_ = part.is_last;
  for (const CodedPart& more : part.codes) {
    std::vector<std::byte>& codes = codes_[more.layer];
    codes.insert(codes.end(), more.bytes.begin(), more.bytes.end());
  }
  for (const LayerPart& more : part.layers) OfferLayer(more);
  if (coded_.has_value() || !is_whole_) return;
  const int64_t left = std::ranges::count_if(offered_, [&](const Offered& layer) {
    const LayerBytes& bytes = layer.place.bytes;
    return (bytes.page > 0 && layer.pages < plan_.pages()) || (bytes.state > 0 && !layer.state);
  });
  Check(left == 0, "a prefix has all of its layers at its end", left);
}

void PrefixSender::Announce(PrefixPart& part) {
  manifest_ = {.identity = identity_,
               .first_page = part.first_page,
               .end = part.end,
               .chunk_bytes = limits_.chunk_bytes,
               .piece_pages = part.piece_pages};
  if (coded_.has_value()) {
    const ScdProfile& profile = coded_->held->profile;
    manifest_.identity.profile = coded_->held->digest;
    manifest_.codec = ChunkCodec::kScd;
    manifest_.point = profile.points[coded_->point].name;
    plan_ = ChunkPlan(manifest_, profile.shape, profile.points[coded_->point]);
    codes_.resize(profile.shape.layers.size());
    return;
  }
  plan_ = ChunkPlan(manifest_);
  image_ = {.first_page = part.first_page, .end = part.end};
  if (part.is_last) {
    Check(std::ssize(part.pages) == plan_.pages(), "a prefix has the pages it says", plan_.pages());
    image_.pages = std::move(part.pages);
    image_.state = std::move(part.state);
    return;
  }
  for (const LayerPlace& place : LayerPlacesOf(identity_.layers)) offered_.push_back({.place = place});
  image_.pages.resize(static_cast<size_t>(plan_.pages()));
  for (std::vector<std::byte>& page : image_.pages) page.resize(static_cast<size_t>(identity_.page_bytes));
  image_.state.resize(static_cast<size_t>(identity_.state_bytes));
}

void PrefixSender::OfferLayer(const LayerPart& part) {
  Offered& layer = offered_[static_cast<size_t>(part.layer)];
  const LayerBytes& bytes = layer.place.bytes;
  for (auto from = part.kv.begin(); from != part.kv.end(); from += bytes.page, ++layer.pages) {
    Check(layer.pages < plan_.pages() && part.kv.end() - from >= bytes.page, "a layer has whole pages of a prefix",
          part.layer, layer.pages);
    std::copy_n(from, bytes.page, image_.pages[static_cast<size_t>(layer.pages)].begin() + layer.place.page_offset);
  }
  if (part.state.empty()) return;
  Check(std::ssize(part.state) == bytes.state && !layer.state, "a layer has one state", part.layer);
  std::ranges::copy(part.state, image_.state.begin() + layer.place.state_offset);
  layer.state = true;
}

Status PrefixSender::On(const ConsumerFrame& frame) {
  if (std::holds_alternative<HeartbeatFrame>(frame)) return OkStatus();
  if (const auto* const abort = std::get_if<AbortFrame>(&frame); abort != nullptr) {
    return Status(StatusCode::kCancelled, "the consumer gave up: " + abort->why);
  }
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
  if (state_ == State::kOffered) {
    state_ = State::kAnnounced;
    return manifest_;
  }
  if (state_ != State::kGranted) return std::nullopt;
  if (next_ == plan_.count()) {
    if (!is_whole_) return std::nullopt;  // All is there, and the run that made it may still fail.
    state_ = State::kCommitted;
    image_ = {};
    codes_ = {};
    return CommitFrame{.epoch = epoch_, .chunks = next_, .root = root_->Finish()};
  }
  if (const ChunkHeader next = plan_.At(next_); next.bytes > credit_bytes_ || !IsThere(next)) return std::nullopt;
  return NextChunk();
}

bool PrefixSender::IsThere(const ChunkHeader& chunk) const {
  if (chunk.kind == ChunkKind::kCodes) {
    return chunk.offset + chunk.bytes <= std::ssize(codes_[static_cast<size_t>(chunk.layer)]);
  }
  if (is_whole_) return true;
  const Offered& layer = offered_[static_cast<size_t>(chunk.layer)];
  if (chunk.kind == ChunkKind::kState) return layer.state;
  return cache::StateShape::PagesFor(chunk.token_end) - manifest_.first_page <= layer.pages;
}

ChunkFrame PrefixSender::NextChunk() {
  ChunkFrame chunk{.epoch = epoch_, .header = plan_.At(next_++), .bytes = {}};
  chunk.bytes.reserve(static_cast<size_t>(chunk.header.bytes));
  if (chunk.header.kind == ChunkKind::kCodes) {
    const std::vector<std::byte>& codes = codes_[static_cast<size_t>(chunk.header.layer)];
    chunk.bytes.append(reinterpret_cast<const char*>(codes.data() + chunk.header.offset),
                       static_cast<size_t>(chunk.header.bytes));
  } else {
    for (const std::span<const std::byte> part : plan_.PlacesOf(chunk.header, image_)) {
      chunk.bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(chunk.bytes));
  chunk.crc32c = ChecksumOf(epoch_, chunk.header, bytes);
  root_->Add(chunk.header, bytes);
  credit_bytes_ -= chunk.header.bytes;
  sent_bytes_ += chunk.header.bytes;
  return chunk;
}

}  // namespace invar::engine
