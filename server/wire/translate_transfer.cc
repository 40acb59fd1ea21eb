// See translate_transfer.h.
#include "server/wire/translate_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "server/wire/translate_fields.h"

namespace invar::server {
namespace {

using engine::ChunkCodec;
using engine::ChunkKind;

constexpr size_t kIdentityBytesMax = 1024;
constexpr size_t kPointBytesMax = 128;
constexpr size_t kCompressorBytesMax = 256;
constexpr int kLayersMax = 1024;
constexpr size_t kWhyBytesMax = 1024;
constexpr int kFirstReason = v1::ABORT_UNWANTED;

Status NoFrame() { return InvalidArgument("frame: give one", "frame"); }

// Visits one alternative after another.
template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

}  // namespace

void FillIdentity(const engine::TransferIdentity& identity, v1::TransferIdentity& proto) {
  proto.set_protocol(identity.protocol);
  proto.set_fingerprint(identity.fingerprint);
  proto.set_numerics_id(identity.numerics_id);
  proto.set_tokenizer(identity.tokenizer);
  proto.set_mtp(identity.mtp);
  proto.set_attention_layers(identity.attention_layers);
  proto.set_recurrent_layers(identity.recurrent_layers);
  proto.set_page_tokens(identity.page_tokens);
  proto.set_page_bytes(identity.page_bytes);
  proto.set_state_bytes(identity.state_bytes);
  proto.set_profile(identity.profile);
  for (const engine::LayerBytes& layer : identity.layers) {
    proto.add_layer_page_bytes(layer.page);
    proto.add_layer_state_bytes(layer.state);
  }
}

StatusOr<engine::TransferIdentity> IdentityFrom(const v1::TransferIdentity& proto, const std::string_view message) {
  for (const auto& [name, text] : {std::pair("fingerprint", &proto.fingerprint()),
                                   {"numerics_id", &proto.numerics_id()},
                                   {"tokenizer", &proto.tokenizer()},
                                   {"profile", &proto.profile()}}) {
    if (Status s = CheckBytes(fmt::format("{}.identity.{}", message, name), text->size(), kIdentityBytesMax); !s.ok()) {
      return s;
    }
  }
  const int layer_count = proto.layer_page_bytes_size();
  if (layer_count > kLayersMax || layer_count != proto.layer_state_bytes_size()) {
    const std::string field = fmt::format("{}.identity.layer_state_bytes", message);
    return InvalidArgument(fmt::format("{}: as many as layer_page_bytes, at most {}", field, kLayersMax), field);
  }
  std::vector<engine::LayerBytes> layers;
  for (int i = 0; i < layer_count; ++i) {
    layers.push_back({.page = proto.layer_page_bytes(i), .state = proto.layer_state_bytes(i)});
  }
  return engine::TransferIdentity{.protocol = proto.protocol(),
                                  .fingerprint = proto.fingerprint(),
                                  .numerics_id = proto.numerics_id(),
                                  .tokenizer = proto.tokenizer(),
                                  .mtp = proto.mtp(),
                                  .attention_layers = proto.attention_layers(),
                                  .recurrent_layers = proto.recurrent_layers(),
                                  .page_tokens = proto.page_tokens(),
                                  .page_bytes = proto.page_bytes(),
                                  .state_bytes = proto.state_bytes(),
                                  .layers = std::move(layers),
                                  .profile = proto.profile()};
}

namespace {

StatusOr<engine::ConsumerFrame> OpenFrom(const v1::ConsumerMessage::Open& open, OpenExtras* const extras) {
  StatusOr<engine::TransferIdentity> identity = IdentityFrom(open.identity(), "open");
  if (!identity.ok()) return identity.status();
  if (Status s = CheckBytes("open.tenant", open.tenant().size(), kTenantBytesMax); !s.ok()) return s;
  if (Status s = CheckBytes("open.provenance", open.provenance().size(), kIdentityBytesMax); !s.ok()) return s;
  if (Status s = CheckBytes("open.point", open.point().size(), kPointBytesMax); !s.ok()) return s;
  if (Status s = CheckBytes("open.request_id", open.request_id().size(), kRequestIdBytesMax); !s.ok()) return s;
  if (Status s = CheckBytes("open.view_compressor", open.view_compressor().size(), kCompressorBytesMax); !s.ok()) {
    return s;
  }
  engine::OpenFrame frame{.identity = *std::move(identity),
                          .scope = {.tenant = open.tenant(), .salt = open.salt(), .provenance = open.provenance()},
                          .tokens = {},
                          .have_kv = open.have_kv_tokens(),
                          .have_state = open.have_state_tokens(),
                          .point = open.point(),
                          .view = {.compressor = open.view_compressor(), .kv_budget = {}}};
  if (open.has_view_kv_budget()) frame.view.kv_budget = open.view_kv_budget();
  frame.tokens.reserve(static_cast<size_t>(open.tokens_size()));
  for (const int32_t id : open.tokens()) frame.tokens.emplace_back(id);
  if (extras != nullptr) *extras = {.request_id = open.request_id(), .timeout_ms = open.timeout_ms()};
  return engine::ConsumerFrame(std::move(frame));
}

StatusOr<engine::ConsumerFrame> AbortFrom(const v1::ConsumerMessage::Abort& abort) {
  const int64_t reason = int64_t{abort.reason()} - kFirstReason;
  if (reason < 0 || reason >= static_cast<int64_t>(engine::kAbortReasons)) {
    return InvalidArgument(fmt::format("abort.reason: {} is none that is known", static_cast<int>(abort.reason())),
                           "abort.reason");
  }
  return engine::ConsumerFrame(engine::AbortFrame{.epoch = abort.epoch(),
                                                  .reason = static_cast<engine::AbortReason>(reason),
                                                  .why = abort.why().substr(0, kWhyBytesMax)});
}

}  // namespace

StatusOr<engine::OpenFrame> OpenOf(const v1::QuoteRequest& request) {
  StatusOr<engine::ConsumerFrame> frame = OpenFrom(request.open(), nullptr);
  if (!frame.ok()) return frame.status();
  return std::get<engine::OpenFrame>(*std::move(frame));
}

v1::ConsumerMessage ToMessage(const engine::ConsumerFrame& frame, const OpenExtras& extras) {
  v1::ConsumerMessage message;
  std::visit(Overloaded{[&](const engine::OpenFrame& open) {
                          v1::ConsumerMessage::Open& proto = *message.mutable_open();
                          FillIdentity(open.identity, *proto.mutable_identity());
                          proto.set_tenant(open.scope.tenant);
                          proto.set_salt(open.scope.salt);
                          proto.set_provenance(open.scope.provenance);
                          for (const TokenId token : open.tokens) proto.add_tokens(token.value());
                          proto.set_have_kv_tokens(open.have_kv);
                          proto.set_have_state_tokens(open.have_state);
                          proto.set_request_id(extras.request_id);
                          proto.set_timeout_ms(extras.timeout_ms);
                          proto.set_point(open.point);
                          proto.set_view_compressor(open.view.compressor);
                          if (open.view.kv_budget.has_value()) proto.set_view_kv_budget(*open.view.kv_budget);
                        },
                        [&](const engine::GrantFrame& grant) {
                          message.mutable_grant()->set_epoch(grant.epoch);
                          message.mutable_grant()->set_credit_bytes(grant.credit_bytes);
                        },
                        [&](const engine::CreditFrame& credit) {
                          message.mutable_credit()->set_epoch(credit.epoch);
                          message.mutable_credit()->set_bytes(credit.bytes);
                        },
                        [&](const engine::HeartbeatFrame&) { message.mutable_heartbeat(); },
                        [&](const engine::AckFrame& ack) { message.mutable_ack()->set_epoch(ack.epoch); },
                        [&](const engine::AbortFrame& abort) {
                          message.mutable_abort()->set_epoch(abort.epoch);
                          message.mutable_abort()->set_reason(
                              static_cast<v1::AbortReason>(static_cast<int>(abort.reason) + kFirstReason));
                          message.mutable_abort()->set_why(abort.why.substr(0, kWhyBytesMax));
                        }},
             frame);
  return message;
}

v1::ProducerMessage ToMessage(engine::ProducerFrame frame) {
  v1::ProducerMessage message;
  std::visit(Overloaded{[&](const engine::ManifestFrame& manifest) {
                          v1::ProducerMessage::Manifest& proto = *message.mutable_manifest();
                          FillIdentity(manifest.identity, *proto.mutable_identity());
                          proto.set_first_page(manifest.first_page);
                          proto.set_end_tokens(manifest.end);
                          proto.set_chunk_bytes(manifest.chunk_bytes);
                          proto.set_codec(static_cast<v1::ChunkCodec>(manifest.codec));
                          proto.set_point(manifest.point);
                          proto.set_piece_pages(manifest.piece_pages);
                          proto.mutable_view_bytes()->Add(manifest.view_bytes.begin(), manifest.view_bytes.end());
                        },
                        [&](engine::ChunkFrame& chunk) {
                          v1::ProducerMessage::Chunk& proto = *message.mutable_chunk();
                          proto.set_epoch(chunk.epoch);
                          proto.set_index(chunk.header.index);
                          proto.set_kind(static_cast<v1::ChunkKind>(chunk.header.kind));
                          proto.set_layer(chunk.header.layer);
                          proto.set_token_begin(chunk.header.token_begin);
                          proto.set_token_end(chunk.header.token_end);
                          proto.set_offset(chunk.header.offset);
                          proto.set_codec(static_cast<v1::ChunkCodec>(chunk.header.codec));
                          proto.set_crc32c(chunk.crc32c);
                          proto.set_payload(std::move(chunk.bytes));
                        },
                        [&](const engine::CommitFrame& commit) {
                          v1::ProducerMessage::Commit& proto = *message.mutable_commit();
                          proto.set_epoch(commit.epoch);
                          proto.set_chunks(commit.chunks);
                          proto.set_root(std::string(commit.root.begin(), commit.root.end()));
                        },
                        [&](const engine::AbortAckFrame& ack) { message.mutable_abort_ack()->set_epoch(ack.epoch); },
                        [&](const engine::HeartbeatFrame&) { message.mutable_heartbeat(); }},
             frame);
  return message;
}

StatusOr<engine::ConsumerFrame> ToFrame(const v1::ConsumerMessage& message, OpenExtras* const extras) {
  using Message = v1::ConsumerMessage;
  switch (message.frame_case()) {
    case Message::kOpen:
      return OpenFrom(message.open(), extras);
    case Message::kGrant:
      return engine::ConsumerFrame(
          engine::GrantFrame{.epoch = message.grant().epoch(), .credit_bytes = message.grant().credit_bytes()});
    case Message::kCredit:
      return engine::ConsumerFrame(
          engine::CreditFrame{.epoch = message.credit().epoch(), .bytes = message.credit().bytes()});
    case Message::kHeartbeat:
      return engine::ConsumerFrame(engine::HeartbeatFrame{});
    case Message::kAck:
      return engine::ConsumerFrame(engine::AckFrame{.epoch = message.ack().epoch()});
    case Message::kAbort:
      return AbortFrom(message.abort());
    case Message::FRAME_NOT_SET:
      break;
  }
  return NoFrame();
}

StatusOr<engine::ProducerFrame> ToFrame(v1::ProducerMessage& message) {
  using Message = v1::ProducerMessage;
  switch (message.frame_case()) {
    case Message::kManifest: {
      StatusOr<engine::TransferIdentity> identity = IdentityFrom(message.manifest().identity(), "manifest");
      if (!identity.ok()) return identity.status();
      if (Status s = CheckBytes("manifest.point", message.manifest().point().size(), kPointBytesMax); !s.ok()) return s;
      return engine::ProducerFrame(engine::ManifestFrame{
          .identity = *std::move(identity),
          .first_page = message.manifest().first_page(),
          .end = message.manifest().end_tokens(),
          .chunk_bytes = message.manifest().chunk_bytes(),
          .piece_pages = message.manifest().piece_pages(),
          .codec = static_cast<ChunkCodec>(message.manifest().codec()),
          .point = message.manifest().point(),
          .view_bytes = {message.manifest().view_bytes().begin(), message.manifest().view_bytes().end()}});
    }
    case Message::kChunk: {
      Message::Chunk& chunk = *message.mutable_chunk();
      engine::ChunkFrame frame{.epoch = chunk.epoch(),
                               .header = {.index = chunk.index(),
                                          .kind = static_cast<ChunkKind>(chunk.kind()),
                                          .layer = chunk.layer(),
                                          .token_begin = chunk.token_begin(),
                                          .token_end = chunk.token_end(),
                                          .offset = chunk.offset(),
                                          .bytes = static_cast<int64_t>(chunk.payload().size()),
                                          .codec = static_cast<ChunkCodec>(chunk.codec())},
                               .crc32c = chunk.crc32c(),
                               .bytes = {}};
      frame.bytes = std::move(*chunk.mutable_payload());
      return engine::ProducerFrame(std::move(frame));
    }
    case Message::kCommit: {
      const std::string& root = message.commit().root();
      engine::CommitFrame frame{.epoch = message.commit().epoch(), .chunks = message.commit().chunks(), .root = {}};
      if (root.size() != frame.root.size()) {
        return InvalidArgument(fmt::format("commit.root: wants {} bytes, got {}", frame.root.size(), root.size()),
                               "commit.root");
      }
      std::copy(root.begin(), root.end(), frame.root.begin());
      return engine::ProducerFrame(frame);
    }
    case Message::kHeartbeat:
      return engine::ProducerFrame(engine::HeartbeatFrame{});
    case Message::kAbortAck:
      return engine::ProducerFrame(engine::AbortAckFrame{.epoch = message.abort_ack().epoch()});
    case Message::FRAME_NOT_SET:
      break;
  }
  return NoFrame();
}

engine::ProducerQuote QuoteOf(const v1::QuoteResponse& response, const int32_t tokens) {
  const auto sane = [](const double number) { return std::isfinite(number) && number > 0 ? number : 0; };
  engine::ProducerQuote quote{.sends_as_is = response.as_is(),
                              .sends_codes = response.codes(),
                              .cached = std::clamp(response.cached_tokens(), 0, tokens),
                              .tokens_per_second = sane(response.tokens_per_second()),
                              .queue_seconds = sane(response.queue_seconds())};
  if (response.step_tokens() > 0) quote.step_tokens = response.step_tokens();
  return quote;
}

}  // namespace invar::server
