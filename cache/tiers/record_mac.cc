// See record_mac.h. What goes in is of fixed length up to the last part, so no two inputs run together.
#include "cache/tiers/record_mac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/check.h"

namespace invar::cache {

// The context after the secret went in; copied for every MAC.
struct RecordMac::Keyed {
  std::unique_ptr<EVP_MAC, void (*)(EVP_MAC*)> algorithm{EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free};
  std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> context{EVP_MAC_CTX_new(algorithm.get()), EVP_MAC_CTX_free};
};

RecordMac::RecordMac(const std::string_view secret, const std::string_view store_id)
    : store_(Sha256(store_id)), keyed_(std::make_unique<Keyed>()) {
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  Check(EVP_MAC_init(keyed_->context.get(), reinterpret_cast<const unsigned char*>(secret.data()), secret.size(),
                     parameters) == 1,
        "OpenSSL has HMAC-SHA-256");
}

RecordMac::~RecordMac() = default;

Mac RecordMac::OfName(const TierKey& key) const { return Compute('N', key, 0, {}); }
Mac RecordMac::OfHead(const TierKey& key, const std::span<const std::byte> head) const {
  return Compute('H', key, 0, head);
}
Mac RecordMac::OfSpaces(const TierSpaces& spaces) const {
  return Compute('S', spaces.space, static_cast<int64_t>(spaces.bytes), {});
}
Mac RecordMac::OfChunk(const TierKey& key, const int64_t chunk, const std::span<const std::byte> bytes) const {
  return Compute('C', key, chunk, bytes);
}

Mac RecordMac::Compute(const char domain, const TierKey& key, const int64_t index,
                       const std::span<const std::byte> bytes) const {
  const std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> context(EVP_MAC_CTX_dup(keyed_->context.get()),
                                                                     EVP_MAC_CTX_free);
  const auto add = [&](const void* const data, const size_t count) {
    return EVP_MAC_update(context.get(), static_cast<const unsigned char*>(data), count) == 1;
  };
  Mac mac;
  size_t written = 0;
  const bool ok = context != nullptr && add(&domain, 1) && add(store_.data(), store_.size()) &&
                  add(key.data(), key.size()) && add(&index, sizeof(index)) && add(bytes.data(), bytes.size()) &&
                  EVP_MAC_final(context.get(), mac.data(), &written, mac.size()) == 1;
  Check(ok && written == mac.size(), "a MAC can be computed");
  return mac;
}

}  // namespace invar::cache
