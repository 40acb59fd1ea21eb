// HandOff: what an instance that has just run a prompt tells, through a gateway, the one that will decode it: who has
// the prefix. JSON in kv_transfer_params_json of the answer, relayed as it is in the next request. Signed with a secret
// that the instances of a deployment share, so that callers cannot send one of them anywhere; and a producer it names
// must be one of the configuration all the same. It is a hint: whatever it says, the prompt's own tokens are what is
// fetched and checked.
//   {"version": 1, "producer": NAME, "tokens": COUNT, "prefix": SHA-256 of the tokens, "expires_unix_ms": TIME, "mac":
//   HEX}
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "config/config.h"

namespace invar::server {

class HandOffs {
 public:
  static constexpr size_t kJsonBytesMax = 4096;
  static constexpr int64_t kLifetimeMs = 600'000;

  // `name`: how consumers call this instance; empty: it issues none. `producers`: whom it may be sent to.
  HandOffs(std::string name, std::vector<std::string> producers, std::string secret);
  // Null where no secret is configured. Errors: those of the file, naming the field.
  static StatusOr<std::unique_ptr<HandOffs>> Make(const config::Config::Transfer& config);

  // For an answer to `prompt`. Empty: this instance issues none.
  std::string Issue(std::span<const TokenId> prompt, int64_t now_unix_ms) const;
  // Whom to ask for `prompt`; empty: anybody, since the hand-off is of another prompt or too old.
  // Errors: INVALID_ARGUMENT (no JSON of that form, another signature, a producer that is not configured).
  StatusOr<std::string> ProducerOf(std::string_view json, std::span<const TokenId> prompt, int64_t now_unix_ms) const;

 private:
  struct Content;
  std::string MacOf(const Content& content) const;

  const std::string name_;
  const std::vector<std::string> producers_;
  const std::string secret_;
};

// Of the system's clock: hand-offs cross machines.
int64_t UnixMs();

}  // namespace invar::server
