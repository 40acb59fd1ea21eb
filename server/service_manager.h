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
  // From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  static ServiceManager FromEnvironment();

  void Ready() const;
  // Ready follows once that is done.
  void Reloading() const;
  void Stopping() const;
  void Heartbeat() const;
  // How often Heartbeat is to be said: half of what the manager waits; zero: it does not wait for any.
  std::chrono::milliseconds heartbeat_period() const { return heartbeat_period_; }

 private:
  // Errors are logged, not returned: a manager that does not listen is no reason to stop serving.
  void Send(std::string_view lines) const;

  std::string socket_;  // Empty: no manager. A leading '@' names the abstract namespace.
  std::chrono::milliseconds heartbeat_period_{0};
};

}  // namespace invar::server
