// gRPC's own messages keep the form and the level of our log.
#include "server/grpc_log.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace invar::server {
namespace {

TEST(GrpcLog, BecomesLinesOfOurs) {
  RouteGrpcLogs();
  grpc_init();  // Its level is set by then: errors.
  testing::internal::CaptureStderr();
  ConfigureLogs(LogFormat::kJson, "info");
  gpr_log(GPR_ERROR, "a \"bad\" handshake");
  gpr_log(GPR_DEBUG, "a detail");
  const std::string text = testing::internal::GetCapturedStderr();
  grpc_shutdown();
  gpr_set_log_function(nullptr);  // Its own again.
  EXPECT_NE(text.find(R"("level":"warning","logger":"grpc","msg":"a \"bad\" handshake"})"), std::string::npos) << text;
  EXPECT_EQ(text.find("a detail"), std::string::npos);
}

}  // namespace
}  // namespace invar::server
