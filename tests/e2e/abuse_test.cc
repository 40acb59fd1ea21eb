// What an open port meets: floods of connections, no file descriptors left, silence, rapid reset. The good client
// beside them must not notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "config/fields.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/support/loopback.h"

namespace invar::e2e {
namespace {

class RawConnection {
 public:
  explicit RawConnection(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connected_ = ConnectLoopback(fd_, config::ParseAddress(address)->port);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  RawConnection(RawConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~RawConnection() {
    if (fd_ >= 0) close(fd_);
  }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }

  // Whether the other side has closed, within the time.
  bool ClosedWithin(const std::chrono::milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    char buffer[4096];
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
      if (recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
    }
  }
  // False once the other side has closed.
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
      // What the server says is thrown away, so that its writes never block.
      char buffer[4096];
      while (recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT) > 0) {
      }
    }
    return true;
  }

 private:
  int fd_;
  bool connected_ = false;
};

// --- HTTP/2 by hand ---

std::string Frame(const uint8_t type, const uint8_t flags, const uint32_t stream, const std::string& payload) {
  const auto byte = [](const uint32_t value) { return static_cast<char>(value & 0xff); };
  const auto size = static_cast<uint32_t>(payload.size());
  return std::string{byte(size >> 16),   byte(size >> 8),    byte(size),        byte(type),  byte(flags),
                     byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)} +
         payload;
}

// HPACK literal without indexing.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

std::string OpenStream(const uint32_t stream, const bool with_message, const std::string& method = "Generate") {
  const std::string headers = std::string("\x83\x86", 2) /* POST, http */ +
                              Header(":path", "/invar.v1.GenerationService/" + method) + Header(":authority", "a") +
                              Header("content-type", "application/grpc") + Header("te", "trailers");
  std::string out = Frame(1, 4, stream, headers);
  // Empty message, END_STREAM: the call begins.
  if (with_message) out += Frame(0, 1, stream, std::string(5, '\0'));
  return out;
}

// A client that begins large messages and never ends one. It keeps to the windows its peer grants, as it must.
class HalfSender {
 public:
  HalfSender(const std::string& address, const uint32_t streams, const uint32_t message_bytes)
      : connection_(address), streams_(streams), left_(streams, message_bytes), windows_(streams, kFirstWindow) {
    const auto byte = [](const uint32_t value) { return static_cast<char>(value & 0xff); };
    std::string begin = std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + Frame(4, 0, 0, "");
    for (uint32_t i = 0; i < streams; ++i) {
      begin += OpenStream(StreamOf(i), false);
      begin += Frame(
          0, 0, StreamOf(i),
          {'\0', byte(message_bytes >> 24), byte(message_bytes >> 16), byte(message_bytes >> 8), byte(message_bytes)});
    }
    Write(begin);
  }

  // Sends what the windows allow now. Returns bytes of messages sent.
  int64_t SendMore() {
    ReadFrames();
    int64_t sent = 0;
    for (uint32_t i = 0; i < streams_ && open_; ++i) {
      const int64_t bytes = std::min<int64_t>({int64_t{16384}, window_, windows_[i], left_[i] - 1});
      if (bytes <= 0) continue;
      Write(Frame(0, 0, StreamOf(i), std::string(static_cast<size_t>(bytes), 'x')));
      window_ -= bytes;
      windows_[i] -= bytes;
      left_[i] -= bytes;
      sent += bytes;
    }
    return sent;
  }

 private:
  static constexpr int64_t kFirstWindow = 65535;

  static uint32_t StreamOf(const uint32_t index) { return 2 * index + 1; }
  static uint32_t Number(const std::string& bytes, const size_t at, const size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  }

  // Reads on while it must wait, so that neither side blocks the other.
  void Write(const std::string& bytes) {
    for (size_t done = 0; done < bytes.size() && open_;) {
      const ssize_t count =
          send(connection_.fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) done += static_cast<size_t>(count);
      if (count >= 0) continue;
      if (errno != EAGAIN) {
        open_ = false;
        return;
      }
      pollfd entry{.fd = connection_.fd(), .events = POLLIN | POLLOUT, .revents = 0};
      poll(&entry, 1, 100);
      Receive();
    }
  }

  void Receive() {
    char buffer[65536];
    ssize_t count = 0;
    while ((count = recv(connection_.fd(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) {
      received_.append(buffer, static_cast<size_t>(count));
    }
    if (count == 0) open_ = false;
  }

  void ReadFrames() {
    Receive();
    size_t at = 0;
    std::string answers;
    for (; received_.size() >= at + 9; at += 9 + Number(received_, at, 3)) {
      const size_t size = Number(received_, at, 3);
      if (received_.size() < at + 9 + size) break;
      const auto type = static_cast<uint8_t>(received_[at + 3]);
      const bool ack = (received_[at + 4] & 1) != 0;
      const uint32_t stream = Number(received_, at + 5, 4);
      const std::string payload = received_.substr(at + 9, size);
      if (type == 4 && !ack) {
        for (size_t i = 0; i + 6 <= payload.size(); i += 6) {
          if (Number(payload, i, 2) != 4) continue;
          const int64_t initial = Number(payload, i + 2, 4);
          for (int64_t& window : windows_) window += initial - initial_;
          initial_ = initial;
        }
        answers += Frame(4, 1, 0, "");
      } else if (type == 6 && !ack) {
        answers += Frame(6, 1, 0, payload);
      } else if (type == 8 && stream == 0) {
        window_ += Number(payload, 0, 4);
      } else if (type == 8) {
        windows_[stream / 2] += Number(payload, 0, 4);
      } else if (type == 3 || (type == 1 && (received_[at + 4] & 1) != 0)) {
        left_[stream / 2] = 0;  // The server has ended it.
      }
    }
    received_.erase(0, at);
    if (!answers.empty()) Write(answers);
  }

  RawConnection connection_;
  const uint32_t streams_;
  bool open_ = true;
  int64_t window_ = kFirstWindow;
  int64_t initial_ = kFirstWindow;
  std::vector<int64_t> left_;     // Of each stream's message.
  std::vector<int64_t> windows_;  // Of each stream.
  std::string received_;
};

std::string ResetStream(const uint32_t stream) { return Frame(3, 0, stream, std::string("\0\0\0\x08", 4)); }

const std::string kPreface = std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + Frame(4, 0, 0, "");

// A new client is served, trying again as clients do where its connection is refused or, as gRPC does with idle ones
// while memory is short, closed. The time is far above what that takes on a busy machine: it tells served from stuck.
void ExpectServes(const std::string& address) {
  const auto until = std::chrono::system_clock::now() + std::chrono::seconds(20);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1::GenerationService::NewStub(channel);
  Outcome outcome;
  outcome.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "never connected");
  while (!outcome.status.ok() && channel->WaitForConnected(until)) {
    outcome = Collect(*stub, TokensRequest({1}, 2), std::chrono::seconds(20));
  }
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
}

TEST(Abuse, ConnectionsBeyondTheCapAreClosedAndTheRestGoesOn) {
  config::Config config = TinyConfig();
  config.server.connections_max = 12;
  config.server.connections_per_address_max = 10;
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  const std::string address = daemon.daemon().grpc_address();
  const auto stub = daemon.NewStub();
  ASSERT_TRUE(Collect(*stub, TokensRequest({1}, 2)).status.ok());
  std::vector<RawConnection> held;
  for (int i = 0; i < 9; ++i) {
    held.emplace_back(address);
    ASSERT_TRUE(held.back().Send(kPreface));
  }
  for (int i = 0; i < 50; ++i) {
    RawConnection surplus(address);
    EXPECT_TRUE(!surplus.connected() || surplus.ClosedWithin(std::chrono::seconds(20)));
  }
  EXPECT_TRUE(Collect(*stub, TokensRequest({1}, 2)).status.ok()) << "the one that was there first";
  EXPECT_GT(MetricSum(daemon.daemon().MetricsText(), "invar_connections_refused_total", "per_address"), 0);
  held.clear();
  ExpectServes(address);
}

TEST(Abuse, SilentConnectionsAreClosedAfterTheHandshakeTime) {
  config::Config config = TinyConfig();
  config.server.handshake_timeout = config::Duration(300);
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  std::vector<RawConnection> silent;
  for (int i = 0; i < 50; ++i) silent.emplace_back(daemon.daemon().grpc_address());
  for (RawConnection& connection : silent) EXPECT_TRUE(connection.ClosedWithin(std::chrono::seconds(20)));
  ExpectServes(daemon.daemon().grpc_address());
}

TEST(Abuse, TheListenerComesBackAfterFileDescriptorsRanOut) {
  ChildProcess invard(
      INVARD_PATH,
      {"--model", TinyModelFolder(), "--set", "server.listen=127.0.0.1:0", "--set", "ops.listen=off", "--set",
       "engine.pack_to_file=false", "--set", "log.level=error", "--set", "server.connections_per_address_max=1000"},
      /*files_max=*/128);
  const std::string address = GrpcAddressOf(invard.ReadLine().value_or(""));
  ASSERT_FALSE(address.empty());
  {
    std::vector<RawConnection> flood;
    for (int i = 0; i < 400; ++i) flood.emplace_back(address);
  }
  ExpectServes(address);
  invard.Signal(SIGTERM);
  EXPECT_EQ(invard.Wait(), 0);
}

TEST(Abuse, ItEndsWellWhereNoDescriptorIsLeft) {
  ChildProcess invard(INVARD_PATH,
                      {"--model", TinyModelFolder(), "--set", "server.listen=127.0.0.1:0", "--set", "ops.listen=off",
                       "--set", "engine.pack_to_file=false", "--set", "log.level=error"});
  const std::string address = GrpcAddressOf(invard.ReadLine().value_or(""));
  ASSERT_FALSE(address.empty());
  ExpectServes(address);
  const rlimit none = {.rlim_cur = 10, .rlim_max = 10};  // It has more open, and poll takes no more at a time.
  ASSERT_EQ(prlimit(invard.pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  invard.Signal(SIGTERM);
  EXPECT_EQ(invard.Wait(), 0);
}

class RapidReset : public testing::TestWithParam<bool> {};

TEST_P(RapidReset, ClosesTheAbuserWhileAGoodClientLosesNothing) {
  RunningDaemon daemon(TinyConfig());
  std::atomic<bool> done = false;
  std::atomic<int> served = 0;
  std::thread good([&] {
    const auto stub = daemon.NewStub();
    while (!done) {
      const Outcome outcome = Collect(*stub, TokensRequest({1, 2}, 4));
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
      ++served;
    }
  });
  RawConnection abuser(daemon.daemon().grpc_address());
  ASSERT_TRUE(abuser.Send(kPreface + Frame(4, 1, 0, "")));
  bool closed = false;
  for (uint32_t i = 0; i < 20'000 && !closed; ++i) {
    const uint32_t stream = 2 * i + 1;
    closed = !abuser.Send(OpenStream(stream, GetParam()) + ResetStream(stream));
  }
  closed = closed || abuser.ClosedWithin(std::chrono::seconds(20));
  EXPECT_TRUE(closed);
  EXPECT_GE(MetricSum(daemon.daemon().MetricsText(), "invar_connections_refused_total", "abuse"), 1);
  done = true;
  good.join();
  EXPECT_GT(served, 0);
  EXPECT_TRUE(daemon.BecomesIdle());
}

INSTANTIATE_TEST_SUITE_P(Both, RapidReset, testing::Bool(),
                         [](const auto& info) { return info.param ? "WithMessage" : "HeadersOnly"; });

// It answers pings, so keepalive does not end it, and its answer and what it asked for stay in memory.
TEST(Abuse, AUnaryCallWhoseClientGrantsNoWindowIsEnded) {
  config::Config config = TinyConfig();
  config.limits.slow_reader_timeout = config::Duration(200);
  HandClock clock;
  RunningDaemon daemon(config, FingerprintLoader(nullptr), &clock);
  RawConnection client(daemon.daemon().grpc_address());
  const std::string no_window("\0\4\0\0\0\0", 6);  // SETTINGS_INITIAL_WINDOW_SIZE = 0.
  ASSERT_TRUE(client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, no_window) + Frame(4, 1, 0, "") +
                          OpenStream(1, true, "ListModels")));
  while (MetricSum(daemon.daemon().MetricsText(), "invar_rpcs_total", "ListModels") < 1) std::this_thread::yield();
  EXPECT_FALSE(daemon.daemon().WaitIdle(std::chrono::milliseconds(300))) << "its time is not over";
  // The limit, and two seconds to take a status.
  clock.Advance(config.limits.slow_reader_timeout + std::chrono::seconds(2));
  EXPECT_TRUE(daemon.daemon().WaitIdle(std::chrono::seconds(20))) << "the call stays open for ever";
}

// How much memory this holds meanwhile is not asserted: gRPC ends streams once it is beyond its quota and not before,
// so the most seen depends on how fast the senders are beside it (docs/MEASURED.md has figures).
TEST(Abuse, MessagesThatNeverEndLeaveTheDaemonServing) {
  config::Config config = TinyConfig();
  config.limits.open_request_bytes_max = int64_t{32} << 20;
  config.server.connections_max = 64;  // Each may hold 64 KiB beside.
  RunningDaemon daemon(config, FingerprintLoader(nullptr));
  const std::string address = daemon.daemon().grpc_address();
  ExpectServes(address);
  std::vector<std::unique_ptr<HalfSender>> senders;
  for (int i = 0; i < 8; ++i) senders.push_back(std::make_unique<HalfSender>(address, 32, 15 << 20));
  // 3.75 GiB are announced. The flood goes on until nothing moves for a while, or far more than the budget came
  // through.
  constexpr int64_t kFlood = int64_t{1} << 30;
  int64_t sent = 0;
  auto moved = std::chrono::steady_clock::now();
  while (sent < kFlood && std::chrono::steady_clock::now() - moved < std::chrono::seconds(1)) {
    int64_t now = 0;
    for (const auto& sender : senders) now += sender->SendMore();
    sent += now;
    if (now > 0) {
      moved = std::chrono::steady_clock::now();
    } else {
      std::this_thread::yield();
    }
  }
  EXPECT_GT(sent, 0);
  ExpectServes(address);
  senders.clear();
  ExpectServes(address);
  EXPECT_TRUE(daemon.BecomesIdle());
}

TEST(Abuse, GarbageBytesCloseOnlyTheirOwnConnection) {
  RunningDaemon daemon(TinyConfig(), FingerprintLoader(nullptr));
  const std::string address = daemon.daemon().grpc_address();
  const auto stub = daemon.NewStub();
  ASSERT_TRUE(Collect(*stub, TokensRequest({1}, 2)).status.ok());
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\n\r\n",       std::string(1000, '\xff'),
      std::string(100, '\0'),         kPreface + std::string(200, '\xff'),
      kPreface + Frame(1, 4, 1, "x"),  // A header block that ends within a header.
      kPreface + Frame(9, 4, 1, "x"),  // A continuation of nothing.
  };
  for (size_t i = 0; i < garbage.size(); ++i) {
    RawConnection connection(address);
    connection.Send(garbage[i]);
    EXPECT_TRUE(connection.ClosedWithin(std::chrono::seconds(20))) << "garbage " << i;
  }
  // gRPC 1.51 neither answers nor closes these: a header block that may still be finished, which HTTP/2 allows, and
  // frames on stream 0 or an even one, which it forbids. No call comes of them, they count against the caps of
  // connections, and the keepalive ping they do not answer closes them (daemon.cc: after 30 s + 20 s, so not here).
  std::vector<RawConnection> ignored;
  for (const std::string& bytes :
       {Frame(1, 0, 1, "x"), Frame(1, 4, 0, "x"), Frame(1, 4, 2, "x"), Frame(0, 0, 0, "x")}) {
    ignored.emplace_back(address);
    ignored.back().Send(kPreface + bytes);
  }
  ExpectServes(address);
  EXPECT_TRUE(daemon.daemon().WaitIdle(std::chrono::seconds(20))) << "a call came of garbage";
  EXPECT_TRUE(Collect(*stub, TokensRequest({1}, 2)).status.ok()) << "the one that was there first";
}

}  // namespace
}  // namespace invar::e2e
