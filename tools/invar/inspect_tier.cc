// See inspect_tier.h.
#include "tools/invar/inspect_tier.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/tiers/stores.h"
#include "tools/invar/command.h"

namespace invar::tools {
namespace {

std::string UtcText(const int64_t ns) {
  return fmt::format("{:%F %T} UTC", fmt::gmtime(static_cast<std::time_t>(ns / 1'000'000'000)));
}

void PrintWords(const std::string& path, const cache::DiskDescription& seen, const bool check_payloads) {
  fmt::print("{}: disk tier of '{}'\n", path, seen.store_id);
  fmt::print("{} sound record(s) in {:.1f} MB: payloads {:.1f} MB, the largest {:.1f} MB, headers {:.3f} MB\n",
             seen.records, static_cast<double>(seen.file_bytes) / 1e6, static_cast<double>(seen.payload_bytes) / 1e6,
             static_cast<double>(seen.payload_bytes_max) / 1e6, static_cast<double>(seen.header_bytes) / 1e6);
  if (seen.records > 0) {
    fmt::print("last used between {} and {}\n", UtcText(seen.oldest_use_ns), UtcText(seen.newest_use_ns));
  }
  if (seen.partials > 0) {
    fmt::print("{} record(s) being written, or left by a killed daemon (removed at its next start)\n", seen.partials);
  }
  fmt::print("{} damaged record(s){}\n", seen.damaged.size(),
             check_payloads ? "" : " by their heads; --check reads the payloads too");
  for (const std::string& why : seen.damaged) fmt::print("  {}\n", why);
}

}  // namespace

bool IsTierFolder(const std::string& path) { return cache::IsDiskFolder(path, *cache::MakeSystemFiles()); }

int InspectTierFolder(const std::string& path, const bool check_payloads, const bool as_json) {
  const std::unique_ptr<cache::FileLayer> files = cache::MakeSystemFiles();
  const StatusOr<cache::DiskDescription> seen = cache::DescribeDiskFolder(path, *files, check_payloads);
  if (!seen.ok()) {
    std::fprintf(stderr, "invar inspect: %s\n", seen.status().message().c_str());
    return kExitFailure;
  }
  if (as_json) {
    const nlohmann::ordered_json json = {{"store_id", seen->store_id},
                                         {"records", seen->records},
                                         {"file_bytes", seen->file_bytes},
                                         {"payload_bytes", seen->payload_bytes},
                                         {"payload_bytes_max", seen->payload_bytes_max},
                                         {"header_bytes", seen->header_bytes},
                                         {"oldest_use_ns", seen->oldest_use_ns},
                                         {"newest_use_ns", seen->newest_use_ns},
                                         {"partials", seen->partials},
                                         {"payloads_checked", check_payloads},
                                         {"damaged", seen->damaged}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    PrintWords(path, *seen, check_payloads);
  }
  return seen->damaged.empty() ? kExitOk : kExitFailure;
}

}  // namespace invar::tools
