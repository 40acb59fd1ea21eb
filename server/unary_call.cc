// See unary_call.h.
#include "server/unary_call.h"

#include <utility>

namespace invar::server {

UnaryCall::UnaryCall(CallGate& gate, grpc::CallbackServerContext& context, CallEntry entry)
    : ServedCall(gate, context, std::move(entry)) {}

}  // namespace invar::server
