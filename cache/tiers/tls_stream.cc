// TLS over another stream, by OpenSSL with memory on both sides: sockets, deadlines and signals stay in one place.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/tiers/byte_stream.h"

namespace invar::cache {
namespace {

std::string LastTlsError() {
  char text[256] = "unknown error";
  if (const unsigned long error = ERR_get_error(); error != 0) ERR_error_string_n(error, text, sizeof(text));
  ERR_clear_error();
  return text;
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(std::unique_ptr<ByteStream> plain, SSL* const ssl)
      : plain_(std::move(plain)), ssl_(ssl, SSL_free), in_(BIO_new(BIO_s_mem())), out_(BIO_new(BIO_s_mem())) {
    SSL_set_bio(ssl, in_, out_);  // Owns both from here on.
  }

  Status Handshake(const TimeNs deadline) {
    return Run([this] { return SSL_connect(ssl_.get()); }, deadline);
  }

  Status WriteAll(std::span<const std::byte> from, const TimeNs deadline) override {
    while (!from.empty()) {
      // In parts, so that the encrypted copy stays small.
      const std::span<const std::byte> part = from.first(std::min<size_t>(from.size(), size_t{64} << 10));
      const auto bytes = static_cast<int>(part.size());
      if (Status put = Run([&] { return SSL_write(ssl_.get(), part.data(), bytes); }, deadline); !put.ok()) return put;
      from = from.subspan(part.size());
    }
    return OkStatus();
  }

  StatusOr<size_t> ReadSome(const std::span<std::byte> to, const TimeNs deadline) override {
    int got = 0;
    const auto bytes = static_cast<int>(std::min<size_t>(to.size(), size_t{1} << 20));
    Status read = Run([&] { return got = SSL_read(ssl_.get(), to.data(), bytes); }, deadline);
    if (!read.ok()) return read;
    return static_cast<size_t>(got);
  }

  // A server may send session tickets at any time: only bytes of ours that wait are a fault, which SSL_pending shows.
  bool IsIdle() override { return SSL_pending(ssl_.get()) == 0 && BIO_ctrl_pending(in_) == 0 && plain_->IsIdle(); }

 private:
  // Repeats one call of OpenSSL, moving bytes between it and the plain stream, until it succeeds.
  template <typename Call>
  Status Run(const Call& call, const TimeNs deadline) {
    for (;;) {
      ERR_clear_error();
      const int result = call();
      const int error = SSL_get_error(ssl_.get(), result);
      if (Status sent = SendPending(deadline); !sent.ok()) return sent;
      if (result > 0) return OkStatus();
      if (error == SSL_ERROR_WANT_READ) {
        std::byte buffer[size_t{16} << 10];
        const StatusOr<size_t> got = plain_->ReadSome(buffer, deadline);
        if (!got.ok()) return got.status();
        BIO_write(in_, buffer, static_cast<int>(*got));
      } else if (error == SSL_ERROR_ZERO_RETURN) {
        return Unavailable("remote: the server closed the TLS connection");
      } else if (error != SSL_ERROR_WANT_WRITE) {
        const long verified = SSL_get_verify_result(ssl_.get());
        if (verified != X509_V_OK) {
          return Unavailable(
              fmt::format("remote: the server's certificate is refused: {}", X509_verify_cert_error_string(verified)));
        }
        return Unavailable(fmt::format("remote: TLS: {}", LastTlsError()));
      }
    }
  }

  Status SendPending(const TimeNs deadline) {
    std::vector<std::byte> pending(BIO_ctrl_pending(out_));
    if (pending.empty()) return OkStatus();
    BIO_read(out_, pending.data(), static_cast<int>(pending.size()));
    return plain_->WriteAll(pending, deadline);
  }

  const std::unique_ptr<ByteStream> plain_;
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  BIO* const in_;
  BIO* const out_;
};

class OpenSslContext final : public TlsContext {
 public:
  explicit OpenSslContext(SSL_CTX* const context) : context_(context, SSL_CTX_free) {}

  StatusOr<std::unique_ptr<ByteStream>> Wrap(std::unique_ptr<ByteStream> plain, const std::string& host,
                                             const TimeNs deadline) override {
    SSL* const ssl = SSL_new(context_.get());
    if (ssl == nullptr) return Unavailable(fmt::format("remote: TLS: {}", LastTlsError()));
    auto stream = std::make_unique<TlsStream>(std::move(plain), ssl);
    in6_addr ip;
    const bool is_ip = inet_pton(AF_INET, host.c_str(), &ip) == 1 || inet_pton(AF_INET6, host.c_str(), &ip) == 1;
    const bool named = is_ip
                           ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1
                           : SSL_set1_host(ssl, host.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
    if (!named) return InvalidArgument(fmt::format("remote: '{}' is no host name for TLS", host));
    if (Status shaken = stream->Handshake(deadline); !shaken.ok()) return shaken;
    return StatusOr<std::unique_ptr<ByteStream>>(std::move(stream));
  }

 private:
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
};

}  // namespace

StatusOr<std::shared_ptr<TlsContext>> TlsContext::Make(const TlsOptions& options) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  Check(context != nullptr, "OpenSSL gives a context");
  auto owner = std::make_shared<OpenSslContext>(context);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const auto refused = [](const std::string& path) {
    return InvalidArgument(fmt::format("{}: TLS cannot use it: {}", path, LastTlsError()));
  };
  if (options.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_locations(context, options.ca.c_str(), nullptr) != 1) {
    return refused(options.ca);
  }
  if (!options.certificate.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, options.certificate.c_str()) != 1) {
      return refused(options.certificate);
    }
    if (SSL_CTX_use_PrivateKey_file(context, options.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
      return refused(options.key);
    }
  }
  return StatusOr<std::shared_ptr<TlsContext>>(std::move(owner));
}

}  // namespace invar::cache
