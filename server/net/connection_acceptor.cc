// The accept loop: epoll over the listener, a stop event and the kept dups (for their end only). While it accepts it
// does not see ends, and of a flood that has gone many wait unaccepted: both are asked for where they matter.
#include "server/net/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "config/fields.h"

namespace invar::server {
namespace {

constexpr uint64_t kListenerKey = 0;
constexpr uint64_t kStopKey = 1;
// Descriptors left for everything else: model files, ops port, logs, gRPC's own.
constexpr int64_t kReservedFiles = 48;
// Each connection holds gRPC's descriptor and our dup.
constexpr int64_t kFilesPerConnection = 2;
// Rest of the listener after EMFILE: long enough not to spin, short enough to be back at once.
constexpr int kBackOffMs = 100;
constexpr int kBacklog = 512;

struct Peer {
  std::string ip;
  std::string name;  // As ServerContext::peer() writes it.
};

Peer PeerOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
      inet_ntop(AF_INET, in6.sin6_addr.s6_addr + 12, text.data(), text.size());
      return {text.data(), fmt::format("ipv4:{}:{}", text.data(), ntohs(in6.sin6_port))};
    }
    inet_ntop(AF_INET6, &in6.sin6_addr, text.data(), text.size());
    return {text.data(), fmt::format("ipv6:%5B{}%5D:{}", text.data(), ntohs(in6.sin6_port))};
  }
  const auto& in4 = reinterpret_cast<const sockaddr_in&>(address);
  inet_ntop(AF_INET, &in4.sin_addr, text.data(), text.size());
  return {text.data(), fmt::format("ipv4:{}:{}", text.data(), ntohs(in4.sin_port))};
}

std::string BoundAddress(const int fd, const std::string& host) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const int port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                                     : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

// Whether the system has room for one more (fs.epoll.max_user_watches).
[[nodiscard]] bool Watch(const int epoll_fd, const int fd, const uint64_t key, const uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  Check(errno == ENOSPC || errno == ENOMEM, "epoll takes a descriptor", errno);
  return false;
}

// Whether the peer has closed (or half-closed, which ends a connection for gRPC too).
bool PeerHasGone(const int fd) {
  pollfd entry{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

int64_t ConnectionsTheFilesAllow() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return std::max<int64_t>(1, (static_cast<int64_t>(limit.rlim_cur) - kReservedFiles) / kFilesPerConnection);
}

}  // namespace

StatusOr<ListeningSocket> Listen(const std::string& address) {
  const StatusOr<config::HostPort> parsed = config::ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(), &hints, &found);
  if (error != 0) return Unavailable(fmt::format("cannot listen on {}: {}", address, gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  int last_errno = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      last_errno = errno;
      continue;
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
      return ListeningSocket{.fd = fd, .address = BoundAddress(fd, parsed->host)};
    }
    last_errno = errno;
    close(fd);
  }
  return Unavailable(fmt::format("cannot listen on {}: {}", address, std::strerror(last_errno)));
}

ConnectionAcceptor::ConnectionAcceptor(ListeningSocket socket, const AcceptorOptions& options, Metrics& metrics,
                                       const Clock& clock)
    : address_(std::move(socket.address)),
      metrics_(metrics),
      clock_(clock),
      listen_fd_(socket.fd),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  Check(epoll_fd_ >= 0 && stop_fd_ >= 0, "the system gives an epoll and an event descriptor");
  SetOptions(options);
}

void ConnectionAcceptor::SetOptions(const AcceptorOptions& options) {
  const int64_t allowed = ConnectionsTheFilesAllow();
  if (allowed < options.connections_max) {
    Logger("server")->warn("connections limited to {} instead of {}: the open-file limit is low", allowed,
                           options.connections_max);
  }
  MutexLock lock(mu_);
  options_ = options;
  options_.connections_max = std::min(options.connections_max, allowed);
}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
  MutexLock lock(mu_);
  for (const auto& [key, connection] : connections_) close(connection.dup_fd);
  if (waiting_) close(waiting_->fd);
  close(epoll_fd_);
  close(stop_fd_);
}

void ConnectionAcceptor::Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> sink) {
  sink_ = std::move(sink);
  Check(Watch(epoll_fd_, listen_fd_, kListenerKey, EPOLLIN) && Watch(epoll_fd_, stop_fd_, kStopKey, EPOLLIN),
        "the system watches the listener (fs.epoll.max_user_watches)");
  thread_ = std::thread([this] { Run(); });
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    Check(write(stop_fd_, &one, sizeof(one)) == sizeof(one), "the stop event takes a one");
    thread_.join();
  }
  if (listen_fd_ >= 0) close(std::exchange(listen_fd_, -1));
}

void ConnectionAcceptor::Run() {
  bool resting = false;  // The listener is out of the epoll set until the back-off is over.
  for (;;) {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_fd_, events.data(), events.size(), resting ? kBackOffMs : -1);
    bool accept_now = std::exchange(resting, false);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStopKey) return;
      if (key == kListenerKey) {
        accept_now = true;
      } else {
        Forget(key);
      }
    }
    if (!accept_now || AcceptAll()) continue;
    resting = true;
    // Level-triggered: with clients waiting the listener would wake the loop at once, so it is masked meanwhile.
    epoll_event event{.events = 0, .data = {.u64 = kListenerKey}};
    epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, listen_fd_, &event);
  }
}

bool ConnectionAcceptor::AcceptAll() {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerKey}};
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, listen_fd_, &event);
  if (waiting_ && !Admit(*waiting_)) {
    metrics_.CountRefusal(Refusal::kFiles);
    return false;
  }
  waiting_.reset();
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd = accept4(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      Peer peer = PeerOf(address);
      Accepted accepted{.fd = fd, .ip = std::move(peer.ip), .peer = std::move(peer.name)};
      if (Admit(accepted)) continue;
      waiting_ = std::move(accepted);
      metrics_.CountRefusal(Refusal::kFiles);
      return false;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      metrics_.CountRefusal(Refusal::kFiles);
      return false;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP) return false;  // No listener.
    // Others (ECONNABORTED, EINTR, network errors) concern that one connection.
  }
}

std::optional<Refusal> ConnectionAcceptor::CapReached(const std::string& ip) {
  if (open_count_ >= options_.connections_max) return Refusal::kTotal;
  const auto count = by_ip_.find(ip);
  if (count != by_ip_.end() && count->second >= options_.connections_per_address_max) return Refusal::kPerAddress;
  return std::nullopt;
}

bool ConnectionAcceptor::Admit(const Accepted& accepted) {
  // Of a flood that is over most were never accepted: they would only take descriptors from those who stay.
  if (PeerHasGone(accepted.fd)) {
    close(accepted.fd);
    return true;
  }
  std::optional<Refusal> refusal;
  {
    MutexLock lock(mu_);
    refusal = CapReached(accepted.ip);
  }
  if (refusal) ForgetEnded();
  {
    MutexLock lock(mu_);
    refusal = CapReached(accepted.ip);
    if (!refusal) {
      const int dup_fd = fcntl(accepted.fd, F_DUPFD_CLOEXEC, 0);
      if (dup_fd < 0) return false;
      const uint64_t key = next_key_++;
      if (!Watch(epoll_fd_, dup_fd, key, EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLONESHOT)) {
        close(dup_fd);
        return false;
      }
      connections_[key] = {.dup_fd = dup_fd,
                           .ip = accepted.ip,
                           .reset_budget = static_cast<double>(options_.resets_burst),
                           .budget_at = clock_.Now()};
      by_peer_[accepted.peer] = key;
      ++by_ip_[accepted.ip];
      ++open_count_;
    }
  }
  if (refusal) {
    metrics_.CountRefusal(*refusal);
    close(accepted.fd);
    return true;
  }
  const int on = 1;
  setsockopt(accepted.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = listen_fd_;
  connection.fd = accepted.fd;
  sink_->HandleNewConnection(&connection);
  return true;
}

void ConnectionAcceptor::ForgetEnded() {
  for (bool found = true; found;) {
    found = false;
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_fd_, events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kListenerKey || key == kStopKey) continue;  // Level-triggered: the loop sees them again.
      Forget(key);
      found = true;
    }
  }
}

void ConnectionAcceptor::Forget(const uint64_t key) {
  MutexLock lock(mu_);
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  std::erase_if(by_peer_, [key](const auto& entry) { return entry.second == key; });
  if (--by_ip_[found->second.ip] == 0) by_ip_.erase(found->second.ip);
  // By name: while gRPC still holds the same connection, closing the dup alone would not take it out.
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, found->second.dup_fd, nullptr);
  close(found->second.dup_fd);
  connections_.erase(found);
  --open_count_;
}

void ConnectionAcceptor::NoteCancel(const std::string& peer) {
  MutexLock lock(mu_);
  const auto key = by_peer_.find(peer);
  if (key == by_peer_.end()) return;
  Connection& connection = connections_[key->second];
  const TimeNs now = clock_.Now();
  connection.reset_budget =
      std::min(static_cast<double>(options_.resets_burst),
               connection.reset_budget + ToSeconds(now - connection.budget_at) * options_.resets_per_second);
  connection.budget_at = now;
  connection.reset_budget -= 1;
  if (connection.reset_budget >= 0) return;
  metrics_.CountRefusal(Refusal::kAbuse);
  Logger("server")->warn("connection closed: its calls are cancelled faster than server.resets_per_second");
  shutdown(connection.dup_fd, SHUT_RDWR);  // The loop sees the end and forgets it.
  by_peer_.erase(key);
}

}  // namespace invar::server
