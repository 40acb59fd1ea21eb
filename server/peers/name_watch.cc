// See name_watch.h.
#include "server/peers/name_watch.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "config/fields.h"

namespace invar::server {
namespace {

// As long as the name server of a cluster keeps an answer (CoreDNS: 5 s): asking more often tells nothing new.
constexpr std::chrono::seconds kLookUpEvery{5};
// Of one host. A producer costs a connection, and a question for each prefix.
constexpr size_t kAddressesMax = 64;

class SystemResolver final : public HostResolver {
 public:
  StatusOr<std::vector<std::string>> Resolve(const std::string& host) override {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    // A service without a pod that is ready has no name, or a name without addresses.
    if (error == EAI_NONAME || error == EAI_NODATA) return std::vector<std::string>();
    if (error != 0) return Unavailable(fmt::format("{}: {}", host, gai_strerror(error)));
    std::vector<std::string> addresses;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      std::array<char, NI_MAXHOST> text{};
      if (getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
        addresses.emplace_back(text.data());
      }
    }
    freeaddrinfo(found);
    return addresses;
  }
};

}  // namespace

std::unique_ptr<HostResolver> MakeSystemResolver() { return std::make_unique<SystemResolver>(); }

NameWatch::NameWatch(std::vector<config::Producer> entries, std::unique_ptr<HostResolver> resolver, Changed changed)
    : entries_(std::move(entries)), resolver_(std::move(resolver)), changed_(std::move(changed)) {}

NameWatch::~NameWatch() {
  {
    const MutexLock lock(mu_);
    closing_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void NameWatch::Start() {
  Tell();
  if (std::ranges::none_of(entries_, [](const config::Producer& one) { return !one.dns_host.empty(); })) return;
  thread_ = std::thread([this] { Watch(); });
}

void NameWatch::Watch() {
  for (;;) {
    LookUp();
    const MutexLock lock(mu_);
    if (!closing_) wake_.WaitFor(mu_, kLookUpEvery);
    if (closing_) return;
  }
}

void NameWatch::LookUp() {
  // The log is told when it begins, not as long as it lasts.
  const auto begins = [](bool& was, const bool is) { return std::exchange(was, is) != is && is; };
  for (const config::Producer& entry : entries_) {
    const std::string& host = entry.dns_host;
    if (host.empty()) continue;
    StatusOr<std::vector<std::string>> found = resolver_->Resolve(host);
    if (begins(failed_[host], !found.ok())) {
      Logger("server")->warn("transfer.producers: {} stays as it was: {}", entry.name, found.status().message());
    }
    if (!found.ok()) continue;
    std::ranges::sort(*found);
    found->erase(std::ranges::unique(*found).begin(), found->end());
    if (begins(crowded_[host], found->size() > kAddressesMax)) {
      Logger("server")->warn("transfer.producers: {} has {} addresses, the first {} are asked", entry.name,
                             found->size(), kAddressesMax);
    }
    found->resize(std::min(found->size(), kAddressesMax));
    addresses_[host] = *std::move(found);
  }
  Tell();
}

void NameWatch::Tell() {
  std::vector<config::Producer> now;
  for (const config::Producer& entry : entries_) {
    if (entry.dns_host.empty()) {
      now.push_back(entry);
      continue;
    }
    const int port = config::ParseAddress(entry.address)->port;
    for (const std::string& address : addresses_[entry.dns_host]) {
      const bool is_v6 = address.find(':') != std::string::npos;
      now.push_back({.name = entry.name,
                     .address = fmt::format(fmt::runtime(is_v6 ? "[{}]:{}" : "{}:{}"), address, port),
                     .dns_host = entry.dns_host});
    }
  }
  const auto log = [](const auto& these, const auto& others, const char* const what) {
    for (const config::Producer& one : these) {
      if (one.dns_host.empty() || std::ranges::find(others, one) != others.end()) continue;
      Logger("server")->info("producer {} at {} {}", one.name, one.address, what);
    }
  };
  if (now == told_) return;
  log(now, told_, "has come");
  log(told_, now, "has gone");
  told_ = now;
  changed_(now);
}

}  // namespace invar::server
