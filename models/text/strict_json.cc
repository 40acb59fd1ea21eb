// nlohmann's parser with a callback that sees every key before its value is stored. See strict_json.h.
#include "models/text/strict_json.h"

#include <filesystem>
#include <fstream>
#include <unordered_set>
#include <vector>

namespace invar::models {
namespace {
// Tokenizer and configuration files nest about six deep.
constexpr int kMaxDepth = 64;
}  // namespace

StatusOr<nlohmann::json> ParseStrictJson(const std::string_view text, const std::string& what) {
  std::vector<std::unordered_set<std::string>> keys;
  std::string duplicate;
  bool too_deep = false;
  const auto callback = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) too_deep = true;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end && !keys.empty()) keys.pop_back();
    if (event == Event::key && !keys.empty() && !keys.back().insert(parsed.get_ref<const std::string&>()).second &&
        duplicate.empty()) {
      duplicate = parsed.get_ref<const std::string&>();
    }
    return !too_deep;  // Values below the limit are dropped, not stored.
  };
  try {
    nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), callback);
    if (too_deep) return InvalidArgument(what + ": nested deeper than " + std::to_string(kMaxDepth));
    if (!duplicate.empty()) return InvalidArgument(what + ": duplicate key \"" + duplicate + "\"");
    return json;
  } catch (const nlohmann::json::exception& e) {
    return InvalidArgument(what + ": not valid JSON: " + e.what());
  }
}

StatusOr<std::string> ReadFileBytes(const std::string& path, const int64_t limit_bytes) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return NotFound(path + ": " + error.message());
  if (size > static_cast<uintmax_t>(limit_bytes)) {
    return InvalidArgument(path + ": " + std::to_string(size) + " bytes, at most " + std::to_string(limit_bytes) +
                           " are read");
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes(size, '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size))) return NotFound(path + ": cannot be read");
  return bytes;
}

}  // namespace invar::models
