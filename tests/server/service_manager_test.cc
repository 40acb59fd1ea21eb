// What the service manager hears, on a socket of the test's.
#include "server/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace invar::server {
namespace {

using testing::HasSubstr;

class Manager {
 public:
  explicit Manager(const std::string& path) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path.data(), path.size());
    if (path[0] == '@') {
      at.sun_path[0] = '\0';
    } else {
      unlink(path.c_str());
    }
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
  }
  ~Manager() { close(fd_); }
  std::string Hear() const {
    char buffer[256];
    const ssize_t count = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return count < 0 ? std::string() : std::string(buffer, static_cast<size_t>(count));
  }

 private:
  const int fd_;
};

class Environment {
 public:
  Environment(const std::string& socket, const std::string& watchdog_usec, const std::string& watchdog_pid) {
    setenv("NOTIFY_SOCKET", socket.c_str(), 1);
    setenv("WATCHDOG_USEC", watchdog_usec.c_str(), 1);
    setenv("WATCHDOG_PID", watchdog_pid.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
};

TEST(ServiceManager, HearsEveryStateOnAPathAndInTheAbstractNamespace) {
  for (const std::string& path : {testing::TempDir() + "notify.sock", "@invar-test-" + std::to_string(getpid())}) {
    const Manager manager(path);
    const Environment environment(path, "30000000", std::to_string(getpid()));
    const ServiceManager us = ServiceManager::FromEnvironment();
    EXPECT_EQ(us.heartbeat_period(), std::chrono::seconds(15));
    us.Ready();
    EXPECT_THAT(manager.Hear(), HasSubstr("READY=1"));
    us.Reloading();
    EXPECT_THAT(manager.Hear(), testing::MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
    us.Stopping();
    EXPECT_THAT(manager.Hear(), HasSubstr("STOPPING=1"));
    us.Heartbeat();
    EXPECT_EQ(manager.Hear(), "WATCHDOG=1");
    EXPECT_EQ(manager.Hear(), "");
  }
}

TEST(ServiceManager, HearsHeartbeatsAlsoWhereNoDescriptorIsLeft) {
  const std::string path = testing::TempDir() + "notify_full.sock";
  const Manager manager(path);
  const Environment environment(path, "30000000", std::to_string(getpid()));
  const ServiceManager us = ServiceManager::FromEnvironment();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  us.Heartbeat();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(manager.Hear(), "WATCHDOG=1");
}

TEST(ServiceManager, IsSilentWhereTheEnvironmentNamesNone) {
  const ServiceManager us = ServiceManager::FromEnvironment();
  EXPECT_EQ(us.heartbeat_period(), std::chrono::seconds(0));
  us.Ready();
}

TEST(ServiceManager, WantsNoHeartbeatOfAnotherProcessOrOfNonsense) {
  struct Row {
    std::string usec, pid;
  };
  for (const Row& row : {Row{"30000000", "1"}, Row{"abc", std::to_string(getpid())}, Row{"", ""}}) {
    const Environment environment("/nonexistent/notify", row.usec, row.pid);
    EXPECT_EQ(ServiceManager::FromEnvironment().heartbeat_period(), std::chrono::seconds(0)) << row.usec;
  }
}

TEST(ServiceManager, SurvivesASocketThatIsNotThereOrHasTooLongAName) {
  for (const std::string& path : {std::string("/nonexistent/notify"), "/" + std::string(200, 'a')}) {
    const Environment environment(path, "30000000", std::to_string(getpid()));
    ServiceManager::FromEnvironment().Ready();
  }
}

}  // namespace
}  // namespace invar::server
