// The ops port among clients that are slow, many or wrong: a probe is answered all the same.
#include "server/net/ops_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <list>
#include <string>

#include "config/fields.h"
#include "tests/support/loopback.h"

namespace invar::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Client {
 public:
  explicit Client(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_TRUE(ConnectLoopback(fd_, config::ParseAddress(address)->port));
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Send(const std::string& bytes) const {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // All that comes until the other side closes; "(open)" where it does not within 10 s.
  std::string Rest() const {
    std::string text;
    for (;;) {
      pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 10'000) <= 0) return "(open)";
      char buffer[4096];
      const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
      if (count <= 0) return text;
      text.append(buffer, static_cast<size_t>(count));
    }
  }

 private:
  const int fd_;
};

std::unique_ptr<OpsHttp> StartOps(const std::chrono::milliseconds exchange_max = OpsHttp::kExchangeMax) {
  StatusOr<std::unique_ptr<OpsHttp>> ops =
      OpsHttp::Start("127.0.0.1:0",
                     {.metrics = [] { return std::string(1 << 20, 'm'); },
                      .alive = [] { return OkStatus(); },
                      .ready = [] { return Unavailable("loading"); },
                      .version_json = [] { return std::string("{}"); },
                      .config_yaml = [] { return std::string("a: b"); },
                      .cache_page =
                          [](const PageRequest& request) {
                            return PageAnswer{.status = request.authorization.empty() ? 401 : 200,
                                              .html = "<" + std::string(request.authorization) + "|" +
                                                      std::string(request.host) + ">"};
                          }},
                     exchange_max);
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return *std::move(ops);
}

std::string Get(const std::string& address, const std::string& path) {
  const Client client(address);
  client.Send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  return client.Rest();
}

TEST(OpsHttp, AnswersEachPage) {
  const auto ops = StartOps();
  EXPECT_EQ(Get(ops->address(), "/livez?verbose"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n");
  EXPECT_THAT(Get(ops->address(), "/readyz"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(Get(ops->address(), "/readyz"), HasSubstr("loading"));
  EXPECT_THAT(Get(ops->address(), "/version"), HasSubstr("application/json"));
  EXPECT_THAT(Get(ops->address(), "/configz"), HasSubstr("a: b"));
  EXPECT_THAT(Get(ops->address(), "/none"), StartsWith("HTTP/1.1 404 "));
  EXPECT_GT(Get(ops->address(), "/metrics").size(), size_t{1} << 20);
}

TEST(OpsHttp, RefusesWhatIsNoSmallGet) {
  const auto ops = StartOps();
  const auto answer = [&](const std::string& request) {
    const Client client(ops->address());
    client.Send(request);
    return client.Rest();
  };
  EXPECT_THAT(answer("POST /livez HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer("hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer("GET /livez\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer("GET /" + std::string(5000, 'x')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(answer("HEAD /livez HTTP/1.0\r\n\r\n"), testing::EndsWith("\r\n\r\n"));
}

TEST(OpsHttp, AnswersAProbeBesideClientsThatNeverFinish) {
  const auto ops = StartOps(std::chrono::hours(1));
  std::list<Client> slow;
  for (int i = 0; i < 100; ++i) {
    slow.emplace_back(ops->address());
    slow.back().Send("GET /live");
    EXPECT_THAT(Get(ops->address(), "/livez"), StartsWith("HTTP/1.1 200 ")) << i;
  }
}

TEST(OpsHttp, HoldsFewDescriptorsHoweverManyConnect) {
  const auto ops = StartOps(std::chrono::hours(1));
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const int64_t before = files();
  std::list<Client> idle;
  for (int i = 0; i < 200; ++i) idle.emplace_back(ops->address());
  EXPECT_THAT(Get(ops->address(), "/livez"), StartsWith("HTTP/1.1 200 "));  // All before it were accepted.
  EXPECT_LE(files() - before - 200, static_cast<int64_t>(OpsHttp::kConnectionsMax));
}

TEST(OpsHttp, EndsAnExchangeThatTakesTooLongThoughBytesKeepComing) {
  const auto ops = StartOps(std::chrono::milliseconds(100));
  const Client dribbling(ops->address());
  const auto begin = std::chrono::steady_clock::now();
  while (dribbling.Send("x") && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
    std::this_thread::yield();
    pollfd none{};
    poll(&none, 0, 5);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  const Client deaf(ops->address());
  deaf.Send("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(Get(ops->address(), "/livez"), StartsWith("HTTP/1.1 200 "));
}

TEST(OpsHttp, SaysWhichAddressIsTaken) {
  const auto ops = StartOps();
  const auto second = OpsHttp::Start(ops->address(), {});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(ops->address()));
}

}  // namespace
}  // namespace invar::server
