// SHA-256 of what identifies things: weights, configurations, prefixes, API tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace invar {

using Digest = std::array<uint8_t, 32>;

class FingerprintBuilder {
 public:
  FingerprintBuilder();
  ~FingerprintBuilder();
  FingerprintBuilder(const FingerprintBuilder&) = delete;
  FingerprintBuilder& operator=(const FingerprintBuilder&) = delete;

  FingerprintBuilder& Add(std::span<const std::byte> bytes);
  // Length first, then the bytes: "ab" + "c" differs from "a" + "bc".
  FingerprintBuilder& AddFramed(std::string_view text);
  // Ends the builder.
  Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Digest Sha256(std::string_view text);
// Lower-case hexadecimal, 64 characters.
std::string ToHex(const Digest& digest);
// Time does not depend on where they differ.
bool EqualConstantTime(const Digest& a, const Digest& b);

}  // namespace invar
