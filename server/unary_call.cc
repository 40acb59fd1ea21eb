// See unary_call.h.
#include "server/unary_call.h"

#include <utility>

namespace invar::server {

UnaryCall::UnaryCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry)
    : ServedCall(gate, context, std::move(entry)) {}

Status UnaryCall::TakeRoomFor(const google::protobuf::Message& response) {
  return gate().open_calls().Grows(open(), static_cast<int64_t>(response.SpaceUsedLong()), *gate().config());
}

}  // namespace invar::server
