// See ops_http.h. HTTP/1.1 as far as GET without a body needs it; every answer closes its connection.
#include "server/net/ops_http.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/net/connection_acceptor.h"

namespace invar::server {
namespace {

constexpr size_t kRequestBytesMax = 4096;
// Rest of the port where the process is out of descriptors: long enough not to spin.
constexpr std::chrono::milliseconds kAcceptRest{100};

const char* ReasonPhrase(const int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

// The value of the one header `name` (lower case); empty where there is none or several, which others may read
// differently.
std::string_view HeaderOf(const std::string_view request, const std::string_view name) {
  const auto lower = [](const char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::string_view found;
  int count = 0;
  const size_t end = request.find("\r\n\r\n");
  for (size_t begin = request.find("\r\n"); begin < end; begin = request.find("\r\n", begin + 2)) {
    const std::string_view rest = request.substr(begin + 2, end - begin - 2);
    std::string_view line = rest.substr(0, rest.find("\r\n"));
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    if (!std::equal(name.begin(), name.end(), line.begin(), [&](char a, char b) { return a == lower(b); })) continue;
    ++count;
    line.remove_prefix(name.size() + 1);
    while (line.starts_with(' ') || line.starts_with('\t')) line.remove_prefix(1);
    while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
    found = line;
  }
  return count == 1 ? found : std::string_view();
}

}  // namespace

struct OpsHttp::Answer {
  int status = 200;
  const char* type = "text/plain";
  std::string body;
  std::string headers = {};  // More of them, each with its line end.

  // Nothing from elsewhere, no script, in no frame, kept nowhere.
  static Answer OfPage(PageAnswer page) {
    std::string headers =
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";
    if (page.status == 401) headers += "WWW-Authenticate: Basic realm=\"invard: any name, and an API token\"\r\n";
    return {.status = page.status,
            .type = "text/html; charset=utf-8",
            .body = std::move(page.html),
            .headers = std::move(headers)};
  }
  static Answer OfProbe(const Status& status) {
    return {.status = status.ok() ? 200 : 503, .body = status.ok() ? "ok\n" : status.message() + "\n"};
  }
  std::string Text(const bool with_body) const {
    return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
                       status, ReasonPhrase(status), type, body.size(), headers, with_body ? body : std::string());
  }
};

struct OpsHttp::Connection {
  Connection(const int fd_in, const Time until_in) : fd(fd_in), until(until_in) {}
  ~Connection() { close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int fd;
  const Time until;
  std::string request;
  std::string answer;  // Empty until the request is whole.
  size_t sent = 0;     // Of the answer.
};

OpsHttp::OpsHttp(const int listen_fd, std::string address, OpsHandlers handlers,
                 const std::chrono::milliseconds exchange_max)
    : address_(std::move(address)),
      listen_fd_(listen_fd),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      exchange_max_(exchange_max) {
  Check(stop_fd_ >= 0, "the system gives an event descriptor");
  routes_["/metrics"] = [metrics = std::move(handlers.metrics)](const PageRequest&) {
    return Answer{.type = "text/plain; version=0.0.4", .body = metrics()};
  };
  routes_["/livez"] = [alive = std::move(handlers.alive)](const PageRequest&) { return Answer::OfProbe(alive()); };
  for (const char* path : {"/readyz", "/healthz", "/health"}) {
    routes_[path] = [ready = handlers.ready](const PageRequest&) { return Answer::OfProbe(ready()); };
  }
  routes_["/version"] = [version = std::move(handlers.version_json)](const PageRequest&) {
    return Answer{.type = "application/json", .body = version()};
  };
  routes_["/configz"] = [config = std::move(handlers.config_yaml)](const PageRequest&) {
    return Answer{.body = config()};
  };
  routes_["/cache"] = [page = std::move(handlers.cache_page)](const PageRequest& request) {
    return Answer::OfPage(page(request));
  };
  thread_ = std::thread([this] { Run(); });
}

StatusOr<std::unique_ptr<OpsHttp>> OpsHttp::Start(const std::string& listen, OpsHandlers handlers,
                                                  const std::chrono::milliseconds exchange_max) {
  StatusOr<ListeningSocket> socket = Listen(listen);
  if (!socket.ok()) return Unavailable(fmt::format("ops.listen: {}", socket.status().message()));
  return std::unique_ptr<OpsHttp>(
      new OpsHttp(socket->fd, std::move(socket->address), std::move(handlers), exchange_max));
}

OpsHttp::~OpsHttp() {
  const uint64_t one = 1;
  Check(write(stop_fd_, &one, sizeof(one)) == sizeof(one), "the loop can be told to stop");
  thread_.join();
  close(stop_fd_);
  close(listen_fd_);
}

void OpsHttp::Run() {
  std::vector<pollfd> entries;
  for (;;) {
    const bool accepts = std::chrono::steady_clock::now() >= accept_again_;
    entries.assign({{.fd = stop_fd_, .events = POLLIN, .revents = 0},
                    {.fd = listen_fd_, .events = static_cast<int16_t>(accepts ? POLLIN : 0), .revents = 0}});
    Time next = accepts ? Time::max() : accept_again_;
    for (const Connection& connection : connections_) {
      const auto events = static_cast<int16_t>(connection.answer.empty() ? POLLIN : POLLOUT);
      entries.push_back({.fd = connection.fd, .events = events, .revents = 0});
      next = std::min(next, connection.until);
    }
    int timeout_ms = -1;
    if (next != Time::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
      timeout_ms = static_cast<int>(std::max<int64_t>(0, left.count()));
    }
    if (poll(entries.data(), entries.size(), timeout_ms) < 0) continue;  // A signal.
    if (entries[0].revents != 0) break;
    const Time now = std::chrono::steady_clock::now();
    auto entry = entries.begin() + 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); ++entry) {
      const bool over = now >= connection->until || (entry->revents != 0 && !Advance(*connection));
      connection = over ? connections_.erase(connection) : std::next(connection);
    }
    if (entries[1].revents != 0) Accept();
  }
  connections_.clear();
}

void OpsHttp::Accept() {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE) accept_again_ = std::chrono::steady_clock::now() + kAcceptRest;
    return;
  }
  // The oldest has had its time: who asks at once is answered at once.
  if (connections_.size() == kConnectionsMax) connections_.pop_front();
  connections_.emplace_back(fd, std::chrono::steady_clock::now() + exchange_max_);
}

bool OpsHttp::Advance(Connection& connection) {
  if (connection.answer.empty()) {
    char buffer[kRequestBytesMax];
    const ssize_t count = recv(connection.fd, buffer, sizeof(buffer), 0);
    if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
    connection.request.append(buffer, static_cast<size_t>(count));
    if (connection.request.find("\r\n\r\n") != std::string::npos) {
      connection.answer = AnswerTo(connection.request);
    } else if (connection.request.size() > kRequestBytesMax) {
      connection.answer = Answer{.status = 431, .body = "the request is too large\n"}.Text(true);
    } else {
      return true;
    }
  }
  while (connection.sent < connection.answer.size()) {
    const ssize_t count = send(connection.fd, connection.answer.data() + connection.sent,
                               connection.answer.size() - connection.sent, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(count);
  }
  return false;
}

std::string OpsHttp::AnswerTo(const std::string& request) const {
  const std::string_view line = std::string_view(request).substr(0, request.find("\r\n"));
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end == method_end ||
      !line.substr(target_end + 1).starts_with("HTTP/1.")) {
    return Answer{.status = 400, .body = "not an HTTP/1 request\n"}.Text(true);
  }
  const std::string_view method = line.substr(0, method_end);
  const bool with_body = method != "HEAD";
  if (with_body && method != "GET") return Answer{.status = 405, .body = "GET and HEAD only\n"}.Text(true);
  std::string_view path = line.substr(method_end + 1, target_end - method_end - 1);
  path = path.substr(0, path.find('?'));
  const auto route = routes_.find(path);
  if (route == routes_.end()) return Answer{.status = 404, .body = "no such page\n"}.Text(with_body);
  return route->second({.authorization = HeaderOf(request, "authorization"), .host = HeaderOf(request, "host")})
      .Text(with_body);
}

}  // namespace invar::server
