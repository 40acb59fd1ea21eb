// Strict reading of workload files, and the seeded plan. The generator and the draws are written out (SplitMix64,
// inverse exponential) because the distributions of <random> differ between standard libraries.
#include "bench/serve/workload.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string_view>

#include "base/split_mix64.h"

namespace invar::bench {
namespace {

constexpr int32_t kRequestsMax = 10'000'000;
constexpr int32_t kTokensMax = 1 << 20;
constexpr int32_t kConcurrencyMax = 65'536;

class Random {
 public:
  explicit Random(const uint64_t seed) : bits_(seed) {}

  uint64_t Next() { return bits_.Next(); }
  // Uniform in [min, max]; the bias of the remainder is below 2^-40 for the ranges used here.
  int32_t Between(const int32_t min, const int32_t max) {
    const uint64_t width = static_cast<uint64_t>(max) - static_cast<uint64_t>(min) + 1;
    return min + static_cast<int32_t>(Next() % width);
  }
  // Gap of a Poisson process. The draw lies in (0, 1], whose logarithm is finite.
  double Exponential(const double rate) {
    const double uniform = (static_cast<double>(Next() >> 11) + 1.0) * 0x1.0p-53;
    return -std::log(uniform) / rate;
  }

 private:
  SplitMix64 bits_;
};

std::vector<int32_t> DrawTokens(Random& random, const int32_t count, const int32_t vocabulary_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = random.Between(0, vocabulary_size - 1);
  return tokens;
}

std::vector<PlannedRequest> Plan(const Workload& workload, const int32_t vocabulary_size, const int32_t count,
                                 const uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<int32_t>> prefixes;
  for (int32_t group = 0; group < workload.prefix_groups; ++group) {
    prefixes.push_back(DrawTokens(random, workload.prefix_tokens, vocabulary_size));
  }
  std::vector<PlannedRequest> plan(static_cast<size_t>(count));
  double arrival_s = 0.0;
  for (PlannedRequest& request : plan) {
    if (workload.mode == Workload::Mode::kOpen) {
      arrival_s += random.Exponential(workload.rate_per_s);
      request.arrival_s = arrival_s;
    }
    if (!prefixes.empty()) request.prompt = prefixes[random.Next() % prefixes.size()];
    const int32_t own = random.Between(workload.prompt_tokens.min, workload.prompt_tokens.max);
    const std::vector<int32_t> tokens = DrawTokens(random, own, vocabulary_size);
    request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    request.output_tokens = random.Between(workload.output_tokens.min, workload.output_tokens.max);
  }
  return plan;
}

Status CheckKeys(const YAML::Node& map, const std::string& where, std::initializer_list<std::string_view> known) {
  if (!map.IsMap()) return InvalidArgument(fmt::format("workload: {} must be a map", where), where);
  for (const auto& entry : map) {
    const std::string key = entry.first.as<std::string>();
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return InvalidArgument(fmt::format("workload: unknown key `{}` in {}; known: {}", key, where,
                                       fmt::join(known.begin(), known.end(), ", ")),
                           key);
  }
  return OkStatus();
}

template <typename T>
Status Read(const YAML::Node& map, const std::string& key, const T min, const T max, T& out) {
  const YAML::Node node = map[key];
  if (!node) return OkStatus();
  T value{};
  try {
    value = node.as<T>();
  } catch (const YAML::Exception&) {
    return InvalidArgument(fmt::format("workload: `{}` must be a number", key), key);
  }
  // Written so that a NaN is refused too.
  if (!(value >= min && value <= max)) {
    return InvalidArgument(fmt::format("workload: `{}` is {}, allowed are {} to {}", key, value, min, max), key);
  }
  out = value;
  return OkStatus();
}

Status ReadRange(const YAML::Node& root, const std::string& key, TokenRange& out) {
  const YAML::Node node = root[key];
  if (!node) return OkStatus();
  if (Status s = CheckKeys(node, key, {"min", "max"}); !s.ok()) return s;
  if (!node["min"] || !node["max"]) return InvalidArgument(fmt::format("workload: `{}` needs min and max", key), key);
  if (Status s = Read(node, "min", 1, kTokensMax, out.min); !s.ok()) return s;
  return Read(node, "max", out.min, kTokensMax, out.max);
}

Status ReadArrivals(const YAML::Node& node, Workload& out) {
  if (!node) return OkStatus();
  if (Status s = CheckKeys(node, "arrivals", {"mode", "concurrency", "rate_per_s", "in_flight_max"}); !s.ok()) return s;
  const std::string mode = node["mode"] ? node["mode"].as<std::string>() : "";
  if (mode != "closed" && mode != "open") {
    return InvalidArgument(fmt::format("workload: `arrivals.mode` is `{}`, allowed are closed and open", mode), "mode");
  }
  out.mode = mode == "open" ? Workload::Mode::kOpen : Workload::Mode::kClosed;
  const char* needed = mode == "open" ? "rate_per_s" : "concurrency";
  if (!node[needed]) return InvalidArgument(fmt::format("workload: arrivals of mode {} need {}", mode, needed), needed);
  if (Status s = Read(node, "concurrency", 1, kConcurrencyMax, out.concurrency); !s.ok()) return s;
  if (Status s = Read(node, "in_flight_max", 1, kConcurrencyMax, out.in_flight_max); !s.ok()) return s;
  return Read(node, "rate_per_s", 1e-6, 1e6, out.rate_per_s);
}

StatusOr<Workload> ReadWorkload(const YAML::Node& root) {
  Workload out;
  if (Status s = CheckKeys(root, "the file",
                           {"name", "seed", "requests", "warmup_requests", "arrivals", "prompt_tokens", "output_tokens",
                            "shared_prefix", "temperature"});
      !s.ok()) {
    return s;
  }
  if (root["name"]) out.name = root["name"].as<std::string>();
  if (Status s = Read<uint64_t>(root, "seed", 0, UINT64_MAX, out.seed); !s.ok()) return s;
  if (Status s = Read(root, "requests", 1, kRequestsMax, out.requests); !s.ok()) return s;
  if (Status s = Read(root, "warmup_requests", 0, kRequestsMax, out.warmup_requests); !s.ok()) return s;
  if (Status s = ReadArrivals(root["arrivals"], out); !s.ok()) return s;
  if (Status s = ReadRange(root, "prompt_tokens", out.prompt_tokens); !s.ok()) return s;
  if (Status s = ReadRange(root, "output_tokens", out.output_tokens); !s.ok()) return s;
  if (Status s = Read(root, "temperature", 0.0, 100.0, out.temperature); !s.ok()) return s;
  if (const YAML::Node prefix = root["shared_prefix"]; prefix) {
    if (Status s = CheckKeys(prefix, "shared_prefix", {"groups", "tokens"}); !s.ok()) return s;
    if (Status s = Read(prefix, "groups", 0, kRequestsMax, out.prefix_groups); !s.ok()) return s;
    if (Status s = Read(prefix, "tokens", 0, kTokensMax, out.prefix_tokens); !s.ok()) return s;
  }
  return out;
}

}  // namespace

StatusOr<Workload> ParseWorkload(const std::string& yaml) {
  try {
    return ReadWorkload(YAML::Load(yaml));
  } catch (const YAML::Exception& error) {
    return InvalidArgument(fmt::format("workload: {}", error.what()));
  }
}

StatusOr<Workload> LoadWorkload(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) return NotFound(fmt::format("workload: cannot read {}", path));
  return ParseWorkload(text.str());
}

std::vector<PlannedRequest> PlanRequests(const Workload& workload, const int32_t vocabulary_size) {
  Check(vocabulary_size > 0, "a vocabulary has tokens", vocabulary_size);
  return Plan(workload, vocabulary_size, workload.requests, workload.seed);
}

std::vector<PlannedRequest> PlanWarmup(const Workload& workload, const int32_t vocabulary_size) {
  Check(vocabulary_size > 0, "a vocabulary has tokens", vocabulary_size);
  return Plan(workload, vocabulary_size, workload.warmup_requests, ~workload.seed);
}

}  // namespace invar::bench
