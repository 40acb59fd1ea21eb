// Every line is checked before it is used: a trace is somebody's file.
#include "tools/cache_sim/trace.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

namespace invar::cache_sim {
namespace {

using nlohmann::json;

constexpr int64_t kInputTokensMax = int64_t{1} << 24;
constexpr int64_t kTimestampMsMax = int64_t{1} << 42;  // 139 years; in nanoseconds it still fits.
// Tokens are numbered block x 512 + place.
constexpr size_t kBlocksMax = INT32_MAX / kTraceBlockTokens;

using BlockIndex = std::unordered_map<int64_t, int32_t>;

std::optional<int64_t> Whole(const json& object, const char* const key, const int64_t least, const int64_t most) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_number_integer()) return std::nullopt;
  if (field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  const int64_t value = field->get<int64_t>();
  return value < least || value > most ? std::nullopt : std::optional(value);
}

// What is wrong with the line; empty: nothing.
std::string Parse(const std::string& line, BlockIndex& index, TraceRequest& request) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return "is not a JSON object";
  const std::optional<int64_t> timestamp = Whole(object, "timestamp", 0, kTimestampMsMax);
  if (!timestamp.has_value()) return "wants timestamp, whole milliseconds from 0 on";
  const std::optional<int64_t> input = Whole(object, "input_length", 1, kInputTokensMax);
  if (!input.has_value()) return "wants input_length from 1 to " + std::to_string(kInputTokensMax);
  const std::optional<int64_t> output = Whole(object, "output_length", 0, kInputTokensMax);
  if (!output.has_value()) return "wants output_length from 0 to " + std::to_string(kInputTokensMax);
  const auto ids = object.find("hash_ids");
  if (ids == object.end() || !ids->is_array()) return "wants hash_ids, a list of whole numbers";
  const int64_t blocks = (*input + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (static_cast<int64_t>(ids->size()) != blocks) {
    return "wants " + std::to_string(blocks) + " hash_ids for " + std::to_string(*input) + " tokens, has " +
           std::to_string(ids->size());
  }
  request.arrival = *timestamp * 1'000'000;
  request.input_tokens = static_cast<int32_t>(*input);
  request.output_tokens = static_cast<int32_t>(*output);
  request.blocks.reserve(ids->size());
  for (const json& id : *ids) {
    if (!id.is_number_integer()) return "wants whole numbers in hash_ids";
    const auto [place, added] = index.try_emplace(id.get<int64_t>(), static_cast<int32_t>(index.size()));
    if (index.size() > kBlocksMax) return "has more different hash_ids than can be told apart";
    request.blocks.push_back(place->second);
  }
  return "";
}

}  // namespace

StatusOr<Trace> ReadTrace(std::istream& in, const std::string& name) {
  Trace trace;
  BlockIndex index;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    TraceRequest request;
    if (const std::string wrong = Parse(line, index, request); !wrong.empty()) {
      return InvalidArgument(name + ":" + std::to_string(number) + ": the line " + wrong);
    }
    trace.push_back(std::move(request));
  }
  if (trace.empty()) return InvalidArgument(name + ": holds no request");
  std::stable_sort(trace.begin(), trace.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.arrival < b.arrival; });
  return trace;
}

StatusOr<Trace> ReadTraceFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound(path + ": cannot be opened");
  return ReadTrace(in, path);
}

std::vector<TokenId> PromptOf(const TraceRequest& request) {
  std::vector<TokenId> tokens;
  tokens.reserve(request.input_tokens);
  for (int32_t t = 0; t < request.input_tokens; ++t) {
    tokens.emplace_back(request.blocks[t / kTraceBlockTokens] * kTraceBlockTokens + t % kTraceBlockTokens);
  }
  return tokens;
}

}  // namespace invar::cache_sim
