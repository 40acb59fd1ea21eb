// ServiceManager: what systemd wants to hear of a Type=notify unit: ready, reloading, stopping, and a heartbeat while
// the process is well. Lines of text as datagrams to the socket the environment names; nothing where it names none.
// Source: sd_notify(3), sd_watchdog_enabled(3).
// Threads: one.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace invar::server {

class ServiceManager {
 public:
  // From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Keeps a descriptor: a heartbeat that is not sent because others
  // have taken them all would end a process that is well.
  static ServiceManager FromEnvironment();
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  void Ready() const;
  // Ready follows once that is done.
  void Reloading() const;
  void Stopping() const;
  void Heartbeat() const;
  // How often Heartbeat is to be said: half of what the manager waits; zero: it does not wait for any.
  std::chrono::milliseconds heartbeat_period() const { return heartbeat_period_; }

 private:
  ServiceManager();
  // Errors are logged, not returned: a manager that does not listen is no reason to stop serving.
  void Send(std::string_view lines) const;

  // Set at construction.
  std::string socket_;  // Empty: no manager. A leading '@' names the abstract namespace.
  int fd_ = -1;
  std::chrono::milliseconds heartbeat_period_{0};
};

}  // namespace invar::server
