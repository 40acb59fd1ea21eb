// See redis_server.h.
#include "tests/cache/tiers/redis_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cache/tiers/byte_stream.h"
#include "cache/tiers/resp_connection.h"

namespace invar::cache {
namespace {

constexpr TimeNs kAnswerNs = TimeNs{10} * 1'000'000'000;

// The path of a server program. redis-check-rdb is the same program under the name it has in the tools' package.
std::string ServerProgram() {
  const char* const path = std::getenv("PATH");
  for (const char* const name : {"valkey-server", "redis-server", "redis-check-rdb"}) {
    std::istringstream folders(path == nullptr ? "/usr/bin" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string program = folder + "/" + name;
      if (access(program.c_str(), X_OK) == 0) return program;
    }
  }
  Check(false, "a Redis or Valkey server is installed (tools/deps/install.sh --test)");
  return {};
}

StatusOr<RespReply> Ask(const std::string& address, const std::vector<std::string>& words) {
  const RealClock clock;
  StatusOr<std::unique_ptr<ByteStream>> stream = ConnectSocket(address, clock.Now() + kAnswerNs, clock);
  if (!stream.ok()) return stream.status();
  RespConnection connection(*std::move(stream));
  const std::vector<std::string_view> views(words.begin(), words.end());
  if (Status sent = connection.Send(views, clock.Now() + kAnswerNs); !sent.ok()) return sent;
  return connection.Receive(clock.Now() + kAnswerNs);
}

}  // namespace

RedisServer::RedisServer(std::vector<std::string> arguments) : arguments_(std::move(arguments)) { Start(); }

RedisServer::~RedisServer() { Kill(); }

void RedisServer::Start() {
  const std::string program = ServerProgram();
  std::vector<std::string> words = {"redis-server", "--bind",      "127.0.0.1",    "--port",     "0",
                                    "--unixsocket", socket_path(), "--save",       "",           "--appendonly",
                                    "no",           "--dir",       folder_.path(), "--loglevel", "warning"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  Check(pid_ >= 0, "a child");
  if (pid_ == 0) {
    const int log = open((folder_.path() + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // Any answer will do: it may want a password.
  while (!Ask(address(), {"PING"}).ok()) {
    Check(std::chrono::steady_clock::now() < give_up, "the server starts", program);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void RedisServer::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, -1), nullptr, 0);
}

void RedisServer::Freeze() {
  kill(pid_, SIGSTOP);
  int status = 0;
  Check(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "the server is stopped");
}
void RedisServer::Thaw() { kill(pid_, SIGCONT); }

std::string RedisServer::Command(const std::vector<std::string>& words) const {
  const StatusOr<RespReply> reply = Ask(address(), words);
  Check(reply.ok() && reply->kind != RespReply::Kind::kError, "the server obeys", words[0],
        reply.ok() ? reply->text : reply.status().message());
  return reply->kind == RespReply::Kind::kNumber ? std::to_string(reply->number) : reply->text;
}

std::vector<std::string> RedisServer::Names(const std::string& pattern) const {
  // As one text, since RespConnection takes no lists.
  std::istringstream text(Command({"EVAL", "return table.concat(redis.call('KEYS', ARGV[1]), '\\n')", "0", pattern}));
  std::vector<std::string> names;
  for (std::string name; std::getline(text, name);) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  Check(bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0, "a free port");
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace invar::cache
