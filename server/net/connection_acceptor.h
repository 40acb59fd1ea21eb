// ConnectionAcceptor: our own accept loop in front of gRPC.
// gRPC 1.51's listener dies for good when file descriptors run out (CVE-2023-4785) and cannot cap connections, so the
// listening socket is ours: accept, check the caps, hand the descriptor over. A dup of each descriptor is kept to see
// the connection end and to shut it down when its peer cancels calls faster than the budget (HTTP/2 rapid reset).
// Who comes after others have closed is never refused in their place: ends are looked for before a cap refuses, and
// where only descriptors are missing the connection waits.
// Threads: one of its own runs the loop; NoteCancel, SetOptions, open_count from any.
#pragma once

#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/metrics/metrics.h"

namespace invar::server {

struct AcceptorOptions {
  int64_t connections_max = 0;
  int64_t connections_per_address_max = 0;
  int64_t resets_burst = 0;
  int64_t resets_per_second = 0;
};

// A bound, listening, non-blocking TCP socket of HOST:PORT, and what it is called ("127.0.0.1:41233").
struct ListeningSocket {
  int fd = -1;
  std::string address;
};
// Errors: UNAVAILABLE naming the address (in use, no permission, no such host).
StatusOr<ListeningSocket> Listen(const std::string& address);

class ConnectionAcceptor {
 public:
  // Takes the socket. Requires: `metrics`, `clock` outlive this.
  ConnectionAcceptor(ListeningSocket socket, const AcceptorOptions& options, Metrics& metrics, const Clock& clock);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // Connections go to `sink` from now on. Once, after the gRPC server has started.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> sink);
  // Closes the listening socket; connections live on. Joins the loop. Harmless when repeated.
  void Stop();

  // Judges connections and cancels by `options` from now on; open connections stay. Threads: any.
  void SetOptions(const AcceptorOptions& options);

  // A call from `peer` (gRPC's name, "ipv4:1.2.3.4:5678") was cancelled.
  void NoteCancel(const std::string& peer);

  const std::string& address() const { return address_; }
  int64_t open_count() const { return open_count_; }

 private:
  struct Accepted {
    int fd = -1;
    std::string ip;
    std::string peer;
  };
  struct Connection {
    int dup_fd = -1;
    std::string ip;
    double reset_budget = 0;
    TimeNs budget_at = 0;
  };

  void Run();
  // False: descriptors ran out, so the listener rests a moment.
  bool AcceptAll();
  // Hands the connection over, or closes it where a cap is reached. False: no descriptor is left for its dup; it is
  // still open and to be admitted later.
  bool Admit(const Accepted& accepted);
  std::optional<Refusal> CapReached(const std::string& ip) REQUIRES_LOCK(mu_);
  void Forget(uint64_t key);
  // Forgets those whose end the system knows of already.
  void ForgetEnded();

  const std::string address_;
  Metrics& metrics_;
  const Clock& clock_;
  int listen_fd_ = -1;
  int epoll_fd_ = -1;
  int stop_fd_ = -1;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> sink_;
  std::atomic<int64_t> open_count_ = 0;
  std::optional<Accepted> waiting_;  // The loop's alone: accepted, for a descriptor to come free.

  Mutex mu_;
  AcceptorOptions options_ GUARDED_BY(mu_);  // connections_max lowered to what the open-file limit allows.
  uint64_t next_key_ GUARDED_BY(mu_) = 2;
  std::map<uint64_t, Connection> connections_ GUARDED_BY(mu_);
  std::map<std::string, uint64_t> by_peer_ GUARDED_BY(mu_);
  std::map<std::string, int64_t> by_ip_ GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace invar::server
