// cpp-httplib behind our face: two worker threads, short timeouts, small requests only.
#include "server/ops_http.h"

#include <fmt/format.h>
#include <httplib.h>

#include <utility>

#include "config/fields.h"

namespace invar::server {
namespace {

constexpr int kThreads = 2;
constexpr int kTimeoutSeconds = 5;
constexpr size_t kRequestBytesMax = 4096;

void AnswerProbe(const Status& status, httplib::Response& response) {
  response.status = status.ok() ? 200 : 503;
  response.set_content(status.ok() ? "ok\n" : status.message() + "\n", "text/plain");
}

}  // namespace

OpsHttp::OpsHttp() : server_(std::make_unique<httplib::Server>()) {}

StatusOr<std::unique_ptr<OpsHttp>> OpsHttp::Start(const std::string& listen, OpsHandlers handlers) {
  const StatusOr<config::HostPort> at = config::ParseAddress(listen);
  if (!at.ok()) return at.status();
  std::unique_ptr<OpsHttp> ops(new OpsHttp());
  httplib::Server& server = *ops->server_;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kRequestBytesMax);
  server.set_read_timeout(kTimeoutSeconds);
  server.set_write_timeout(kTimeoutSeconds);
  // A kept connection would hold one of the two threads.
  server.set_keep_alive_max_count(1);
  server.Get("/metrics", [metrics = std::move(handlers.metrics)](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics(), "text/plain; version=0.0.4");
  });
  server.Get("/livez", [alive = std::move(handlers.alive)](const httplib::Request&, httplib::Response& response) {
    AnswerProbe(alive(), response);
  });
  for (const char* path : {"/readyz", "/healthz", "/health"}) {
    server.Get(path, [ready = handlers.ready](const httplib::Request&, httplib::Response& response) {
      AnswerProbe(ready(), response);
    });
  }
  server.Get("/version",
             [version = std::move(handlers.version_json)](const httplib::Request&, httplib::Response& response) {
               response.set_content(version(), "application/json");
             });
  server.Get("/configz",
             [config = std::move(handlers.config_yaml)](const httplib::Request&, httplib::Response& response) {
               response.set_content(config(), "text/plain");
             });
  int port = at->port;
  const bool bound =
      port == 0 ? (port = server.bind_to_any_port(at->host.c_str())) > 0 : server.bind_to_port(at->host.c_str(), port);
  if (!bound) return Unavailable(fmt::format("cannot listen on {} (ops.listen)", listen));
  ops->address_ = at->host.find(':') == std::string::npos ? fmt::format("{}:{}", at->host, port)
                                                          : fmt::format("[{}]:{}", at->host, port);
  ops->thread_ = std::thread([&server] { server.listen_after_bind(); });
  // Stop() before the loop runs would be lost.
  while (!server.is_running()) std::this_thread::yield();
  return ops;
}

OpsHttp::~OpsHttp() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
}

}  // namespace invar::server
