// The strict reader. yaml-cpp gives nodes with line numbers and keeps repeated keys, which are refused here; types come
// from the field table, so the YAML side only tells plain scalars from the rest.
#include "config/load.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "config/fields.h"

namespace invar::config {
namespace {

constexpr int64_t kFileBytesMax = int64_t{1} << 20;

struct Reader {
  const std::string& name;
  Loaded& loaded;

  std::string Place(const YAML::Node& node) const { return fmt::format("{}:{}", name, node.Mark().line + 1); }

  Status At(const YAML::Node& node, const Status& status) const {
    return Status(status.code(), fmt::format("{}: {}", Place(node), status.message()), status.field());
  }
  Status Error(const YAML::Node& node, const std::string& message) const {
    return InvalidArgument(fmt::format("{}: {}", Place(node), message));
  }

  Status UnknownKey(const YAML::Node& key, const std::string& path, const std::string& nearest) const {
    return Error(key, fmt::format("unknown key '{}'{}", path,
                                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }

  // A map whose keys are plain text and do not repeat.
  Status CheckMap(const YAML::Node& map, const std::string& path) const {
    if (!map.IsMap()) return Error(map, fmt::format("{}: wants a section of keys", path.empty() ? "the file" : path));
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) return Error(entry.first, "a key must be plain text");
      if (!seen.insert(entry.first.Scalar()).second) {
        return Error(entry.first, fmt::format("'{}' is given twice", entry.first.Scalar()));
      }
    }
    return OkStatus();
  }

  Status ReadFile(const YAML::Node& root) {
    if (Status s = CheckMap(root, ""); !s.ok()) return s;
    for (const auto& entry : root) {
      const std::string& key = entry.first.Scalar();
      if (const Field* field = FindField(key)) {
        if (Status s = ReadField(*field, entry.first, entry.second); !s.ok()) return s;
      } else if (IsSection(key)) {
        if (Status s = ReadSection(key, entry.second); !s.ok()) return s;
      } else {
        return UnknownKey(entry.first, key, NearestSection(key));
      }
    }
    return OkStatus();
  }

  Status ReadSection(const std::string& section, const YAML::Node& map) {
    if (Status s = CheckMap(map, section); !s.ok()) return s;
    for (const auto& entry : map) {
      const std::string path = section + "." + entry.first.Scalar();
      if (const Field* field = FindField(path)) {
        if (Status s = ReadField(*field, entry.first, entry.second); !s.ok()) return s;
      } else if (IsSection(path)) {
        if (Status s = ReadSection(path, entry.second); !s.ok()) return s;
      } else {
        return UnknownKey(entry.first, path, NearestPath(path));
      }
    }
    return OkStatus();
  }

  Status ReadField(const Field& field, const YAML::Node& key, const YAML::Node& value) {
    const bool is_list = std::holds_alternative<TokensKind>(field.kind);
    if (is_list) {
      if (Status s = ReadTokens(field, value); !s.ok()) return s;
    } else {
      if (!value.IsScalar()) {
        return Error(key, fmt::format("{}: wants {}, found {}", field.path, DescribeKind(field),
                                      value.IsMap()        ? "a section"
                                      : value.IsSequence() ? "a list"
                                                           : "nothing"));
      }
      const bool is_text =
          std::holds_alternative<StringKind>(field.kind) || std::holds_alternative<AddressKind>(field.kind);
      // Tag "!" marks a quoted scalar: `threads: "2"` is text, not a number.
      if (value.Tag() == "!" && !is_text && !std::holds_alternative<ChoiceKind>(field.kind)) {
        return Error(value, fmt::format("{}: wants {}, found quoted text", field.path, DescribeKind(field)));
      }
      if (Status s = SetFromText(field, value.Scalar(), loaded.config); !s.ok()) return At(value, s);
    }
    loaded.origins[std::string(field.path)] = Place(key);
    return OkStatus();
  }

  Status ReadTokens(const Field& field, const YAML::Node& list) {
    if (!list.IsSequence()) return Error(list, fmt::format("{}: wants {}", field.path, DescribeKind(field)));
    std::vector<ApiToken> tokens;
    for (const YAML::Node& entry : list) {
      if (Status s = CheckMap(entry, std::string(field.path)); !s.ok()) return s;
      std::string tenant, sha256, admin = "false", instance = "false";
      for (const auto& pair : entry) {
        const std::string& key = pair.first.Scalar();
        const bool is_flag = key == "admin" || key == "instance";
        if (key != "tenant" && key != "sha256" && !is_flag) {
          constexpr std::string_view kKeys[] = {"tenant", "sha256", "admin", "instance"};
          return UnknownKey(pair.first, fmt::format("{}.{}", field.path, key), Nearest(key, kKeys));
        }
        if (!pair.second.IsScalar()) return Error(pair.first, fmt::format("{}.{}: wants text", field.path, key));
        const std::string& text = pair.second.Scalar();
        if (is_flag && text != "true" && text != "false") {
          return Error(pair.first, fmt::format("{}.{}: wants true or false, found '{}'", field.path, key, text));
        }
        (key == "tenant" ? tenant : key == "sha256" ? sha256 : key == "admin" ? admin : instance) = text;
      }
      StatusOr<ApiToken> token = MakeToken(tenant, sha256);
      if (!token.ok()) return At(entry, token.status());
      token->admin = admin == "true";
      token->instance = instance == "true";
      tokens.push_back(*std::move(token));
    }
    std::get<TokensKind>(field.kind).member(loaded.config) = std::move(tokens);
    return OkStatus();
  }

  static bool IsSection(const std::string& key) {
    return std::ranges::any_of(Fields(), [&](const Field& f) { return f.path.starts_with(key + "."); });
  }
  static std::string NearestSection(const std::string& key) {
    std::vector<std::string_view> names;
    for (const Field& field : Fields()) names.push_back(field.path.substr(0, field.path.find('.')));
    return Nearest(key, names);
  }
};

Status ReadYaml(const std::string& yaml, const std::string& name, Loaded& loaded) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(yaml);
    if (documents.empty()) return OkStatus();  // Nothing set.
    if (documents.size() > 1) return InvalidArgument(fmt::format("{}: wants one YAML document, found several", name));
    if (documents[0].IsNull()) return OkStatus();
    return Reader{name, loaded}.ReadFile(documents[0]);
  } catch (const YAML::Exception& e) {
    return InvalidArgument(fmt::format("{}:{}: not YAML: {}", name, e.mark.line + 1, e.msg));
  }
}

Status SetByPath(const std::string& path, const std::string& value, const std::string& origin, Loaded& loaded) {
  const Field* field = FindField(path);
  if (field == nullptr) {
    const std::string nearest = NearestPath(path);
    return InvalidArgument(fmt::format("{}: unknown key '{}'{}", origin, path,
                                       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
  if (Status s = SetFromText(*field, value, loaded.config); !s.ok()) {
    return Status(s.code(), fmt::format("{}: {}", origin, s.message()), s.field());
  }
  loaded.origins[path] = origin;
  return OkStatus();
}

// INVAR_SERVER__LISTEN -> server.listen, INVAR_CACHE__TIERS__DISK__PATH -> cache.tiers.disk.path
std::string PathOfVariable(const std::string& variable) {
  constexpr std::string_view kPrefix = "INVAR_";
  std::string path = variable.substr(kPrefix.size());
  for (size_t at = path.find("__"); at != std::string::npos; at = path.find("__", at)) path.replace(at, 2, ".");
  std::ranges::transform(path, path.begin(), [](const char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return path;
}

Status ApplyOverrides(const Sources& sources, Loaded& loaded) {
  for (const auto& [variable, value] : sources.environment) {
    if (!variable.starts_with("INVAR_") || variable.find("__", 6) == std::string::npos) continue;
    if (Status s = SetByPath(PathOfVariable(variable), value, variable, loaded); !s.ok()) return s;
  }
  if (sources.model) {
    if (Status s = SetByPath("model.path", *sources.model, "--model", loaded); !s.ok()) return s;
  }
  for (const std::string& set : sources.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) return InvalidArgument(fmt::format("--set {}: wants key.path=value", set));
    if (Status s = SetByPath(set.substr(0, equals), set.substr(equals + 1), "--set", loaded); !s.ok()) return s;
  }
  return OkStatus();
}

// Calls line(field, indent, key) for every field, under the headings of its sections.
template <typename Line>
void ForEachLine(std::string& out, const Line line) {
  std::vector<std::string_view> open;  // Sections whose headings stand above.
  for (const Field& field : Fields()) {
    std::vector<std::string_view> sections;
    std::string_view key = field.path;
    for (size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
      sections.push_back(key.substr(0, dot));
      key.remove_prefix(dot + 1);
    }
    size_t shared = 0;
    while (shared < std::min(open.size(), sections.size()) && open[shared] == sections[shared]) ++shared;
    for (size_t i = shared; i < sections.size(); ++i)
      out += fmt::format("{}{}:\n", std::string(2 * i, ' '), sections[i]);
    open = std::move(sections);
    line(field, std::string(2 * open.size(), ' '), key);
  }
}

}  // namespace

StatusOr<Loaded> Load(const Sources& sources) {
  Loaded loaded;
  if (sources.file) {
    const StatusOr<std::string> yaml = invar::ReadFile(*sources.file, kFileBytesMax);
    if (!yaml.ok()) return yaml.status();
    if (Status s = ReadYaml(*yaml, *sources.file, loaded); !s.ok()) return s;
  }
  if (Status s = ApplyOverrides(sources, loaded); !s.ok()) return s;
  if (Status s = ValidateTogether(loaded.config); !s.ok()) return s;
  return loaded;
}

StatusOr<Loaded> LoadText(const std::string& yaml, const std::string& name) {
  Loaded loaded;
  if (Status s = ReadYaml(yaml, name, loaded); !s.ok()) return s;
  if (Status s = ValidateTogether(loaded.config); !s.ok()) return s;
  return loaded;
}

std::map<std::string, std::string> InvarEnvironment(char** environment) {
  std::map<std::string, std::string> out;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (text.starts_with("INVAR_") && equals != std::string::npos) {
      out[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return out;
}

std::string PrintConfig(const Loaded& loaded) {
  std::string out;
  ForEachLine(out, [&](const Field& field, const std::string_view indent, const std::string_view key) {
    const auto origin = loaded.origins.find(std::string(field.path));
    out += fmt::format("{}{}: {}  # {}\n", indent, key, PrintValue(field, loaded.config, /*mask_secrets=*/true),
                       origin == loaded.origins.end() ? "default" : origin->second);
  });
  return out;
}

std::string PrintDefaultConfig() {
  std::string out;
  const Config defaults;
  ForEachLine(out, [&](const Field& field, const std::string_view indent, const std::string_view key) {
    out += fmt::format("{0}# {1} ({2})\n{0}{3}: {4}\n", indent, field.help, DescribeKind(field), key,
                       PrintValue(field, defaults, /*mask_secrets=*/false));
  });
  return out;
}

std::string PrintDocs() {
  std::string out =
      "# Configuration\n\n"
      "Generated by `invar config --docs`; do not edit. The tables it comes from are in `config/fields/`, a file a "
      "section.\n\n"
      "`invard --config FILE` reads YAML, strictly: an unknown, repeated or ill-typed key is an error that names file, "
      "line and the nearest known key.\n"
      "Precedence: `--set key.path=value` and `--model DIR`, then the environment (`INVAR_SECTION__KEY`, as in "
      "`INVAR_SERVER__LISTEN`), then the file, then the default.\n"
      "Relative paths of files and folders, those in the file included, begin where the daemon was started (its "
      "working "
      "directory), not at the file.\n"
      "`invard --check-config` checks and exits (0, or 78); `--print-config` shows every value with its origin; "
      "`--print-default-config` gives a file to start from.\n"
      "SIGHUP reads the same sources again and applies what is marked *reloadable*, the content of the tls.* files "
      "included; the log says what changed and what needs a restart. A configuration with an error changes nothing. "
      "`/configz` on the ops port shows what is in force.\n\n"
      "| key | default | accepts | meaning |\n|---|---|---|---|\n";
  const Config defaults;
  for (const Field& field : Fields()) {
    out += fmt::format("| `{}` | `{}` | {} | {}{} |\n", field.path, PrintValue(field, defaults, false),
                       DescribeKind(field), field.help, field.takes == Takes::kOnReload ? " *Reloadable.*" : "");
  }
  return out;
}

}  // namespace invar::config
