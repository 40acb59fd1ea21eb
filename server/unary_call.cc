// See unary_call.h.
#include "server/unary_call.h"

#include <utility>

#include "server/grpc_status.h"

namespace invar::server {

UnaryCall::UnaryCall(const Keepers& keepers, Metrics& metrics, const Rpc rpc, grpc::CallbackServerContext& context,
                     Arrival arrival)
    : ServedCall(keepers, context, std::move(arrival.open), arrival.deadline),
      open_calls_(keepers.open_calls),
      metrics_(metrics),
      rpc_(rpc) {
  BeWatched();
}

void UnaryCall::End(const Status& status) {
  metrics_.CountCall(rpc_, status.code());
  NoteFinish();
  Finish(ToGrpcStatus(status));
}

}  // namespace invar::server
