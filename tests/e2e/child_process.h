// invard as its users run it: a process of its own, told by arguments and signals.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace invar::e2e {

class ChildProcess {
 public:
  // Starts `program`. `files_max` > 0 lowers its open-file limit.
  ChildProcess(const std::string& program, const std::vector<std::string>& arguments, int files_max = 0);
  ~ChildProcess();  // Kills what still runs.
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of its stdout; nothing where it ends or the time is over.
  std::optional<std::string> ReadLine(std::chrono::milliseconds timeout = std::chrono::seconds(20));
  void Signal(int signal) const;
  pid_t pid() const { return pid_; }
  // Exit code; -1: still running after `timeout`; 1000 + n: killed by signal n.
  int Wait(std::chrono::milliseconds timeout = std::chrono::seconds(20));

 private:
  pid_t pid_ = -1;
  int stdout_fd_ = -1;
  int end_fd_ = -1;  // pidfd: readable once it has ended.
  std::string pending_;
  std::optional<int> code_;
};

// "listening grpc=A ops=B" -> A.
std::string GrpcAddressOf(const std::string& line);

}  // namespace invar::e2e
