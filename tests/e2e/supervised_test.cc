// What watches the daemon: the service manager's socket, probes that ask whether it lives, and the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "config/fields.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/daemon_fixture.h"

namespace invar::e2e {
namespace {

using testing::HasSubstr;

// --- The service manager ---

class NotifySocket {
 public:
  NotifySocket() : path_(testing::TempDir() + "invard.notify"), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    unlink(path_.c_str());
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path_.data(), path_.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  }
  ~NotifySocket() { close(fd_); }
  const std::string& path() const { return path_; }
  // Empty where nothing comes for ten seconds.
  std::string Next() const {
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, 10'000) <= 0) return {};
    char buffer[256];
    const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
    return count < 0 ? std::string() : std::string(buffer, static_cast<size_t>(count));
  }
  // The next message that is no heartbeat.
  std::string NextState() const {
    std::string message;
    do message = Next();
    while (message == "WATCHDOG=1");
    return message;
  }

 private:
  const std::string path_;
  const int fd_;
};

TEST(Process, TellsTheServiceManagerOfItsLife) {
  const NotifySocket manager;
  setenv("NOTIFY_SOCKET", manager.path().c_str(), 1);
  setenv("WATCHDOG_USEC", "100000", 1);
  ChildProcess invard(INVARD_PATH,
                      {"--model", TinyModelFolder(), "--set", "server.listen=127.0.0.1:0", "--set", "ops.listen=off",
                       "--set", "engine.pack_to_file=false", "--set", "log.level=error"});
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  EXPECT_THAT(manager.Next(), HasSubstr("READY=1"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  invard.Signal(SIGHUP);
  EXPECT_THAT(manager.NextState(), HasSubstr("RELOADING=1"));
  EXPECT_THAT(manager.NextState(), HasSubstr("READY=1"));
  invard.Signal(SIGTERM);
  EXPECT_THAT(manager.NextState(), HasSubstr("STOPPING=1"));
  EXPECT_EQ(invard.Wait(), 0);
}

// --- Liveness ---

TEST(Livez, StaysGoodOverAnIdleTimeLongerThanTheWatchdog) {
  StepGate gate;
  config::Config config = TinyConfig();
  config.health.stall_timeout = std::chrono::seconds(60);
  HandClock clock;
  RunningDaemon daemon(config, FingerprintLoader(&gate), &clock);
  const std::string ops = daemon.daemon().ops_address();
  const auto stub = daemon.NewStub();
  ASSERT_TRUE(Collect(*stub, TokensRequest({1}, 2)).status.ok());
  ASSERT_TRUE(daemon.BecomesIdle());  // An answer can be read before its step has ended.
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  clock.Advance(std::chrono::hours(1));
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200) << "idle is well";
  // The first request after the quiet hour stands in its first step: its hour has not begun.
  gate.Close();
  std::thread caller([&] { EXPECT_TRUE(Collect(*daemon.NewStub(), TokensRequest({1}, 2)).status.ok()); });
  gate.AwaitStanding();
  while (daemon.stats().submitted < 2) std::this_thread::yield();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  clock.Advance(std::chrono::seconds(59));
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  gate.Open();
  caller.join();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  EXPECT_EQ(HttpGet(ops, "/readyz").status, 200);
}

TEST(Livez, FindsItsOwnPortAliveWithAndWithoutTls) {
  const CertificateSet set = MakeCertificates();
  for (const bool tls : {false, true}) {
    config::Config config = TinyConfig();
    config.health.probe_period = config::Duration(20);
    config.health.stall_timeout = config::Duration(20);  // One failed probe is enough.
    if (tls) {
      config.tls.certificate = testing::TempDir() + "probe.pem";
      config.tls.key = testing::TempDir() + "probe.key";
      std::ofstream(config.tls.certificate) << set.server.certificate;
      std::ofstream(config.tls.key) << set.server.key;
    }
    RunningDaemon daemon(config, FingerprintLoader(nullptr));
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (std::chrono::steady_clock::now() < until) {
      const HttpAnswer answer = HttpGet(daemon.daemon().ops_address(), "/livez");
      ASSERT_EQ(answer.status, 200) << answer.body << (tls ? " with TLS" : "");
    }
  }
}

// Breaks this process's listening socket of that address behind the daemon's back.
void StopListening(const std::string& address) {
  const int port = config::ParseAddress(address)->port;
  for (int fd = 3; fd < 4096; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_in at{};
    size = sizeof(at);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0 || ntohs(at.sin_port) != port) continue;
    shutdown(fd, SHUT_RDWR);
    return;
  }
  FAIL() << "nobody listens on " << address;
}

TEST(Livez, FailsOnceItsOwnPortIsDeaf) {
  config::Config config = TinyConfig();
  config.health.probe_period = config::Duration(20);
  config.health.stall_timeout = config::Duration(60);
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  const std::string ops = daemon.daemon().ops_address();
  EXPECT_EQ(HttpGet(ops, "/livez").status, 200);
  StopListening(daemon.daemon().grpc_address());
  HttpAnswer answer;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (answer.status != 503 && std::chrono::steady_clock::now() < until) answer = HttpGet(ops, "/livez");
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("gRPC port"));
}

// --- The log ---

// The lines of one request, as JSON objects.
std::vector<nlohmann::json> RequestLines(const v1::GenerateRequest& request, const bool expect_ok) {
  config::Config config = TinyConfig();
  config.log.requests = true;
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  testing::internal::CaptureStderr();
  ConfigureLogs(LogFormat::kJson, "info");
  EXPECT_EQ(Collect(*daemon.NewStub(), request).status.ok(), expect_ok);
  EXPECT_TRUE(daemon.daemon().WaitIdle(std::chrono::seconds(10)));
  ConfigureLogs(LogFormat::kText, "error");
  std::istringstream text(testing::internal::GetCapturedStderr());
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(object.is_object()) << line;
    EXPECT_EQ(line.find("whisper"), std::string::npos) << "prompt text in the log: " << line;
    if (object.value("msg", "") == "request ended") lines.push_back(object);
  }
  return lines;
}

TEST(Log, SaysOneLineOfFactsAtTheEndOfARequest) {
  v1::GenerateRequest request = TextRequest("whisper", 4);
  request.set_request_id("id-\"7\"");
  const std::vector<nlohmann::json> lines = RequestLines(request, true);
  ASSERT_EQ(lines.size(), 1U);
  const nlohmann::json& line = lines[0];
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["request_id"], "id-\"7\"");
  EXPECT_EQ(line["tenant"], "");
  EXPECT_EQ(line["model"], "fingerprint");
  EXPECT_EQ(line["status"], "OK");
  EXPECT_EQ(line["finish"], "length");
  EXPECT_GT(line["prompt_tokens"], 0);
  EXPECT_EQ(line["output_tokens"], 4);
  for (const char* seconds : {"total_s", "queue_s", "prefill_s", "decode_s", "first_token_s"}) {
    EXPECT_GE(line[seconds].get<double>(), 0.0) << seconds;
  }
  EXPECT_FALSE(line.contains("error"));
}

TEST(Log, SaysWhyARequestWasRefused) {
  v1::GenerateRequest request = TextRequest("whisper", 4);
  request.set_request_id("mine");
  request.mutable_sampling()->set_top_p(7.0F);
  const std::vector<nlohmann::json> lines = RequestLines(request, false);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["request_id"], "mine");
  EXPECT_EQ(lines[0]["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(lines[0]["field"], "sampling.top_p");
  EXPECT_EQ(lines[0]["output_tokens"], 0);
  EXPECT_FALSE(lines[0].contains("finish"));
}

}  // namespace
}  // namespace invar::e2e
