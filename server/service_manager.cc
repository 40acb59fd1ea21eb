// See service_manager.h.
#include "server/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace invar::server {
namespace {

// 0 where the variable is absent or no number.
int64_t NumberOf(const char* const variable) {
  const char* const text = std::getenv(variable);
  int64_t value = 0;
  if (text == nullptr) return 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end ? value : 0;
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() { return ServiceManager(); }

ServiceManager::ServiceManager() {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  socket_ = path;
  fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // The watchdog may be meant for another process of the unit.
  const int64_t pid = NumberOf("WATCHDOG_PID");
  if (pid == 0 || pid == getpid()) {
    heartbeat_period_ = std::chrono::milliseconds(NumberOf("WATCHDOG_USEC") / 1000 / 2);
  }
}

ServiceManager::~ServiceManager() {
  if (fd_ >= 0) close(fd_);
}

void ServiceManager::Ready() const { Send("READY=1\nSTATUS=serving"); }

void ServiceManager::Reloading() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // Newer managers order reloads by it.
  Send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000));
}

void ServiceManager::Stopping() const { Send("STOPPING=1\nSTATUS=draining"); }

void ServiceManager::Heartbeat() const { Send("WATCHDOG=1"); }

void ServiceManager::Send(const std::string_view lines) const {
  if (socket_.empty()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  bool sent = false;
  if (fd_ >= 0 && socket_.size() < sizeof(to.sun_path)) {
    std::memcpy(to.sun_path, socket_.data(), socket_.size());
    if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
    // Never waits: the heartbeat comes from the thread that also takes signals.
    sent = sendto(fd_, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&to),
                  size) == static_cast<ssize_t>(lines.size());
  }
  if (!sent) Logger("server")->warn("the service manager at {} could not be told {}", socket_, lines);
}

}  // namespace invar::server
