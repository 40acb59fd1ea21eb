// Which ports the probe finds alive. Ports of real daemons are probed in tests/e2e.
#include "server/port_probe.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "server/connection_acceptor.h"

namespace invar::server {
namespace {

constexpr std::chrono::milliseconds kPeriod(20);

PortProbe::Options Quick(const std::string& address, const bool tls = false) {
  return {.address = address, .tls = tls, .period = kPeriod, .patience = std::chrono::milliseconds(50)};
}

TEST(PortProbe, CountsTheTimeAPortAcceptsButSaysNothing) {
  const ListeningSocket deaf = Listen("127.0.0.1:0").value();  // The kernel takes connections, nobody else does.
  for (const bool tls : {false, true}) {
    const PortProbe probe(Quick(deaf.address, tls));
    while (probe.failing_for() < 3 * kPeriod) std::this_thread::yield();
  }
  close(deaf.fd);
}

TEST(PortProbe, CountsAPortWhereNobodyListens) {
  const ListeningSocket gone = Listen("127.0.0.1:0").value();
  close(gone.fd);
  const PortProbe probe(Quick(gone.address));
  while (probe.failing_for() < 2 * kPeriod) std::this_thread::yield();
}

TEST(PortProbe, TakesACloseForLifeAndForgetsFailuresThen) {
  const ListeningSocket full = Listen("127.0.0.1:0").value();
  const PortProbe probe(Quick(full.address));
  while (probe.failing_for() == std::chrono::milliseconds(0)) std::this_thread::yield();
  std::thread closer([&] {  // A house that is full closes at once.
    while (probe.failing_for() > std::chrono::milliseconds(0)) {
      const int fd = accept(full.fd, nullptr, nullptr);
      if (fd >= 0) close(fd);
    }
  });
  closer.join();
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
