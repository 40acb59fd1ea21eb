// See tls_files.h. Memory files are named through /proc/self/fd, which gRPC's watcher opens as any path.
#include "server/access/tls_files.h"

#include <fmt/format.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "base/file.h"

namespace invar::server {
namespace {

constexpr int64_t kPemBytesMax = int64_t{1} << 20;
// The shortest the watcher takes.
constexpr unsigned kRefreshSeconds = 1;

std::unique_ptr<BIO, decltype(&BIO_free)> Reader(const std::string& pem) {
  return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free};
}

std::unique_ptr<X509, decltype(&X509_free)> FirstCertificate(const std::string& pem) {
  return {PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr), X509_free};
}

// gRPC takes what is not a certificate at start and only logs it when a client comes.
Status CheckIdentity(const config::Config::Tls& tls, const std::string& certificate_pem, const std::string& key_pem) {
  const auto certificate = FirstCertificate(certificate_pem);
  if (certificate == nullptr) {
    return InvalidArgument("tls.certificate: " + tls.certificate + " holds no PEM certificate", "tls.certificate");
  }
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(Reader(key_pem).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  if (key == nullptr) return InvalidArgument("tls.key: " + tls.key + " holds no PEM private key", "tls.key");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return InvalidArgument("tls.key: " + tls.key + " is not the key of " + tls.certificate, "tls.key");
  }
  return OkStatus();
}

int MemoryFile(const char* const name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  Check(fd >= 0, "the system gives a memory file", errno);
  return fd;
}

void Overwrite(const int fd, const std::string& text) {
  Check(pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()), "a memory file takes text");
  Check(ftruncate(fd, static_cast<off_t>(text.size())) == 0, "a memory file takes a length");
}

std::string PathOf(const int fd) { return fd < 0 ? std::string() : fmt::format("/proc/self/fd/{}", fd); }

}  // namespace

StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Open(const config::Config::Tls& tls) {
  std::unique_ptr<TlsFiles> files(new TlsFiles());
  if (tls.certificate.empty()) return files;
  const StatusOr<Content> content = Read(tls);
  if (!content.ok()) return content.status();
  files->identity_fd_ = MemoryFile("tls.identity");
  if (!tls.client_ca.empty()) files->client_ca_fd_ = MemoryFile("tls.client_ca");
  files->Write(*content);
  return files;
}

TlsFiles::~TlsFiles() {
  if (identity_fd_ >= 0) close(identity_fd_);
  if (client_ca_fd_ >= 0) close(client_ca_fd_);
}

std::shared_ptr<grpc::ServerCredentials> TlsFiles::Credentials() const {
  if (identity_fd_ < 0) return grpc::InsecureServerCredentials();
  const std::string identity = PathOf(identity_fd_);
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(identity, identity, PathOf(client_ca_fd_),
                                                                           kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (client_ca_fd_ >= 0) options.watch_root_certs();
  options.set_cert_request_type(client_ca_fd_ < 0 ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                  : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

StatusOr<bool> TlsFiles::Reload(const config::Config::Tls& tls) {
  if (tls.certificate.empty() != (identity_fd_ < 0)) {
    return InvalidArgument("tls.certificate: TLS is switched on and off by a restart only", "tls.certificate");
  }
  if (tls.client_ca.empty() != (client_ca_fd_ < 0)) {
    return InvalidArgument("tls.client_ca: client certificates are asked for or not from a restart on only",
                           "tls.client_ca");
  }
  if (identity_fd_ < 0) return false;
  const StatusOr<Content> content = Read(tls);
  if (!content.ok()) return content.status();
  if (*content == content_) return false;
  Write(*content);
  return true;
}

StatusOr<TlsFiles::Content> TlsFiles::Read(const config::Config::Tls& tls) {
  const StatusOr<std::string> certificate = ReadFile(tls.certificate, kPemBytesMax);
  if (!certificate.ok()) return certificate.status();
  const StatusOr<std::string> key = ReadFile(tls.key, kPemBytesMax);
  if (!key.ok()) return key.status();
  if (Status s = CheckIdentity(tls, *certificate, *key); !s.ok()) return s;
  Content content{.identity = *certificate + "\n" + *key, .client_ca = {}};
  if (!tls.client_ca.empty()) {
    StatusOr<std::string> client_ca = ReadFile(tls.client_ca, kPemBytesMax);
    if (!client_ca.ok()) return client_ca.status();
    if (FirstCertificate(*client_ca) == nullptr) {
      return InvalidArgument("tls.client_ca: " + tls.client_ca + " holds no PEM certificate", "tls.client_ca");
    }
    content.client_ca = *std::move(client_ca);
  }
  return content;
}

void TlsFiles::Write(const Content& content) {
  Overwrite(identity_fd_, content.identity);
  if (client_ca_fd_ >= 0) Overwrite(client_ca_fd_, content.client_ca);
  content_ = content;
}

}  // namespace invar::server
