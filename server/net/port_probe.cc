// See port_probe.h. Everything waits in poll together with the stop event, so that the end never waits for a probe.
#include "server/net/port_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "config/fields.h"

namespace invar::server {

PortProbe::PortProbe(Options options)
    : options_(std::move(options)), stop_fd_(eventfd(0, EFD_CLOEXEC)), thread_([this] { Run(); }) {
  Check(stop_fd_ >= 0, "the system gives an event descriptor");
}

PortProbe::~PortProbe() {
  const uint64_t one = 1;
  Check(write(stop_fd_, &one, sizeof(one)) == sizeof(one), "the stop event takes a one");
  thread_.join();
  close(stop_fd_);
}

void PortProbe::Run() {
  for (;;) {
    Await(-1, 0, options_.period);
    if (Await(stop_fd_, POLLIN, std::chrono::milliseconds(0))) return;
    if (Reacts()) {
      failures_ = 0;
    } else if (!Await(stop_fd_, POLLIN, std::chrono::milliseconds(0))) {
      ++failures_;
      Logger("server")->warn("the gRPC port {} has not reacted to {} probes in a row", options_.address,
                             failures_.load());
    }
  }
}

bool PortProbe::Await(const int fd, const short events, const std::chrono::milliseconds timeout) const {
  std::array<pollfd, 2> fds = {
      {{.fd = fd, .events = events, .revents = 0}, {.fd = stop_fd_, .events = POLLIN, .revents = 0}}};
  return poll(fds.data(), fds.size(), static_cast<int>(timeout.count())) > 0 && fds[0].revents != 0;
}

bool PortProbe::Reacts() const {
  const StatusOr<config::HostPort> at = config::ParseAddress(options_.address);
  if (!at.ok()) return false;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;  // As the listener was bound.
  addrinfo* found = nullptr;
  if (getaddrinfo(at->host.c_str(), std::to_string(at->port).c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool reacts = connect(fd, found->ai_addr, found->ai_addrlen) == 0 ||
                (errno == EINPROGRESS && Await(fd, POLLOUT, options_.patience));
  if (reacts && options_.tls) shutdown(fd, SHUT_WR);
  reacts = reacts && Await(fd, POLLIN, options_.patience);
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  close(fd);
  // Refused: nobody listens. A reset is the close of a full house.
  return reacts && error != ECONNREFUSED;
}

}  // namespace invar::server
