// NameWatch: the addresses that the names of transfer.producers stand for. An entry NAME=dns:HOST:PORT is as many
// producers as HOST has addresses (a headless service of Kubernetes), looked up again and again; others stay as they
// are. Who cannot be asked changes nothing: the addresses of before stay until there are newer ones.
// Threads: any; lookups run on a thread of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "config/transfer.h"

namespace invar::server {

class HostResolver {
 public:
  virtual ~HostResolver() = default;
  // The numeric addresses of `host` ("10.0.0.7", "fd00::7") in any order; none: it has none now. Errors: UNAVAILABLE:
  // nobody could tell. May take as long as a name server.
  virtual StatusOr<std::vector<std::string>> Resolve(const std::string& host) = 0;
};
std::unique_ptr<HostResolver> MakeSystemResolver();

class NameWatch {
 public:
  // Of one producer: by what entry it is there, and where. Of entries with dns:, `address` is numeric.
  using Changed = std::function<void(const std::vector<config::Producer>& now)>;

  // `changed` is told of all producers whenever they are others than before. Requires: it may be called until the
  // destructor has returned.
  NameWatch(std::vector<config::Producer> entries, std::unique_ptr<HostResolver> resolver, Changed changed);
  // Waits for a lookup under way.
  ~NameWatch();

  // Tells of entries that need no lookup, and begins to look the others up.
  void Start();
  // Looks all names up once. Threads: one at a time.
  void LookUp();

 private:
  void Watch();
  void Tell();

  // Set at construction.
  const std::vector<config::Producer> entries_;
  const std::unique_ptr<HostResolver> resolver_;
  const Changed changed_;

  // Of the thread that looks up.
  std::map<std::string, std::vector<std::string>> addresses_;  // Of each host, as last told.
  std::map<std::string, bool> failed_;                         // Was not found at the last lookup.
  std::map<std::string, bool> crowded_;                        // Had more addresses than are asked at the last lookup.
  std::vector<config::Producer> told_;

  Mutex mu_;
  CondVar wake_;
  bool closing_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses all above.
};

}  // namespace invar::server
