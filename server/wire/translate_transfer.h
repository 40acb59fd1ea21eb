// Frames of a transfer to messages and back: the only place that knows both. What is missing, unknown or too long never
// becomes a frame; what a frame's numbers may be is the state machines' to judge (engine/prefix_sender.h and
// engine/prefix_receiver.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/plan_transfer.h"
#include "engine/transfer_protocol.h"
#include "invar/v1/transfer.pb.h"

namespace invar::server {

// What an Open says beside its frame.
struct OpenExtras {
  std::string request_id;
  int64_t timeout_ms = 0;
};

// Of what an Open names, whichever.
inline constexpr size_t kTenantBytesMax = 64;
inline constexpr size_t kRequestIdBytesMax = 128;

void FillIdentity(const engine::TransferIdentity& identity, v1::TransferIdentity& proto);
// `message`: the one that it is a part of. Errors: INVALID_ARGUMENT.
StatusOr<engine::TransferIdentity> IdentityFrom(const v1::TransferIdentity& proto, std::string_view message);

v1::ConsumerMessage ToMessage(const engine::ConsumerFrame& frame, const OpenExtras& extras = {});
v1::ProducerMessage ToMessage(engine::ProducerFrame frame);

// Errors: INVALID_ARGUMENT. `extras` may be null; filled from an Open.
StatusOr<engine::ConsumerFrame> ToFrame(const v1::ConsumerMessage& message, OpenExtras* extras = nullptr);
// Takes the payload out of `message`.
StatusOr<engine::ProducerFrame> ToFrame(v1::ProducerMessage& message);

// The Open of a quote. Errors: as ToFrame.
StatusOr<engine::OpenFrame> OpenOf(const v1::QuoteRequest& request);
// What a producer says of a prompt of `tokens` tokens, in numbers that can be reckoned with whatever it wrote: what is
// not finite or below 0 is 0, and none has more cached than there is. Link and point are the caller's to fill in.
engine::ProducerQuote QuoteOf(const v1::QuoteResponse& response, int32_t tokens);

}  // namespace invar::server
