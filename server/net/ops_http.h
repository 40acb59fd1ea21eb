// The ops port: plain HTTP for probes and scrapers, apart from the gRPC port so that neither can starve the other.
//   /metrics   Prometheus text        /livez   200 while the engine makes progress
//   /version   what runs, as JSON     /readyz  200 while requests are taken (/healthz and /health are the same)
//   /cache     the prefix cache as a page for people; who may see it, PageRequest is asked
//   /configz   the configuration in force, as YAML with the origin of each value; hashes of tokens are hidden
// One thread, never blocked by a client: each connection holds one small request and its answer, ends after a few
// seconds whatever it does, and is closed in favour of a newer one where too many are open. So neither slow nor many
// clients keep a probe from its answer, and the descriptors used here are few and known.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace invar::server {

// What a page is judged by. Views into the request.
struct PageRequest {
  std::string_view authorization;  // Value of the one header of this name; empty: none, or several.
  std::string_view host;           // As above.
};
struct PageAnswer {
  int status = 200;  // 401 asks a browser for name and password.
  std::string html;
};

// What the port answers with. Called from its thread: none of them waits.
struct OpsHandlers {
  std::function<std::string()> metrics;
  std::function<Status()> alive;
  std::function<Status()> ready;
  std::function<std::string()> version_json;
  std::function<std::string()> config_yaml;
  std::function<PageAnswer(const PageRequest&)> cache_page;
};

class OpsHttp {
 public:
  // Connections at once: those of a few scrapers and probes, and few enough descriptors for the reserve that the gRPC
  // port leaves.
  static constexpr size_t kConnectionsMax = 16;

  // Of a whole exchange, however slowly its bytes come or go.
  static constexpr std::chrono::milliseconds kExchangeMax{5000};

  // Binds HOST:PORT and answers from now on. Errors: UNAVAILABLE naming the address.
  static StatusOr<std::unique_ptr<OpsHttp>> Start(const std::string& listen, OpsHandlers handlers,
                                                  std::chrono::milliseconds exchange_max = kExchangeMax);
  ~OpsHttp();
  OpsHttp(const OpsHttp&) = delete;
  OpsHttp& operator=(const OpsHttp&) = delete;

  // The bound address, with the port the system chose.
  const std::string& address() const { return address_; }

 private:
  struct Answer;
  struct Connection;

  using Time = std::chrono::steady_clock::time_point;

  OpsHttp(int listen_fd, std::string address, OpsHandlers handlers, std::chrono::milliseconds exchange_max);
  void Run();
  void Accept();
  // False: the connection is over.
  bool Advance(Connection& connection);
  std::string AnswerTo(const std::string& request) const;

  // Set at construction.
  const std::string address_;
  const int listen_fd_;
  const int stop_fd_;
  const std::chrono::milliseconds exchange_max_;
  std::map<std::string, std::function<Answer(const PageRequest&)>, std::less<>> routes_;

  // The thread's own.
  std::list<Connection> connections_;  // Oldest first.
  Time accept_again_{};                // Until then the process had no descriptor left.
  std::thread thread_;                 // Last: it uses all above.
};

}  // namespace invar::server
