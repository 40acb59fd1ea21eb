// The accept loop with a sink in gRPC's place that can hold it still: who is refused, who waits, who never arrives.
#include "server/net/connection_acceptor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "config/fields.h"
#include "tests/support/loopback.h"

namespace invar::server {
namespace {

// What the sink has been given; taking one may be made to wait.
class Taken {
 public:
  ~Taken() {
    for (const int fd : fds_) close(fd);
  }
  void Hold() {
    MutexLock lock(mu_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(mu_);
    held_ = false;
    changed_.NotifyAll();
  }
  void Take(const int fd) {
    MutexLock lock(mu_);
    fds_.push_back(fd);
    changed_.NotifyAll();
    while (held_) changed_.Wait(mu_);
  }
  void AwaitCount(const size_t count) {
    MutexLock lock(mu_);
    while (fds_.size() < count) changed_.Wait(mu_);
  }
  size_t count() {
    MutexLock lock(mu_);
    return fds_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool held_ GUARDED_BY(mu_) = false;
  std::vector<int> fds_ GUARDED_BY(mu_);
};

class Sink final : public grpc::experimental::ExternalConnectionAcceptor {
 public:
  explicit Sink(Taken& taken) : taken_(taken) {}
  void HandleNewConnection(NewConnectionParameters* connection) override { taken_.Take(connection->fd); }

 private:
  Taken& taken_;
};

struct Client {
  explicit Client(const std::string& address) : Client() { Connect(address); }
  Client() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  Client(Client&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  ~Client() {
    if (fd >= 0) close(fd);
  }
  void Connect(const std::string& address) const {
    ASSERT_TRUE(ConnectLoopback(fd, config::ParseAddress(address)->port));
  }
  int fd = -1;
};

struct Running {
  explicit Running(const AcceptorOptions& options)
      : metrics(false), acceptor(Listen("127.0.0.1:0").value(), options, metrics, clock) {
    acceptor.Start(std::make_unique<Sink>(taken));
  }

  RealClock clock;
  Metrics metrics;
  Taken taken;
  ConnectionAcceptor acceptor;
};

class Caps : public testing::TestWithParam<AcceptorOptions> {};

TEST_P(Caps, DoNotRefuseWhoComesAfterOthersHaveClosed) {
  Running running(GetParam());
  {
    std::vector<Client> flood;
    for (size_t i = 1; i <= 4; ++i) {
      if (i == 4) running.taken.Hold();  // The loop stands in the middle of accepting and cannot see the ends below.
      flood.emplace_back(running.acceptor.address());
      running.taken.AwaitCount(i);
    }
  }
  const Client next(running.acceptor.address());
  running.taken.Release();
  running.taken.AwaitCount(5);
}

TEST_P(Caps, RefuseWhileTheOthersStay) {
  Running running(GetParam());
  std::vector<Client> held;
  for (size_t i = 1; i <= 4; ++i) {
    held.emplace_back(running.acceptor.address());
    running.taken.AwaitCount(i);
  }
  const Client surplus(running.acceptor.address());
  char byte = 0;
  EXPECT_LE(recv(surplus.fd, &byte, 1, 0), 0) << "closed";
  EXPECT_EQ(running.taken.count(), 4U);
}

INSTANTIATE_TEST_SUITE_P(Both, Caps,
                         testing::Values(AcceptorOptions{.connections_max = 4, .connections_per_address_max = 100},
                                         AcceptorOptions{.connections_max = 100, .connections_per_address_max = 4}),
                         [](const auto& info) { return info.param.connections_max == 4 ? "Total" : "PerAddress"; });

TEST(ConnectionAcceptor, APeerThatHasGoneBeforeItsTurnReachesNobody) {
  Running running({.connections_max = 100, .connections_per_address_max = 100});
  running.taken.Hold();
  const Client first(running.acceptor.address());
  running.taken.AwaitCount(1);
  { const Client gone(running.acceptor.address()); }
  const Client last(running.acceptor.address());
  running.taken.Release();
  running.taken.AwaitCount(2);
  running.acceptor.Stop();
  EXPECT_EQ(running.taken.count(), 2U);
}

TEST(ConnectionAcceptor, WaitsForADescriptorInsteadOfResettingAConnection) {
  Running running({.connections_max = 100, .connections_per_address_max = 100});
  const Client client;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // One descriptor is left: the accepted connection's. Its dup finds none.
  const int lowest_free = dup(STDERR_FILENO);
  ASSERT_GE(lowest_free, 0);
  close(lowest_free);
  const rlimit tight{.rlim_cur = static_cast<rlim_t>(lowest_free) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  client.Connect(running.acceptor.address());
  while (running.metrics.refusals(Refusal::kFiles) == 0) std::this_thread::yield();
  EXPECT_EQ(running.taken.count(), 0U);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  running.taken.AwaitCount(1);
}

}  // namespace
}  // namespace invar::server
