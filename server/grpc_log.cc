// See grpc_log.h.
#include "server/grpc_log.h"

#include <grpc/support/log.h>

#include "base/log.h"

namespace invar::server {

void RouteGrpcLogs() {
  gpr_set_log_function([](gpr_log_func_args* const args) {
    const auto level = args->severity == GPR_LOG_SEVERITY_ERROR ? spdlog::level::warn : spdlog::level::debug;
    Logger("grpc")->log(level, "{}", args->message);
  });
}

}  // namespace invar::server
