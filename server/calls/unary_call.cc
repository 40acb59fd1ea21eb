// See unary_call.h.
#include "server/calls/unary_call.h"

#include <memory>
#include <utility>

namespace invar::server {

UnaryCall::UnaryCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry)
    : ServedCall(gate, context, std::move(entry)) {}

Status UnaryCall::Hold(google::protobuf::Message& response) {
  Status status = Grow(static_cast<int64_t>(response.SpaceUsedLong()));
  if (!status.ok()) {
    // Clear would keep its memory.
    const std::unique_ptr<google::protobuf::Message> empty(response.New());
    response.GetReflection()->Swap(&response, empty.get());
  }
  return status;
}

}  // namespace invar::server
