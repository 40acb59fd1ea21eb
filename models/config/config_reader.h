// ConfigReader: config.json read strictly. Every value has a type and a range; a missing or senseless one is an error
// that names file, key, wanted and found. Nothing falls back to a default unless the caller gives one, and null is a
// value of the wrong type but for the keys of one list (config_reader.cc), where it is the same as absence.
// Errors stick: reading goes on with harmless values, and the caller looks at status() once at the end, so that a
// family's code reads as a plain list of fields.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace invar::models {

class ConfigReader {
 public:
  // `path` names the file in messages. Requires: `json` outlives the reader.
  ConfigReader(const nlohmann::json& json, std::string path) : ConfigReader(json, std::move(path), "", nullptr) {}

  // The object under `key`, or nothing where it is absent. Its errors are this reader's.
  std::optional<ConfigReader> Section(const std::string& key);

  bool Has(const std::string& key) const;
  // Whether null itself stands there.
  bool IsNull(const std::string& key) const;
  // [1, kSizeMax]: a width, or how many of something lie side by side; and a product of two, which is one as well. So
  // no sum of a few of them leaves 32 bits, and no loop over one takes long before tensors tell whether it is true.
  static constexpr int32_t kSizeMax = 1 << 20;  // Twenty times the widest layer published.
  int32_t Size(const std::string& key);
  int32_t Size(const std::string& key, int32_t fallback);
  void CheckProduct(const std::string& key, int32_t value, const std::string& other, int32_t other_value);
  // [min, 2^31).
  int32_t Int(const std::string& key, int32_t min = 1);
  int32_t Int(const std::string& key, int32_t min, int32_t fallback);
  // Finite and > 0.
  double Positive(const std::string& key);
  double Positive(const std::string& key, double fallback);
  bool Bool(const std::string& key, bool fallback);
  std::string String(const std::string& key);
  std::string String(const std::string& key, const std::string& fallback);
  std::vector<std::string> Strings(const std::string& key);
  std::vector<int32_t> Ints(const std::string& key);

  // Fails where `key` is given with any other value: it would change what is computed. Null is fine.
  void Expect(const std::string& key, const nlohmann::json& only);
  // Fails where `key` is given at all (null is fine).
  void Refuse(const std::string& key, const std::string& reason);
  // Records "PATH: KEY: wanted WANTED, found FOUND".
  void Fail(const std::string& key, const std::string& wanted, const std::string& found);

  const Status& status() const { return *status_; }
  const nlohmann::json& json() const { return *json_; }
  // Value of `key` as text for messages; "nothing" where absent.
  std::string Found(const std::string& key) const;

 private:
  ConfigReader(const nlohmann::json& json, std::string path, std::string prefix, std::shared_ptr<Status> status);
  const nlohmann::json* Find(const std::string& key) const;

  const nlohmann::json* json_;
  std::string path_;
  std::string prefix_;              // "text_config."
  std::shared_ptr<Status> status_;  // Shared by a reader and its sections, which may die in any order.
};

}  // namespace invar::models
