// Which ports the probe finds alive. Ports of real daemons are probed in tests/e2e.
#include "server/net/port_probe.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "server/net/connection_acceptor.h"

namespace invar::server {
namespace {

constexpr std::chrono::milliseconds kPeriod(20);

PortProbe::Options Quick(const std::string& address, const bool tls = false) {
  return {.address = address, .tls = tls, .period = kPeriod, .patience = std::chrono::milliseconds(50)};
}

// Whether `condition` came true; false after a time that no machine needs.
bool Comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return condition();
}

TEST(PortProbe, CountsTheTimeAPortAcceptsButSaysNothing) {
  const ListeningSocket deaf = Listen("127.0.0.1:0").value();  // The kernel takes connections, nobody else does.
  for (const bool tls : {false, true}) {
    const PortProbe probe(Quick(deaf.address, tls));
    EXPECT_TRUE(Comes([&] { return probe.failing_for() >= 3 * kPeriod; })) << tls;
  }
  close(deaf.fd);
}

TEST(PortProbe, CountsAPortWhereNobodyListens) {
  const ListeningSocket gone = Listen("127.0.0.1:0").value();
  close(gone.fd);
  const PortProbe probe(Quick(gone.address));
  EXPECT_TRUE(Comes([&] { return probe.failing_for() >= 2 * kPeriod; }));
}

TEST(PortProbe, TakesACloseForLifeAndForgetsFailuresThen) {
  const ListeningSocket full = Listen("127.0.0.1:0").value();
  const PortProbe probe(Quick(full.address));
  ASSERT_TRUE(Comes([&] { return probe.failing_for() > std::chrono::milliseconds(0); }));
  EXPECT_TRUE(Comes([&] {  // A house that is full closes at once.
    const int fd = accept(full.fd, nullptr, nullptr);
    if (fd >= 0) close(fd);
    return probe.failing_for() == std::chrono::milliseconds(0);
  }));
  close(full.fd);
}

TEST(PortProbe, EndsAtOnceInTheMiddleOfAProbe) {
  const ListeningSocket deaf = Listen("127.0.0.1:0").value();
  PortProbe::Options options = Quick(deaf.address);
  options.patience = std::chrono::minutes(10);
  const auto begin = std::chrono::steady_clock::now();
  int fd = -1;
  {
    const PortProbe probe(options);
    // The probe's connection is there: it waits for a reaction that never comes.
    while ((fd = accept(deaf.fd, nullptr, nullptr)) < 0) std::this_thread::yield();
  }
  close(fd);
  close(deaf.fd);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

}  // namespace
}  // namespace invar::server
