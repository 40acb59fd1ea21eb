// The one table of configuration fields: how each is parsed, checked, printed and documented.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace invar::config {

// How a field's text becomes its value. Each names the member it fills.
struct BoolKind {
  bool& (*member)(Config&);
};
struct IntKind {
  int64_t& (*member)(Config&);
  int64_t min, max;
};
struct ShareKind {  // "0.02": of a whole, at most so many decimals as it needs.
  double& (*member)(Config&);
  double min, max;
};
struct BytesKind {  // "64KiB", "1GiB", or a plain number of bytes.
  int64_t& (*member)(Config&);
  int64_t min, max;
};
struct DurationKind {  // "500ms", "30s", "10m", "1h".
  Duration& (*member)(Config&);
  Duration min, max;
};
struct ChoiceKind {
  std::string& (*member)(Config&);
  std::vector<std::string_view> choices;
};
struct StringKind {
  std::string& (*member)(Config&);
  size_t bytes_max;
};
struct AddressKind {  // "HOST:PORT", "[IPV6]:PORT"; "off" where `may_be_off`.
  std::string& (*member)(Config&);
  bool may_be_off;
};
struct TokensKind {  // YAML: a list of {tenant, sha256}; as text: "tenant:sha256,tenant:sha256".
  std::vector<ApiToken>& (*member)(Config&);
};
using FieldKind = std::variant<BoolKind, IntKind, ShareKind, BytesKind, DurationKind, ChoiceKind, StringKind,
                               AddressKind, TokensKind>;

// When a changed value takes effect.
enum class Takes { kAtStart, kOnReload };

struct Field {
  std::string_view path;  // "server.listen"
  FieldKind kind;
  std::string_view help;  // One sentence.
  Takes takes = Takes::kAtStart;
};

// In the order of printing. Threads: any.
std::span<const Field> Fields();
// Null where no field has this path.
const Field* FindField(std::string_view path);
// The known path most like `path`; empty where none is near.
std::string NearestPath(std::string_view path);
// The entry of `candidates` most like `word`; empty where none is near.
std::string Nearest(std::string_view word, std::span<const std::string_view> candidates);

// Parses `text` into the field. Errors: INVALID_ARGUMENT saying what was wanted and found; `config` is then unchanged.
Status SetFromText(const Field& field, std::string_view text, Config& config);
// One token of a list, checked. Errors: INVALID_ARGUMENT.
StatusOr<ApiToken> MakeToken(std::string_view tenant, std::string_view sha256);

// The value as YAML; API token hashes are hidden where `mask_secrets`.
std::string PrintValue(const Field& field, const Config& config, bool mask_secrets);
// "integer, 1 to 65536" and so on.
std::string DescribeKind(const Field& field);

// What a reload of `wanted` makes of a process that runs with `running`: reloadable values are those of `wanted`, all
// others stay. Errors: INVALID_ARGUMENT where the result breaks a rule between fields.
struct ReloadPlan {
  Config config;
  std::vector<std::string_view> changed = {};        // Paths that take effect.
  std::vector<std::string_view> needs_restart = {};  // Paths that differ and cannot.
};
StatusOr<ReloadPlan> PlanReload(const Config& running, const Config& wanted);

// Rules between fields. Errors: INVALID_ARGUMENT naming the fields.
Status ValidateTogether(const Config& config);

// Whether HOST:PORT can only be reached from this machine.
bool IsLoopback(std::string_view address);
struct HostPort {
  std::string host;  // Without brackets.
  int port = 0;
};
StatusOr<HostPort> ParseAddress(std::string_view address);

}  // namespace invar::config
