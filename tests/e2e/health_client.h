// grpc.health.v1 and reflection by hand: their generated code is not installed, and two small messages are quicker
// written than generated.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace invar::e2e {

enum class Health { kUnknown, kServing, kNotServing, kRefused };
// kUnknown: NOT_FOUND; kRefused: UNAUTHENTICATED.
Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                   const std::string& token = {});

struct RawOutcome {
  grpc::Status status;
  std::string reply;  // Bytes of the first message, or empty.
};
// Calls any method with `request` bytes as its one message.
RawOutcome CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& request,
                   const std::string& token = {});

}  // namespace invar::e2e
