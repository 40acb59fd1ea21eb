// ByteStream: a connection to a server with a deadline at every call; plain (socket_stream.cc) or TLS (tls_stream.cc).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace invar::cache {

// Errors of all calls: UNAVAILABLE (no connection, or it broke), DEADLINE_EXCEEDED. After an error the stream is dead.
// Threads: one at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual Status WriteAll(std::span<const std::byte> from, TimeNs deadline) = 0;
  // At least one byte; how many.
  virtual StatusOr<size_t> ReadSome(std::span<std::byte> to, TimeNs deadline) = 0;
  // False where the other side has closed, or says something although nothing was asked.
  virtual bool IsIdle() = 0;
};

// `address`: "HOST:PORT" or "unix:PATH". Name look-ups do not know a deadline.
StatusOr<std::unique_ptr<ByteStream>> ConnectSocket(const std::string& address, TimeNs deadline, const Clock& clock);

struct TlsOptions {
  std::string ca;           // PEM file; empty: the system's authorities.
  std::string certificate;  // PEM file with our chain; empty: none is shown.
  std::string key;
};
// What all TLS connections of one tier share.
class TlsContext {
 public:
  // Errors: INVALID_ARGUMENT naming the file.
  static StatusOr<std::shared_ptr<TlsContext>> Make(const TlsOptions& options);
  virtual ~TlsContext() = default;
  // Shakes hands; `host` must be in the server's certificate.
  virtual StatusOr<std::unique_ptr<ByteStream>> Wrap(std::unique_ptr<ByteStream> plain, const std::string& host,
                                                     TimeNs deadline) = 0;
};

}  // namespace invar::cache
