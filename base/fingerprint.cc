// SHA-256 through OpenSSL, which gRPC links anyway.
#include "base/fingerprint.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/check.h"

namespace invar {

struct FingerprintBuilder::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

FingerprintBuilder::FingerprintBuilder() : context_(std::make_unique<Context>()) {
  Check(EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) == 1, "SHA-256 is available");
}

FingerprintBuilder::~FingerprintBuilder() = default;

FingerprintBuilder& FingerprintBuilder::Add(const std::span<const std::byte> bytes) {
  Check(EVP_DigestUpdate(context_->md, bytes.data(), bytes.size()) == 1, "digest update works");
  return *this;
}

FingerprintBuilder& FingerprintBuilder::AddFramed(const std::string_view text) {
  const uint64_t length = text.size();
  Add(std::as_bytes(std::span(&length, 1)));
  return Add(std::as_bytes(std::span(text.data(), text.size())));
}

Digest FingerprintBuilder::Finish() {
  Digest digest{};
  unsigned int length = 0;
  Check(EVP_DigestFinal_ex(context_->md, digest.data(), &length) == 1 && length == digest.size(), "digest ends");
  return digest;
}

Digest Sha256(const std::string_view text) {
  return FingerprintBuilder().Add(std::as_bytes(std::span(text.data(), text.size()))).Finish();
}

std::string ToHex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(digest.size() * 2);
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool EqualConstantTime(const Digest& a, const Digest& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace invar
