// Frames of a run elsewhere (engine/verify_protocol.h) to messages and back, as translate_transfer.h those of a
// transfer.
#pragma once

#include "base/status.h"
#include "engine/verify_protocol.h"
#include "invar/v1/transfer.pb.h"
#include "server/wire/translate_transfer.h"

namespace invar::server {

v1::VerifyRequest ToMessage(const engine::RunConsumerFrame& frame, const OpenExtras& extras = {});
v1::VerifyResponse ToMessage(const engine::RunProducerFrame& frame);

// Errors: INVALID_ARGUMENT; `frame` is as it was. `extras`: filled from an Open.
Status ToFrame(const v1::VerifyRequest& message, engine::RunConsumerFrame& frame, OpenExtras& extras);
StatusOr<engine::RunProducerFrame> ToFrame(const v1::VerifyResponse& message);

}  // namespace invar::server
