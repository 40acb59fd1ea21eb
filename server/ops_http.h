// The ops port: plain HTTP for probes and scrapers, apart from the gRPC port so that neither can starve the other.
//   /metrics   Prometheus text        /livez   200 while the engine makes progress
//   /version   what runs, as JSON     /readyz  200 while requests are taken (/healthz and /health are the same)
//   /configz   the configuration in force, as YAML with the origin of each value; hashes of tokens are hidden
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"

namespace httplib {
class Server;
}

namespace invar::server {

// What the port answers with. Called from its threads.
struct OpsHandlers {
  std::function<std::string()> metrics;
  std::function<Status()> alive;
  std::function<Status()> ready;
  std::function<std::string()> version_json;
  std::function<std::string()> config_yaml;
};

class OpsHttp {
 public:
  // Binds HOST:PORT and answers from now on. Errors: UNAVAILABLE naming the address.
  static StatusOr<std::unique_ptr<OpsHttp>> Start(const std::string& listen, OpsHandlers handlers);
  ~OpsHttp();
  OpsHttp(const OpsHttp&) = delete;
  OpsHttp& operator=(const OpsHttp&) = delete;

  // The bound address, with the port the system chose.
  const std::string& address() const { return address_; }

 private:
  OpsHttp();

  std::string address_;
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace invar::server
