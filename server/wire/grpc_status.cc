// See grpc_status.h. Messages are for the caller alone: some name a character or a key of the text they are about.
#include "server/wire/grpc_status.h"

#include <string>
#include <string_view>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace invar::server {
namespace {

constexpr std::string_view kDomain = "invar";

// One word a program may compare. The message holds the rest.
std::string_view ReasonOf(const Status& status) {
  if (!status.reason().empty()) return status.reason();
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return "INVALID_FIELD";
    case StatusCode::kUnimplemented:
      return "NOT_IMPLEMENTED";
    case StatusCode::kNotFound:
      return "MODEL_NOT_FOUND";
    case StatusCode::kResourceExhausted:
      return "LIMIT_REACHED";
    case StatusCode::kUnavailable:
      return "NOT_SERVING";
    case StatusCode::kUnauthenticated:
      return "TOKEN_REQUIRED";
    default:
      return {};
  }
}

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(status.message());
  if (!status.field().empty()) {
    google::rpc::BadRequest bad_request;
    auto& violation = *bad_request.add_field_violations();
    violation.set_field(status.field());
    violation.set_description(status.message());
    details.add_details()->PackFrom(bad_request);
  }
  if (const std::string_view reason = ReasonOf(status); !reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::string(reason));
    info.set_domain(std::string(kDomain));
    details.add_details()->PackFrom(info);
  }
  const bool retry = status.code() == StatusCode::kUnavailable ||
                     (status.code() == StatusCode::kResourceExhausted && status.field().empty());
  if (retry) {
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(1);
    details.add_details()->PackFrom(info);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(), details.SerializeAsString());
}

}  // namespace invar::server
