// The rules read lines, not a syntax tree: an include is a line that begins with #include, which is all C++ allows here
// anyway.
#include "tests/tidy/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace invar::tidy {
namespace {

namespace fs = std::filesystem;

// Who may include whom.
using FolderRules = std::map<std::string, std::set<std::string>, std::less<>>;

// What each layer may include. Folders that are no key (tools, bench, tests) may include everything.
const FolderRules& AllowedIncludes() {
  static const FolderRules allowed = {
      {"base", {"base"}},
      {"config", {"config", "base"}},
      {"kernels", {"kernels", "config", "base"}},
      {"models", {"models", "kernels", "config", "base"}},
      {"cache", {"cache", "kernels", "config", "base"}},
      {"engine", {"engine", "models", "cache", "kernels", "config", "base"}},
      {"server", {"server", "engine", "models", "cache", "kernels", "config", "base"}},
  };
  return allowed;
}

// The same inside of the layers that have folders which would else grow together. Faces, "", may be included by all
// folders of their layer, so their own arrows matter too: those of cache stop at tiers, whose types they show. Sources
// at the top put the folders together and may include them all.
const std::map<std::string, FolderRules, std::less<>>& AllowedInside() {
  static const std::map<std::string, FolderRules, std::less<>> allowed = {
      {"models",
       {
           {"", {}},
           {"text", {"text"}},
           {"weights", {"weights", "text"}},
           {"config", {"config", "text"}},
           {"stack", {"stack", "config", "weights"}},
           {"mixers", {"mixers", "stack", "config", "weights"}},
           {"mlps", {"mlps", "stack", "config", "weights"}},
       }},
      {"cache",
       {
           {"", {"tiers"}},
           {"tree", {"tree"}},
           {"evict", {"evict", "tree"}},
           {"checkpoint", {"checkpoint", "tree"}},
           {"compress", {"compress"}},
           {"tiers", {"tiers"}},
           {"prefix", {"prefix", "checkpoint", "evict", "tree", "tiers"}},
       }},
      {"engine",
       {
           {"", {"transfer"}},
           {"sample", {"sample"}},
           {"schedule", {"schedule"}},
           {"slow", {"slow"}},
           {"transfer", {"transfer"}},
           {"compressed", {"compressed", "slow"}},
           {"speculate", {"speculate", "compressed", "sample", "schedule", "slow"}},
           {"loop", {"loop", "compressed", "sample", "schedule", "slow", "speculate", "transfer"}},
       }},
      {"server",
       {
           {"", {"access", "calls", "metrics", "net", "peers", "services", "threads", "wire"}},
           {"threads", {"threads"}},
           {"wire", {"wire"}},
           {"access", {"access", "wire"}},
           {"metrics", {"metrics", "access"}},
           {"net", {"net", "metrics"}},
           {"peers", {"peers", "metrics", "wire"}},
           {"calls", {"calls", "access", "metrics", "peers", "threads", "wire"}},
           {"services", {"services", "access", "calls", "metrics", "peers", "threads", "wire"}},
       }},
  };
  return allowed;
}

constexpr std::array<std::string_view, 10> kFolders = {"base",   "config", "kernels", "models", "cache",
                                                       "engine", "server", "tools",   "bench",  "tests"};
constexpr int kLinesMax = 700;

std::string TopFolder(const std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

// `tree` of cache/tree/a.h, nothing of cache/a.h.
std::string SubFolder(const std::string_view path) {
  const size_t begin = path.find('/') + 1;
  const size_t end = path.find('/', begin);
  return end == std::string_view::npos ? "" : std::string(path.substr(begin, end - begin));
}

struct Include {
  int line = 0;
  std::string path;
  bool quoted = false;
};

template <typename Visit>
void ForEachLine(const std::string& text, const Visit& visit) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) visit(number, line);
}

std::vector<Include> IncludesOf(const SourceFile& file) {
  std::vector<Include> out;
  ForEachLine(file.text, [&](const int number, const std::string& line) {
    if (!line.starts_with("#include ")) return;
    const char close = line.size() > 9 && line[9] == '"' ? '"' : '>';
    const size_t end = line.find(close, 10);
    if (end != std::string::npos) out.push_back({number, line.substr(10, end - 10), close == '"'});
  });
  return out;
}

bool IsOurs(const Include& include) {
  return include.quoted && std::find(kFolders.begin(), kFolders.end(), TopFolder(include.path)) != kFolders.end();
}

// Whole words: `round.cc` in a list must not vouch for `ground.cc`.
bool HasWord(const std::string& text, const std::string& word) {
  const auto is_name = [](const char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_name(text[at - 1])) && (end == text.size() || !is_name(text[end]))) return true;
  }
  return false;
}

}  // namespace

bool IsCpp(const std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".cc") || path.ends_with(".cu");
}

Offences CheckArrows(const SourceFile& file) {
  const auto rule = AllowedIncludes().find(TopFolder(file.path));
  if (rule == AllowedIncludes().end()) return {};
  Offences out;
  for (const Include& include : IncludesOf(file)) {
    if (!IsOurs(include) || rule->second.count(TopFolder(include.path)) > 0) continue;
    out.push_back(fmt::format("{}:{}: {} must not include {}", file.path, include.line, rule->first, include.path));
  }
  return out;
}

Offences CheckFaces(const SourceFile& file) {
  const std::string folder = TopFolder(file.path);
  if (AllowedIncludes().count(folder) == 0) return {};
  Offences out;
  for (const Include& include : IncludesOf(file)) {
    const bool is_inside = std::count(include.path.begin(), include.path.end(), '/') > 1;
    if (!IsOurs(include) || TopFolder(include.path) == folder || !is_inside) continue;
    out.push_back(
        fmt::format("{}:{}: {} is the inside of {}", file.path, include.line, include.path, TopFolder(include.path)));
  }
  return out;
}

Offences CheckInsideArrows(const SourceFile& file) {
  const std::string top = TopFolder(file.path);
  const auto rules = AllowedInside().find(top);
  if (rules == AllowedInside().end() || !IsCpp(file.path)) return {};
  const std::string folder = SubFolder(file.path);
  if (folder.empty() && !file.path.ends_with(".h")) return {};
  const auto rule = rules->second.find(folder);
  if (rule == rules->second.end()) return {fmt::format("{}:1: no rule says what this folder may include", file.path)};
  Offences out;
  for (const Include& include : IncludesOf(file)) {
    if (!include.quoted || TopFolder(include.path) != top) continue;
    const std::string of = SubFolder(include.path);
    if (of.empty() || rule->second.count(of) > 0) continue;
    out.push_back(fmt::format("{}:{}: {} must not include {}", file.path, include.line,
                              folder.empty() ? "a face of " + top : top + "/" + folder, include.path));
  }
  return out;
}

Offences CheckRpcStaysOutside(const SourceFile& file) {
  const std::string folder = TopFolder(file.path);
  if (folder == "server" || AllowedIncludes().count(folder) == 0) return {};
  Offences out;
  for (const Include& include : IncludesOf(file)) {
    for (const std::string_view prefix : {"grpc", "google/protobuf", "google/rpc", "invar/v1"}) {
      if (!include.path.starts_with(prefix)) continue;
      out.push_back(fmt::format("{}:{}: only server and tools know {}", file.path, include.line, include.path));
    }
  }
  return out;
}

Offences CheckHead(const SourceFile& file) {
  if (!IsCpp(file.path)) return {};
  Offences out;
  if (!file.text.starts_with("// ")) {
    out.push_back(fmt::format("{}:1: begins without a comment that says what the file is", file.path));
  }
  if (file.path.ends_with(".h") && file.text.find("\n#pragma once\n") == std::string::npos &&
      !file.path.ends_with("_inl.h")) {
    out.push_back(fmt::format("{}:1: a header without #pragma once", file.path));
  }
  return out;
}

Offences CheckLength(const SourceFile& file) {
  if (!IsCpp(file.path)) return {};
  const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
  if (lines <= kLinesMax) return {};
  return {fmt::format("{}:{}: longer than {} lines; which two ideas are in it?", file.path, lines, kLinesMax)};
}

Offences CheckNoMachinePaths(const SourceFile& file) {
  // Written in two pieces, so that this file keeps its own rule.
  static const std::array<std::string, 3> kForbidden = {std::string("/wo") + "rk/", std::string("../sha") + "red",
                                                        std::string("/ho") + "me/"};
  Offences out;
  ForEachLine(file.text, [&](const int number, const std::string& line) {
    for (const std::string& forbidden : kForbidden) {
      const size_t at = line.find(forbidden);
      // A relative path or an address may end in such a word: only a path from the root is meant.
      if (at == std::string::npos || (at > 0 && (std::isalnum(static_cast<unsigned char>(line[at - 1])) != 0 ||
                                                 std::string_view("._-}$").find(line[at - 1]) != std::string::npos))) {
        continue;
      }
      out.push_back(fmt::format("{}:{}: names a path of one machine: {}", file.path, number, forbidden));
    }
  });
  return out;
}

Offences CheckNamedFilesExist(const SourceFile& file, const fs::path& root) {
  if (!file.path.ends_with(".md")) return {};
  static const std::regex named("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_-]+)*/[A-Za-z0-9_-]+[.][A-Za-z0-9_.]+)`");
  Offences out;
  bool planned = false;
  ForEachLine(file.text, [&](const int number, const std::string& line) {
    if (line.starts_with("#")) planned = line.find("Planned") != std::string::npos;
    for (std::sregex_iterator it(line.begin(), line.end(), named), end; it != end && !planned; ++it) {
      // From the root, or from the document's own folder.
      const std::string path = (*it)[1];
      if (fs::exists(root / path) || fs::exists(root / fs::path(file.path).parent_path() / path)) continue;
      out.push_back(fmt::format("{}:{}: names a file that does not exist: {}", file.path, number, path));
    }
  });
  return out;
}

Offences CheckNamedTestsExist(const SourceFile& file, const std::vector<SourceFile>& tests) {
  if (!file.path.ends_with(".md")) return {};
  static const std::regex named("\\|.*\\| `([A-Z][A-Za-z]*)[.]([A-Z][A-Za-z]*)` \\|");
  Offences out;
  ForEachLine(file.text, [&](const int number, const std::string& line) {
    std::smatch match;
    if (!std::regex_match(line, match, named)) return;
    const std::string head = fmt::format("({}, {})", match[1].str(), match[2].str());
    const bool exists = std::any_of(tests.begin(), tests.end(),
                                    [&](const SourceFile& test) { return test.text.find(head) != std::string::npos; });
    if (!exists) out.push_back(fmt::format("{}:{}: names a test that does not exist: {}", file.path, number, head));
  });
  return out;
}

Offences CheckIsBuilt(const SourceFile& file, const std::vector<SourceFile>& lists) {
  if (!file.path.ends_with(".cc") && !file.path.ends_with(".cu")) return {};
  // From another folder a list names it with its own folder before it: `support/tiny_model.cc`.
  const size_t slash = file.path.rfind('/');
  const size_t parent = slash == std::string::npos ? std::string::npos : file.path.rfind('/', slash - 1);
  const std::string with_folder = file.path.substr(parent == std::string::npos ? 0 : parent + 1);
  for (const SourceFile& list : lists) {
    const std::string folder = list.path.substr(0, list.path.size() - std::string_view("CMakeLists.txt").size());
    if (HasWord(list.text, with_folder)) return {};
    if (!file.path.starts_with(folder)) continue;
    const std::string listed = file.path.substr(folder.size());
    // A list may loop over stems.
    if (HasWord(list.text, listed) || HasWord(list.text, listed.substr(0, listed.rfind('.')))) return {};
  }
  return {fmt::format("{}:1: no CMakeLists.txt names this file", file.path)};
}

std::vector<SourceFile> ReadTree(const fs::path& root) {
  static const std::set<std::string> kTextEndings = {".h",  ".cc",   ".cu", ".txt",   ".cmake", ".md",     ".yaml",
                                                     ".py", ".json", ".sh", ".proto", ".jinja", ".service"};
  std::vector<SourceFile> out;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename();
    if (entry->is_directory()) {
      const bool hidden = name.starts_with(".") && name != ".ci";
      if (hidden || name == "build" || name == "__pycache__") entry.disable_recursion_pending();
      continue;
    }
    // Scripts have no ending; large files are data.
    const bool is_text = kTextEndings.count(entry->path().extension()) > 0 || !entry->path().has_extension();
    if (!entry->is_regular_file() || name == ".git" || !is_text || entry->file_size() > (size_t{1} << 20)) continue;
    std::ifstream file(entry->path(), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    out.push_back({fs::relative(entry->path(), root).generic_string(), text.str()});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return out;
}

}  // namespace invar::tidy
