// Scope: who may share a prefix with whom. Everything that must be equal besides the tokens is part of it, so nothing
// that differs in one of these ever meets in the tree, in a tier or in a transfer.
#pragma once

#include <compare>
#include <string>

namespace invar::cache {

struct Scope {
  std::string tenant;
  std::string salt;        // The caller's own: requests with different salts share nothing.
  std::string provenance;  // How KV and state came about: empty is exact; otherwise compressor or profile and settings.

  auto operator<=>(const Scope&) const = default;
};

}  // namespace invar::cache
