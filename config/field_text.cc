// Fields as text: parsed, printed, described. Numbers are parsed with from_chars (no locale, no octal, no sign games);
// sizes and durations carry their unit in the value, so that a reader of the file never has to look it up.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "config/fields.h"
#include "config/fields/sections.h"

namespace invar::config {
namespace {

Status Wanted(const Field& field, const std::string_view found) {
  constexpr size_t kShownBytes = 80;
  return InvalidArgument(
      fmt::format("{}: wants {}, found '{}'", field.path, DescribeKind(field), found.substr(0, kShownBytes)),
      std::string(field.path));
}

// A decimal integer as people write it: no sign but '-', no leading zero.
bool ParseInt(const std::string_view text, int64_t& value) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0') || text == "-0") return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Digits with a point between them, or digits alone: "0.02", "1".
bool ParseShare(const std::string_view text, double& value) {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos || text.starts_with('.') || text.ends_with('.')) {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return error == std::errc() && end == text.data() + text.size();
}

struct Unit {
  std::string_view name;
  int64_t factor;
};
constexpr std::array kByteUnits = {Unit{"KiB", kKiB}, Unit{"MiB", kMiB}, Unit{"GiB", kGiB}, Unit{"TiB", kTiB}};
constexpr std::array kTimeUnits = {Unit{"ms", 1}, Unit{"s", 1000}, Unit{"m", 60'000}, Unit{"h", 3'600'000}};

// "12KiB": an integer and one of `units`, without overflow.
bool ParseWithUnit(const std::string_view text, const std::span<const Unit> units, int64_t& value) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t number = 0;
  if (!ParseInt(text.substr(0, digits), number)) return false;
  for (const Unit& unit : units) {
    if (text.substr(digits) != unit.name) continue;
    if (number > INT64_MAX / unit.factor) return false;
    value = number * unit.factor;
    return true;
  }
  return false;
}

std::string PrintWithUnit(const int64_t value, const std::span<const Unit> units, const std::string_view zero) {
  if (value == 0) return std::string(zero);
  for (size_t i = units.size(); i-- > 0;) {
    if (value % units[i].factor == 0) return fmt::format("{}{}", value / units[i].factor, units[i].name);
  }
  return fmt::format("{}", value);
}

std::string PrintBytes(const int64_t bytes) { return PrintWithUnit(bytes, kByteUnits, "0"); }
std::string PrintDuration(const Duration duration) { return PrintWithUnit(duration.count(), kTimeUnits, "0s"); }

// Double-quoted YAML.
std::string Quote(const std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct Setter {
  const Field& field;
  std::string_view text;
  Config& config;

  Status operator()(const BoolKind& kind) const {
    if (text != "true" && text != "false") return Wanted(field, text);
    kind.member(config) = text == "true";
    return OkStatus();
  }
  Status operator()(const IntKind& kind) const {
    int64_t value = 0;
    if (!ParseInt(text, value) || value < kind.min || value > kind.max) return Wanted(field, text);
    kind.member(config) = value;
    return OkStatus();
  }
  Status operator()(const ShareKind& kind) const {
    double value = 0;
    if (!ParseShare(text, value) || value < kind.min || value > kind.max) return Wanted(field, text);
    kind.member(config) = value;
    return OkStatus();
  }
  Status operator()(const BytesKind& kind) const {
    int64_t value = 0;
    if (!ParseInt(text, value) && !ParseWithUnit(text, kByteUnits, value)) return Wanted(field, text);
    if (value < kind.min || value > kind.max) return Wanted(field, text);
    kind.member(config) = value;
    return OkStatus();
  }
  Status operator()(const DurationKind& kind) const {
    int64_t value = 0;
    if (!ParseWithUnit(text, kTimeUnits, value)) return Wanted(field, text);
    if (Duration(value) < kind.min || Duration(value) > kind.max) return Wanted(field, text);
    kind.member(config) = Duration(value);
    return OkStatus();
  }
  Status operator()(const ChoiceKind& kind) const {
    if (std::ranges::find(kind.choices, text) == kind.choices.end()) return Wanted(field, text);
    kind.member(config) = text;
    return OkStatus();
  }
  Status operator()(const StringKind& kind) const {
    const bool has_control = std::ranges::any_of(text, [](const unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (text.size() > kind.bytes_max || has_control) return Wanted(field, text);
    kind.member(config) = text;
    return OkStatus();
  }
  Status operator()(const AddressKind& kind) const {
    if (!(kind.may_be_off && text == "off") && !ParseAddress(text).ok()) return Wanted(field, text);
    kind.member(config) = text;
    return OkStatus();
  }
  Status operator()(const TokensKind& kind) const {
    std::vector<ApiToken> tokens;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      std::string_view entry = text.substr(begin, end - begin);
      const auto has = [&](const std::string_view right) {
        if (!entry.ends_with(right)) return false;
        entry.remove_suffix(right.size());
        return true;
      };
      const bool admin = has(":admin");
      const bool instance = has(":instance");
      const size_t colon = entry.rfind(':');
      if (colon == std::string_view::npos) return Wanted(field, "an entry without ':'");
      StatusOr<ApiToken> token = MakeToken(entry.substr(0, colon), entry.substr(colon + 1));
      if (!token.ok()) return token.status();
      token->admin = admin;
      token->instance = instance;
      tokens.push_back(*std::move(token));
      begin = end + 1;
    }
    kind.member(config) = std::move(tokens);
    return OkStatus();
  }
};

struct Printer {
  Config& config;
  bool mask_secrets;

  std::string operator()(const BoolKind& kind) const { return kind.member(config) ? "true" : "false"; }
  std::string operator()(const IntKind& kind) const { return fmt::format("{}", kind.member(config)); }
  std::string operator()(const ShareKind& kind) const { return fmt::format("{}", kind.member(config)); }
  std::string operator()(const BytesKind& kind) const { return PrintBytes(kind.member(config)); }
  std::string operator()(const DurationKind& kind) const { return PrintDuration(kind.member(config)); }
  std::string operator()(const ChoiceKind& kind) const { return kind.member(config); }
  std::string operator()(const StringKind& kind) const { return Quote(kind.member(config)); }
  std::string operator()(const AddressKind& kind) const { return Quote(kind.member(config)); }
  std::string operator()(const TokensKind& kind) const {
    std::string out = "[";
    for (const ApiToken& token : kind.member(config)) {
      if (out.size() > 1) out += ", ";
      out += fmt::format("{{tenant: {}, sha256: {}{}{}}}", Quote(token.tenant),
                         Quote(mask_secrets ? std::string_view("(hidden)") : std::string_view(token.sha256)),
                         token.admin ? ", admin: true" : "", token.instance ? ", instance: true" : "");
    }
    return out + "]";
  }
};

struct Describer {
  std::string operator()(const BoolKind&) const { return "true or false"; }
  std::string operator()(const IntKind& kind) const {
    if (kind.min == kind.max) return fmt::format("the integer {}", kind.min);
    return fmt::format("an integer, {} to {}", kind.min, kind.max);
  }
  std::string operator()(const ShareKind& kind) const {
    return fmt::format("a share such as 0.02, {} to {}", kind.min, kind.max);
  }
  std::string operator()(const BytesKind& kind) const {
    const std::string example = PrintBytes(std::clamp<int64_t>(int64_t{64} << 10, kind.min, kind.max));
    return fmt::format("a size such as {}, {} to {}", example, PrintBytes(kind.min), PrintBytes(kind.max));
  }
  std::string operator()(const DurationKind& kind) const {
    return fmt::format("a duration such as 500ms, 30s or 10m, {} to {}", PrintDuration(kind.min),
                       PrintDuration(kind.max));
  }
  std::string operator()(const ChoiceKind& kind) const {
    return fmt::format("one of {}", fmt::join(kind.choices, ", "));
  }
  std::string operator()(const StringKind& kind) const {
    return fmt::format("text without control characters, at most {} bytes", kind.bytes_max);
  }
  std::string operator()(const AddressKind& kind) const {
    return kind.may_be_off ? "an address HOST:PORT, or off" : "an address HOST:PORT";
  }
  std::string operator()(const TokensKind&) const { return "a list of {tenant, sha256, admin, instance}"; }
};

}  // namespace

StatusOr<ApiToken> MakeToken(const std::string_view tenant, const std::string_view sha256) {
  const auto is_name = [](const char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  const auto is_hex = [](const char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (tenant.empty() || tenant.size() > 64 || !std::ranges::all_of(tenant, is_name)) {
    return InvalidArgument("auth.tokens: tenant wants 1 to 64 letters, digits, '-', '_' or '.'", "auth.tokens");
  }
  if (sha256.size() != 64 || !std::ranges::all_of(sha256, is_hex)) {
    return InvalidArgument(
        "auth.tokens: sha256 wants 64 lower-case hex digits: the hash of the token, never the token "
        "(printf %s TOKEN | sha256sum)",
        "auth.tokens");
  }
  return ApiToken{.tenant = std::string(tenant), .sha256 = std::string(sha256)};
}

Status SetFromText(const Field& field, const std::string_view text, Config& config) {
  return std::visit(Setter{field, text, config}, field.kind);
}

std::string PrintValue(const Field& field, const Config& config, const bool mask_secrets) {
  Config copy = config;  // The accessors of the table want a mutable one.
  return std::visit(Printer{copy, mask_secrets}, field.kind);
}

std::string DescribeKind(const Field& field) { return std::visit(Describer{}, field.kind); }

StatusOr<HostPort> ParseAddress(const std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return InvalidArgument("an address is HOST:PORT");
  std::string_view host = address.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool has_colon = host.find(':') != std::string_view::npos;
  const bool plain = std::ranges::all_of(
      host, [](const unsigned char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '[' && c != ']'; });
  if (bracketed != has_colon || !plain || host.size() > 253) return InvalidArgument("an address is HOST:PORT");
  int64_t port = 0;
  if (!ParseInt(address.substr(colon + 1), port) || port < 0 || port > 65535) {
    return InvalidArgument("a port is 0 to 65535");
  }
  return HostPort{.host = std::string(host), .port = static_cast<int>(port)};
}

bool IsLoopback(const std::string_view address) {
  const StatusOr<HostPort> parsed = ParseAddress(address);
  if (!parsed.ok()) return false;
  const std::string& host = parsed->host;
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8, written as four numbers: "127.evil.example" is a name.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos &&
         std::ranges::count(host, '.') == 3;
}

}  // namespace invar::config
