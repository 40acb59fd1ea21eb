// Status and StatusOr: how everything the outside can cause is reported.
// The codes are gRPC's canonical ones, so that a status crosses the RPC border unchanged (server/wire/grpc_status.h).
// Own type because g++ 12 has std::expected only under C++23, and abseil's ABI differs between distributions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace invar {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on. Threads: any.
std::string_view StatusCodeName(StatusCode code);

// `message` says what was wanted, what was found and what to do. `field` is the request or config field at fault, or
// empty: the server turns it into google.rpc.BadRequest details.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string field = {})
      : code_(code), message_(std::move(message)), field_(std::move(field)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& field() const { return field_; }
  // A word that programs compare where the code alone is too coarse ("PROMPT_TOO_LONG"); empty: the code says it all.
  std::string_view reason() const { return reason_; }
  // Requires: `reason` is a literal, which outlives every status.
  Status WithReason(const char* reason) && {
    reason_ = reason;
    return std::move(*this);
  }
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string field_;
  const char* reason_ = "";
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string message, std::string field = {}) {
  return Status(StatusCode::kInvalidArgument, std::move(message), std::move(field));
}
inline Status NotFound(std::string message) { return Status(StatusCode::kNotFound, std::move(message)); }
inline Status ResourceExhausted(std::string message, std::string field = {}) {
  return Status(StatusCode::kResourceExhausted, std::move(message), std::move(field));
}
inline Status FailedPrecondition(std::string message) {
  return Status(StatusCode::kFailedPrecondition, std::move(message));
}
inline Status Unimplemented(std::string message, std::string field = {}) {
  return Status(StatusCode::kUnimplemented, std::move(message), std::move(field));
}
inline Status Internal(std::string message) { return Status(StatusCode::kInternal, std::move(message)); }
inline Status Unavailable(std::string message) { return Status(StatusCode::kUnavailable, std::move(message)); }
inline Status DataLoss(std::string message) { return Status(StatusCode::kDataLoss, std::move(message)); }

// A value or the reason there is none. Reading the value of a failed one is a bug and stops the process.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose, for `return status;`.
    Check(!status_.ok(), "a StatusOr without a value carries an error");
  }
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, for `return value;`.

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    CheckHasValue();
    return *value_;
  }
  const T& value() const& {
    CheckHasValue();
    return *value_;
  }
  T&& value() && {
    CheckHasValue();
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void CheckHasValue() const { Check(ok(), "StatusOr holds a value", status_.message()); }

  Status status_;
  std::optional<T> value_;
};

}  // namespace invar
