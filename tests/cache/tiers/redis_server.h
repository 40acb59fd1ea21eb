// A real server of the Redis protocol for one test: started on a Unix socket, or on a TLS port, killed at the end.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/cache/tiers/temp_folder.h"

namespace invar::cache {

class RedisServer {
 public:
  // Returns when it answers. The process stops where no server program is installed: these tests are not skipped.
  explicit RedisServer(std::vector<std::string> arguments = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string address() const { return "unix:" + socket_path(); }
  // With the same arguments and nothing in it.
  void Start();
  void Kill();    // -9
  void Freeze();  // SIGSTOP
  void Thaw();

  // One command as the administrator; the reply as text (a number in digits, nothing as "").
  std::string Command(const std::vector<std::string>& words) const;
  // Names of all entries that match, sorted.
  std::vector<std::string> Names(const std::string& pattern) const;

 private:
  std::string socket_path() const { return folder_.path() + "/socket"; }

  const TempFolder folder_;
  const std::vector<std::string> arguments_;
  pid_t pid_ = -1;
};

// A port of 127.0.0.1 that was free a moment ago.
int FreePort();

}  // namespace invar::cache
