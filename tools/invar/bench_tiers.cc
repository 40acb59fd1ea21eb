// invar bench tiers: every tier against the limit that binds it, on this machine, now: the disk tier against plain
// sequential O_DIRECT writes (with a sync) and reads of a file as large as the record, the ram tier against memcpy.
// Raw and tier take turns and both keep their best, so that a moving neighbour hits both alike.
#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/split_mix64.h"
#include "cache/tiers/disk_format.h"
#include "cache/tiers/stores.h"
#include "cache/tiers/threaded_tier.h"
#include "tools/invar/command.h"

namespace invar::tools {
namespace {

using cache::TierKey;

// Seconds of each round.
using Samples = std::vector<double>;
double Best(const Samples& s) { return *std::min_element(s.begin(), s.end()); }
double Quantile(Samples s, const double q) {
  std::sort(s.begin(), s.end());
  return s[static_cast<size_t>(q * static_cast<double>(s.size() - 1) + 0.5)];
}

template <typename Work>
double Timed(const Clock& clock, const Work& work) {
  const TimeNs begin = clock.Now();
  work();
  return ToSeconds(clock.Now() - begin);
}

// Starts a call with a `done` and waits for it.
template <typename Result>
Result Await(const std::function<Status(std::function<void(Result)>)>& start) {
  // Shared: the caller may be gone before set_value has returned.
  const auto promise = std::make_shared<std::promise<Result>>();
  const Status accepted = start([promise](Result result) { promise->set_value(std::move(result)); });
  Check(accepted.ok(), "the tier takes the call", accepted.message());
  return promise->get_future().get();
}

struct Measured {
  std::string tier;
  int64_t bytes;
  Samples put, get, raw_put, raw_get;
};

class Bench {
 public:
  Bench(const std::string& folder, const int rounds) : folder_(folder), rounds_(rounds) {}

  // `raw_put`, `raw_get`: the same bytes without a tier.
  Measured Run(const std::string& name, std::unique_ptr<cache::TierStore> store, const int64_t bytes,
               const std::function<void()>& raw_put, const std::function<void()>& raw_get) {
    const auto tier = cache::MakeThreadedTier(std::move(store), clock_, {});
    Fill(bytes);
    Measured out{.tier = name, .bytes = bytes, .put = {}, .get = {}, .raw_put = {}, .raw_get = {}};
    for (int round = 0; round < rounds_; ++round) {
      TierKey key{};
      std::memcpy(key.data(), &round, sizeof(round));
      out.raw_put.push_back(Timed(clock_, raw_put));
      out.put.push_back(Timed(clock_, [&] {
        const Status status = Await<Status>([&](cache::TierDone done) {
          return tier->Put({.key = key, .payload_bytes = bytes}, {{payload_}, nullptr}, kNever, std::move(done));
        });
        Check(status.ok(), "the record is stored", status.message());
      }));
      out.raw_get.push_back(Timed(clock_, raw_get));
      out.get.push_back(Timed(clock_, [&] {
        const auto header = Await<StatusOr<std::string>>([&](cache::TierGetDone done) {
          return tier->Get(key, {{sink_}, nullptr}, kNever, std::move(done));
        });
        Check(header.ok(), "the record is there", header.status().message());
      }));
      Check(sink_ == payload_, "what came is what was put");
    }
    return out;
  }

  Measured Ram(const int64_t bytes) {
    Fill(bytes);
    std::vector<std::byte> other(payload_.size());
    const auto copy = [&] { std::memcpy(other.data(), payload_.data(), other.size()); };
    return Run("ram", cache::MakeRamStore(4 * bytes + 4096), bytes, copy, copy);
  }

  Measured Disk(const int64_t bytes, const bool direct) {
    const auto files = cache::MakeSystemFiles();
    const std::string path = folder_ + "/invar_tier_bench.raw";
    cache::BlockBuffer buffer(cache::kSectionBytes);
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{7});
    const int64_t whole = cache::WholeBlocks(bytes);
    // Buffered reads meet the page cache, so their limit is that of the same way.
    const int flag = direct ? O_DIRECT : 0;
    const auto sections = [&](const auto& transfer) {
      for (int64_t at = 0; at < whole; at += cache::kSectionBytes) {
        const int64_t count = std::min(cache::kSectionBytes, whole - at);
        Check(transfer(buffer.bytes().first(static_cast<size_t>(count)), at) == count, "the raw file is moved", path);
      }
    };
    const auto raw_put = [&] {
      const int fd = files->Open(path, O_WRONLY | O_CREAT | O_TRUNC | flag);
      Check(fd >= 0, "the raw file opens", path, std::strerror(-fd));
      sections([&](const std::span<std::byte> part, const int64_t at) { return files->WriteAt(fd, part, at); });
      Check(files->Sync(fd) == 0, "the raw file is synced");
      files->Close(fd);
    };
    const auto raw_get = [&] {
      const int fd = files->Open(path, O_RDONLY | flag);
      Check(fd >= 0, "the raw file opens", path);
      sections([&](const std::span<std::byte> part, const int64_t at) { return files->ReadAt(fd, part, at); });
      files->Close(fd);
    };
    auto store = cache::MakeDiskStore({.path = folder_ + "/invar_tier_bench",
                                       .budget_bytes = 4 * bytes + (int64_t{1} << 20),
                                       .store_id = "bench",
                                       .direct = direct},
                                      *files);
    Check(store.ok(), "the folder opens", store.status().message());
    Measured out = Run(direct ? "disk O_DIRECT" : "disk buffered", *std::move(store), bytes, raw_put, raw_get);
    files->Remove(path);
    return out;
  }

  // No limit is known of a server: its line has no shares.
  Measured Remote(const std::string& address, const int64_t bytes) {
    auto store =
        cache::MakeRespStore({.address = address, .secret = std::string(32, 'b'), .store_id = "bench"}, clock_);
    Check(store.ok(), "a store");
    Measured out = Run(
        "remote", *std::move(store), bytes, [] {}, [] {});
    out.raw_put.clear();
    out.raw_get.clear();
    return out;
  }

 private:
  void Fill(const int64_t bytes) {
    SplitMix64 random(1);
    payload_.resize(static_cast<size_t>(bytes));
    for (size_t at = 0; at + 8 <= payload_.size(); at += 8) {
      const uint64_t word = random.Next();
      std::memcpy(payload_.data() + at, &word, sizeof(word));
    }
    sink_.assign(payload_.size(), std::byte{0});
  }

  const RealClock clock_;
  const std::string folder_;
  const int rounds_;
  std::vector<std::byte> payload_;
  std::vector<std::byte> sink_;
};

nlohmann::ordered_json ToJson(const Measured& m) {
  const auto rate = [&](const Samples& s) { return static_cast<double>(m.bytes) / Best(s) / 1e6; };
  nlohmann::ordered_json json = {{"tier", m.tier},
                                 {"record_bytes", m.bytes},
                                 {"put_mb_per_s", rate(m.put)},
                                 {"get_mb_per_s", rate(m.get)},
                                 {"put_ms_p50", Quantile(m.put, 0.5) * 1e3},
                                 {"put_ms_p95", Quantile(m.put, 0.95) * 1e3},
                                 {"get_ms_p50", Quantile(m.get, 0.5) * 1e3},
                                 {"get_ms_p95", Quantile(m.get, 0.95) * 1e3}};
  if (!m.raw_put.empty()) {
    json["limit_put_mb_per_s"] = rate(m.raw_put);
    json["limit_get_mb_per_s"] = rate(m.raw_get);
    json["put_share"] = Best(m.raw_put) / Best(m.put);
    json["get_share"] = Best(m.raw_get) / Best(m.get);
  }
  return json;
}

void PrintRow(const nlohmann::ordered_json& row) {
  const auto number = [&](const char* key) { return row[key].get<double>(); };
  std::string shares = "";
  if (row.contains("put_share")) {
    shares = fmt::format("   {:3.0f} / {:3.0f} % of {:.0f} / {:.0f} MB/s", 100 * number("put_share"),
                         100 * number("get_share"), number("limit_put_mb_per_s"), number("limit_get_mb_per_s"));
  }
  fmt::print(
      "{:14} {:9.3f} MB   put {:7.0f} MB/s ({:.2f} ms, p95 {:.2f})   get {:7.0f} MB/s ({:.2f} ms, p95 {:.2f}){}\n",
      row["tier"].get<std::string>(), number("record_bytes") / 1e6, number("put_mb_per_s"), number("put_ms_p50"),
      number("put_ms_p95"), number("get_mb_per_s"), number("get_ms_p50"), number("get_ms_p95"), shares);
}

}  // namespace

int RunBenchTiers(int argc, char** argv) {
  std::string folder;
  std::string remote;
  int rounds = 20;
  bool as_json = false;
  CLI::App app("Tiers of the prefix cache as shares of this machine's limits.", "invar bench tiers");
  app.add_option("--folder", folder, "folder on the disk to measure; two entries are made and removed in it")
      ->required();
  app.add_option("--remote", remote, "also a server: HOST:PORT or unix:PATH, without TLS and password");
  app.add_option("--rounds", rounds, "records of each size")->check(CLI::Range(2, 1000));
  app.add_flag("--json", as_json, "one JSON object");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  Bench bench(folder, rounds);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  // Of Qwen3.5-0.8B: KV of a page of 64 tokens, and one recurrent checkpoint.
  for (const int64_t bytes : {int64_t{786'432}, int64_t{19'537'920}}) {
    rows.push_back(ToJson(bench.Ram(bytes)));
    rows.push_back(ToJson(bench.Disk(bytes, /*direct=*/true)));
    rows.push_back(ToJson(bench.Disk(bytes, /*direct=*/false)));
    if (!remote.empty()) rows.push_back(ToJson(bench.Remote(remote, bytes)));
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder + "/invar_tier_bench", ignored);
  if (as_json) {
    std::printf("%s\n", nlohmann::ordered_json{{"tiers", rows}}.dump().c_str());
  } else {
    for (const auto& row : rows) PrintRow(row);
  }
  return kExitOk;
}

}  // namespace invar::tools
