// TCP and Unix sockets that never wait beyond a deadline: non-blocking, with poll.
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/tiers/byte_stream.h"

namespace invar::cache {
namespace {

class SocketStream final : public ByteStream {
 public:
  SocketStream(const int fd, std::string address, const Clock& clock)
      : fd_(fd), address_(std::move(address)), clock_(clock) {}
  ~SocketStream() override { close(fd_); }

  Status Connect(const sockaddr* const to, const socklen_t bytes, const TimeNs deadline) {
    if (connect(fd_, to, bytes) == 0) return OkStatus();
    if (errno != EINPROGRESS && errno != EINTR) return Broken("connect");
    if (Status ready = Await(POLLOUT, deadline); !ready.ok()) return ready;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error == 0 ? OkStatus() : Broken("connect");
  }

  Status WriteAll(std::span<const std::byte> from, const TimeNs deadline) override {
    while (!from.empty()) {
      const ssize_t put = send(fd_, from.data(), from.size(), MSG_NOSIGNAL);
      if (put > 0) {
        from = from.subspan(static_cast<size_t>(put));
      } else if (put < 0 && errno != EAGAIN && errno != EINTR) {
        return Broken("send");
      } else if (Status ready = Await(POLLOUT, deadline); !ready.ok()) {
        return ready;
      }
    }
    return OkStatus();
  }

  StatusOr<size_t> ReadSome(const std::span<std::byte> to, const TimeNs deadline) override {
    for (;;) {
      const ssize_t got = recv(fd_, to.data(), to.size(), 0);
      if (got > 0) return static_cast<size_t>(got);
      if (got == 0) return Unavailable(fmt::format("remote: {} closed the connection", address_));
      if (errno != EAGAIN && errno != EINTR) return Broken("receive");
      if (Status ready = Await(POLLIN, deadline); !ready.ok()) return ready;
    }
  }

  bool IsIdle() override {
    std::byte byte;
    return recv(fd_, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
  }

 private:
  Status Broken(const char* const doing) const {
    return Unavailable(fmt::format("remote: {}: {}: {}", address_, doing, std::strerror(errno)));
  }

  Status Await(const short events, const TimeNs deadline) const {
    for (;;) {
      const TimeNs left = deadline - clock_.Now();
      if (left <= 0) {
        return Status(StatusCode::kDeadlineExceeded, fmt::format("remote: {} does not answer in time", address_));
      }
      pollfd entry{.fd = fd_, .events = events, .revents = 0};
      // Rounded up, so that the last millisecond is not spun through; in slices of at most a minute.
      const auto timeout_ms = static_cast<int>(std::min<TimeNs>(left / 1'000'000 + 1, 60'000));
      const int ready = poll(&entry, 1, timeout_ms);
      if (ready > 0) return OkStatus();
      if (ready < 0 && errno != EINTR) return Broken("poll");
    }
  }

  const int fd_;
  const std::string address_;
  const Clock& clock_;
};

StatusOr<std::unique_ptr<ByteStream>> ConnectTo(const int family, const sockaddr* const to, const socklen_t bytes,
                                                const std::string& address, const TimeNs deadline, const Clock& clock) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unavailable(fmt::format("remote: no socket: {}", std::strerror(errno)));
  auto stream = std::make_unique<SocketStream>(fd, address, clock);
  if (family != AF_UNIX) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  }
  if (Status connected = stream->Connect(to, bytes, deadline); !connected.ok()) return connected;
  return StatusOr<std::unique_ptr<ByteStream>>(std::move(stream));
}

}  // namespace

StatusOr<std::unique_ptr<ByteStream>> ConnectSocket(const std::string& address, const TimeNs deadline,
                                                    const Clock& clock) {
  constexpr std::string_view kUnix = "unix:";
  if (address.starts_with(kUnix)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const std::string path = address.substr(kUnix.size());
    if (path.size() >= sizeof(to.sun_path)) return InvalidArgument(fmt::format("remote: {}: too long", address));
    std::copy(path.begin(), path.end(), to.sun_path);
    return ConnectTo(AF_UNIX, reinterpret_cast<const sockaddr*>(&to), sizeof(to), address, deadline, clock);
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return InvalidArgument(fmt::format("remote: {}: wants HOST:PORT", address));
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &wanted, &found); error != 0) {
    return Unavailable(fmt::format("remote: {}: {}", address, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Status last = Unavailable(fmt::format("remote: {}: no address", address));
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    auto stream = ConnectTo(a->ai_family, a->ai_addr, a->ai_addrlen, address, deadline, clock);
    if (stream.ok()) return stream;
    last = stream.status();
  }
  return last;
}

}  // namespace invar::cache
