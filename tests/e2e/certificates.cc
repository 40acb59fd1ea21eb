// See certificates.h. P-256, valid for a day.
#include "tests/e2e/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "base/check.h"

namespace invar::e2e {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

Certificate ToPem(X509* certificate, EVP_PKEY* key) {
  const Bio certificate_bio(BIO_new(BIO_s_mem()), BIO_free), key_bio(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(certificate_bio.get(), certificate);
  PEM_write_bio_PrivateKey(key_bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return {.certificate = Text(certificate_bio.get()), .key = Text(key_bio.get())};
}

void AddExtension(X509* certificate, X509* issuer, const int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  Check(extension != nullptr, "the extension is well formed");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509Ptr Make(const char* name, const long serial, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  X509Ptr certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 24 * 3600);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509* signer = issuer != nullptr ? issuer : certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer));
  if (issuer == nullptr) {
    AddExtension(certificate.get(), signer, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    AddExtension(certificate.get(), signer, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  }
  Check(X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0, "the certificate is signed");
  return certificate;
}

}  // namespace

CertificateSet MakeCertificates() {
  const Key ca_key(EVP_EC_gen("P-256"), EVP_PKEY_free), server_key(EVP_EC_gen("P-256"), EVP_PKEY_free),
      client_key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const X509Ptr ca = Make("test authority", 1, ca_key.get(), nullptr, ca_key.get());
  const X509Ptr server = Make("localhost", 2, server_key.get(), ca.get(), ca_key.get());
  const X509Ptr client = Make("client", 3, client_key.get(), ca.get(), ca_key.get());
  return {.ca = ToPem(ca.get(), ca_key.get()),
          .server = ToPem(server.get(), server_key.get()),
          .client = ToPem(client.get(), client_key.get())};
}

}  // namespace invar::e2e
