// See hand_off.h.
#include "server/wire/hand_off.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "config/transfer.h"

namespace invar::server {
namespace {

constexpr int kVersion = 1;
constexpr char kField[] = "kv_transfer_params_json";
constexpr size_t kSecretBytesMin = 32;

std::string HashOf(const std::span<const TokenId> tokens) {
  return ToHex(FingerprintBuilder().Add(std::as_bytes(tokens)).Finish());
}

Status Refused(const std::string_view why) { return InvalidArgument(fmt::format("{}: {}", kField, why), kField); }

}  // namespace

// What is signed.
struct HandOffs::Content {
  std::string producer;
  int64_t tokens = 0;
  std::string prefix;
  int64_t expires_unix_ms = 0;
};

HandOffs::HandOffs(std::string name, std::vector<std::string> producers, std::string secret)
    : name_(std::move(name)), producers_(std::move(producers)), secret_(std::move(secret)) {}

StatusOr<std::unique_ptr<HandOffs>> HandOffs::Make(const config::Config::Transfer& config) {
  if (config.hmac_secret_file.empty()) return std::unique_ptr<HandOffs>();
  constexpr char kPath[] = "transfer.hmac_secret_file";
  StatusOr<std::string> secret = ReadSecretLine(config.hmac_secret_file);
  if (!secret.ok())
    return Status(secret.status().code(), fmt::format("{}: {}", kPath, secret.status().message()), kPath);
  if (secret->size() < kSecretBytesMin) {
    return InvalidArgument(
        fmt::format("{}: wants a secret of {} bytes at least in the file's first line", kPath, kSecretBytesMin), kPath);
  }
  const StatusOr<std::vector<config::Producer>> producers = config::ParseProducers(config.producers);
  if (!producers.ok()) return producers.status();
  std::vector<std::string> names;
  for (const config::Producer& producer : *producers) names.push_back(producer.name);
  const std::string name = config::ServesPrefixes(config) ? config.name : std::string();
  return std::make_unique<HandOffs>(name, std::move(names), *std::move(secret));
}

// Names have no line breaks, so no two contents are signed alike.
std::string HandOffs::MacOf(const Content& content) const {
  const std::string text = fmt::format("invar hand-off {}\n{}\n{}\n{}\n{}", kVersion, content.producer, content.tokens,
                                       content.prefix, content.expires_unix_ms);
  Digest mac{};
  unsigned int size = 0;
  const unsigned char* const done =
      HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  Check(done != nullptr && size == mac.size(), "OpenSSL has HMAC-SHA-256");
  return ToHex(mac);
}

std::string HandOffs::Issue(const std::span<const TokenId> prompt, const int64_t now_unix_ms) const {
  if (name_.empty()) return {};
  const Content content{.producer = name_,
                        .tokens = static_cast<int64_t>(prompt.size()),
                        .prefix = HashOf(prompt),
                        .expires_unix_ms = now_unix_ms + kLifetimeMs};
  return nlohmann::json{{"version", kVersion},
                        {"producer", content.producer},
                        {"tokens", content.tokens},
                        {"prefix", content.prefix},
                        {"expires_unix_ms", content.expires_unix_ms},
                        {"mac", MacOf(content)}}
      .dump();
}

StatusOr<std::string> HandOffs::ProducerOf(const std::string_view json, const std::span<const TokenId> prompt,
                                           const int64_t now_unix_ms) const {
  if (json.size() > kJsonBytesMax) return Refused(fmt::format("wants at most {} bytes", kJsonBytesMax));
  const nlohmann::json parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* const key, const nlohmann::json::value_t type) {
    return parsed.contains(key) && parsed[key].type() == type;
  };
  using Type = nlohmann::json::value_t;
  if (!parsed.is_object() || parsed.size() != 6 || !has("version", Type::number_unsigned) ||
      !has("producer", Type::string) || !has("tokens", Type::number_unsigned) || !has("prefix", Type::string) ||
      !has("expires_unix_ms", Type::number_unsigned) || !has("mac", Type::string)) {
    return Refused("wants the hand-off of a prefill instance, as it stood in that one's answer");
  }
  if (parsed["version"] != kVersion) return Refused(fmt::format("wants version {}", kVersion));
  const Content content{.producer = parsed["producer"],
                        .tokens = parsed["tokens"],
                        .prefix = parsed["prefix"],
                        .expires_unix_ms = parsed["expires_unix_ms"]};
  // Of hashes, so that the time tells nothing of the right one.
  if (!EqualConstantTime(Sha256(parsed["mac"].get<std::string>()), Sha256(MacOf(content)))) {
    return Refused("its signature is not of this deployment's secret");
  }
  if (std::ranges::find(producers_, content.producer) == producers_.end()) {
    return Refused(fmt::format("producer '{}' is not one of transfer.producers", content.producer));
  }
  const bool is_of_prompt = content.tokens == static_cast<int64_t>(prompt.size()) && content.prefix == HashOf(prompt);
  if (!is_of_prompt || now_unix_ms > content.expires_unix_ms) return std::string();
  return content.producer;
}

int64_t UnixMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace invar::server
