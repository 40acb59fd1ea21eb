// Certificates made for one test run: an authority, a server (localhost) and a client signed by it.
#pragma once

#include <string>

namespace invar::e2e {

struct Certificate {
  std::string certificate;  // PEM.
  std::string key;          // PEM.
};
struct CertificateSet {
  Certificate ca, server, client;
};
CertificateSet MakeCertificates();

}  // namespace invar::e2e
