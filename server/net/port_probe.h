// PortProbe: dials the daemon's own gRPC port now and then and says whether it still reacts. The ops port answers on
// sockets and threads of its own, so without this a dead listener would look alive for ever (CVE-2023-4785 kills that
// of gRPC 1.51, which is why the accept loop is ours).
// Any reaction counts: gRPC's first frame, or a close, as a full house does. With TLS the probe hangs up first, so that
// no failed handshake is logged; it then proves the accept loop, not gRPC.
// Threads: one of its own dials; failing_for from any.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace invar::server {

class PortProbe {
 public:
  struct Options {
    std::string address;  // HOST:PORT as bound.
    bool tls = false;
    std::chrono::milliseconds period{5000};
    std::chrono::milliseconds patience{2000};  // For one reaction.
  };
  explicit PortProbe(Options options);
  ~PortProbe();
  PortProbe(const PortProbe&) = delete;
  PortProbe& operator=(const PortProbe&) = delete;

  // Time covered by the probes that met no reaction since the last that did; zero where the last one did.
  std::chrono::milliseconds failing_for() const { return failures_.load() * options_.period; }

 private:
  void Run();
  // Waits for `events` on `fd` (-1: for time alone). False: the time is over or the destructor calls.
  bool Await(int fd, short events, std::chrono::milliseconds timeout) const;
  bool Reacts() const;

  const Options options_;
  const int stop_fd_;
  std::atomic<int64_t> failures_ = 0;  // In a row.
  std::thread thread_;                 // Last: it uses all above.
};

}  // namespace invar::server
