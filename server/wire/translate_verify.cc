// See translate_verify.h.
#include "server/wire/translate_verify.h"

#include <utility>

#include "server/wire/translate_fields.h"

namespace invar::server {
namespace {

Status NoFrame() { return InvalidArgument("frame: give one", "frame"); }

void Fill(const engine::SamplingParams& sampling, v1::Sampling& proto) {
  proto.set_temperature(sampling.temperature);
  proto.set_top_p(sampling.top_p);
  proto.set_top_k(sampling.top_k);
  proto.set_min_p(sampling.min_p);
  proto.set_repetition_penalty(sampling.repetition_penalty);
  proto.set_presence_penalty(sampling.presence_penalty);
  proto.set_frequency_penalty(sampling.frequency_penalty);
  proto.set_seed(static_cast<int64_t>(sampling.seed));
  for (const auto& [id, bias] : sampling.logit_bias) (*proto.mutable_logit_bias())[id] = bias;
  for (const TokenId id : sampling.allowed_token_ids) proto.add_allowed_token_ids(id.value());
}

engine::SamplingParams SamplingFrom(const v1::VerifyRequest::Open& open) {
  const v1::Sampling& proto = open.sampling();
  return {.temperature = proto.temperature(),
          .top_p = proto.top_p(),
          .top_k = proto.top_k(),
          .min_p = proto.min_p(),
          .repetition_penalty = proto.repetition_penalty(),
          .presence_penalty = proto.presence_penalty(),
          .frequency_penalty = proto.frequency_penalty(),
          .seed = static_cast<uint64_t>(proto.seed()),
          .output_index = static_cast<uint32_t>(open.output_index()),
          .logit_bias = {proto.logit_bias().begin(), proto.logit_bias().end()},
          .allowed_token_ids = ToTokenIds(proto.allowed_token_ids())};
}

void Fill(const engine::VerifyOpenFrame& open, const OpenExtras& extras, v1::VerifyRequest::Open& proto) {
  FillIdentity(open.identity, *proto.mutable_identity());
  proto.set_tenant(open.scope.tenant);
  proto.set_salt(open.scope.salt);
  for (const TokenId token : open.prompt) proto.add_tokens(token.value());
  Fill(open.sampling, *proto.mutable_sampling());
  proto.set_output_index(static_cast<int32_t>(open.sampling.output_index));
  proto.set_max_tokens(open.stopping.max_tokens);
  proto.set_min_tokens(open.stopping.min_tokens);
  for (const TokenId token : open.stopping.stop_token_ids) proto.add_stop_token_ids(token.value());
  if (open.output.logprobs.has_value()) proto.set_logprobs(*open.output.logprobs);
  proto.set_logprob_bits(open.output.logprob_bits);
  proto.set_request_id(extras.request_id);
  proto.set_timeout_ms(extras.timeout_ms);
}

StatusOr<engine::VerifyOpenFrame> OpenFrom(const v1::VerifyRequest::Open& open, OpenExtras& extras) {
  StatusOr<engine::TransferIdentity> identity = IdentityFrom(open.identity(), "open");
  if (!identity.ok()) return identity.status();
  if (Status s = CheckBytes("open.tenant", open.tenant().size(), kTenantBytesMax); !s.ok()) return s;
  if (Status s = CheckBytes("open.request_id", open.request_id().size(), kRequestIdBytesMax); !s.ok()) return s;
  engine::VerifyOpenFrame frame{.identity = *std::move(identity),
                                .scope = {.tenant = open.tenant(), .salt = open.salt(), .provenance = {}},
                                .prompt = ToTokenIds(open.tokens()),
                                .sampling = SamplingFrom(open),
                                .stopping = {.max_tokens = open.max_tokens(),
                                             .min_tokens = open.min_tokens(),
                                             .stop = {},
                                             .stop_token_ids = ToTokenIds(open.stop_token_ids())},
                                .output = {}};
  frame.output.logprob_bits = open.logprob_bits();
  if (open.has_logprobs()) frame.output.logprobs = open.logprobs();
  extras = {.request_id = open.request_id(), .timeout_ms = open.timeout_ms()};
  return frame;
}

void Fill(const engine::TokenLogprob& logprob, v1::VerifyResponse::Logprob& proto) {
  proto.set_token(logprob.token.value());
  proto.set_logit(logprob.logit);
  proto.set_logprob(logprob.logprob);
  for (const engine::TokenAlternative& other : logprob.top) {
    v1::VerifyResponse::Logprob::Alternative& added = *proto.add_top();
    added.set_token(other.token.value());
    added.set_logprob(other.logprob);
  }
}

engine::TokenLogprob LogprobFrom(const v1::VerifyResponse::Logprob& proto) {
  engine::TokenLogprob logprob{
      .token = TokenId(proto.token()), .logit = proto.logit(), .logprob = proto.logprob(), .top = {}};
  for (const auto& other : proto.top()) logprob.top.push_back({TokenId(other.token()), other.logprob()});
  return logprob;
}

}  // namespace

v1::VerifyRequest ToMessage(const engine::RunConsumerFrame& frame, const OpenExtras& extras) {
  v1::VerifyRequest message;
  if (const auto* const open = std::get_if<engine::VerifyOpenFrame>(&frame)) {
    Fill(*open, extras, *message.mutable_open());
  } else if (const auto* const draft = std::get_if<engine::DraftFrame>(&frame)) {
    message.mutable_draft()->set_first(draft->first);
    for (const TokenId token : draft->tokens) message.mutable_draft()->add_tokens(token.value());
  } else {
    message.mutable_heartbeat();
  }
  return message;
}

v1::VerifyResponse ToMessage(const engine::RunProducerFrame& frame) {
  v1::VerifyResponse message;
  const auto* const verified = std::get_if<engine::VerifiedFrame>(&frame);
  if (verified == nullptr) {
    message.mutable_heartbeat();
    return message;
  }
  v1::VerifyResponse::Verified& proto = *message.mutable_verified();
  proto.set_first(verified->first);
  for (const TokenId token : verified->tokens) proto.add_tokens(token.value());
  for (const engine::TokenLogprob& logprob : verified->logprobs) Fill(logprob, *proto.add_logprobs());
  proto.set_crc32c(verified->crc32c);
  return message;
}

Status ToFrame(const v1::VerifyRequest& message, engine::RunConsumerFrame& frame, OpenExtras& extras) {
  using Message = v1::VerifyRequest;
  switch (message.frame_case()) {
    case Message::kOpen: {
      StatusOr<engine::VerifyOpenFrame> open = OpenFrom(message.open(), extras);
      if (!open.ok()) return open.status();
      frame = *std::move(open);
      return OkStatus();
    }
    case Message::kDraft:
      frame = engine::DraftFrame{.first = message.draft().first(), .tokens = ToTokenIds(message.draft().tokens())};
      return OkStatus();
    case Message::kHeartbeat:
      frame = engine::HeartbeatFrame{};
      return OkStatus();
    case Message::FRAME_NOT_SET:
      break;
  }
  return NoFrame();
}

StatusOr<engine::RunProducerFrame> ToFrame(const v1::VerifyResponse& message) {
  using Message = v1::VerifyResponse;
  switch (message.frame_case()) {
    case Message::kVerified: {
      engine::VerifiedFrame frame{.first = message.verified().first(),
                                  .tokens = ToTokenIds(message.verified().tokens()),
                                  .logprobs = {},
                                  .crc32c = message.verified().crc32c()};
      for (const auto& logprob : message.verified().logprobs()) frame.logprobs.push_back(LogprobFrom(logprob));
      return engine::RunProducerFrame(std::move(frame));
    }
    case Message::kHeartbeat:
      return engine::RunProducerFrame(engine::HeartbeatFrame{});
    case Message::FRAME_NOT_SET:
      break;
  }
  return NoFrame();
}

}  // namespace invar::server
