// How a status crosses the RPC border.
#pragma once

#include <grpcpp/support/status.h>

#include "base/status.h"

namespace invar::server {

// Same code and message, google.rpc details (BadRequest for the field, ErrorInfo with a reason, RetryInfo where trying
// again makes sense). The only way for a status to a caller.
grpc::Status ToGrpcStatus(const Status& status);

}  // namespace invar::server
