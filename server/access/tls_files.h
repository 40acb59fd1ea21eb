// TlsFiles: the certificate, key and client authorities of the gRPC port, checked before they are used and replaceable
// while the port is open.
// gRPC 1.51 rereads credentials of a running server only from files it watches. It is given one that lives in memory
// and holds what has passed our checks, so that a file half written on disk, or a key that is not the certificate's,
// never reaches a handshake, and a read-only root file system will do.
// Threads: one.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "config/config.h"

namespace invar::server {

class TlsFiles {
 public:
  // Plain text where no certificate is configured.
  // Errors: those of reading; INVALID_ARGUMENT naming the field whose file is no certificate or not its key.
  static StatusOr<std::unique_ptr<TlsFiles>> Open(const config::Config::Tls& tls);
  ~TlsFiles();
  TlsFiles(const TlsFiles&) = delete;
  TlsFiles& operator=(const TlsFiles&) = delete;

  // Once. Requires: this outlives the server they go to.
  std::shared_ptr<grpc::ServerCredentials> Credentials() const;

  // Reads the files of `tls` again: handshakes use them from a second later on, open connections go on. True where
  // something differs from before. Errors: as Open, and INVALID_ARGUMENT where TLS or client certificates would be
  // switched on or off, which takes a restart; the old ones then stay.
  StatusOr<bool> Reload(const config::Config::Tls& tls);

 private:
  // What one handshake needs. `identity` is chain and key in one text: read at once, they always match.
  struct Content {
    std::string identity;
    std::string client_ca;
    bool operator==(const Content&) const = default;
  };
  TlsFiles() = default;
  static StatusOr<Content> Read(const config::Config::Tls& tls);
  void Write(const Content& content);

  Content content_;
  int identity_fd_ = -1;  // Both -1: plain text.
  int client_ca_fd_ = -1;
};

}  // namespace invar::server
