// See child_process.h.
#include "tests/e2e/child_process.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"

namespace invar::e2e {
namespace {

bool Readable(const int fd, const std::chrono::milliseconds timeout) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments, const int files_max) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int fds[2];
  Check(pipe(fds) == 0, "a pipe");
  pid_ = fork();
  Check(pid_ >= 0, "a child");
  if (pid_ == 0) {
    if (files_max > 0) {
      const rlimit limit{.rlim_cur = static_cast<rlim_t>(files_max), .rlim_max = static_cast<rlim_t>(files_max)};
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    dup2(fds[1], STDOUT_FILENO);
    // What this test process holds open is none of the child's.
    syscall(SYS_close_range, 3U, ~0U, 0U);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(fds[1]);
  stdout_fd_ = fds[0];
  end_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
}

ChildProcess::~ChildProcess() {
  if (!code_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(stdout_fd_);
  close(end_fd_);
}

std::optional<std::string> ChildProcess::ReadLine(const std::chrono::milliseconds timeout) {
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    if (!Readable(stdout_fd_, timeout)) return std::nullopt;
    const ssize_t count = read(stdout_fd_, buffer, sizeof(buffer));
    if (count <= 0) return std::nullopt;
    pending_.append(buffer, static_cast<size_t>(count));
  }
}

void ChildProcess::Signal(const int signal) const { kill(pid_, signal); }

int ChildProcess::Wait(const std::chrono::milliseconds timeout) {
  if (code_) return *code_;
  if (!Readable(end_fd_, timeout)) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return *code_;
}

std::string GrpcAddressOf(const std::string& line) {
  const std::string prefix = "listening grpc=";
  if (!line.starts_with(prefix)) return {};
  return line.substr(prefix.size(), line.find(' ', prefix.size()) - prefix.size());
}

}  // namespace invar::e2e
