// Rules of the house as functions of one file's path and text, so that each can be tried on a planted offence.
// docs/ARCHITECTURE.md section 1 says what they stand for.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace invar::tidy {

struct SourceFile {
  std::string path;  // From the repository root, with slashes.
  std::string text;
};

// One sentence an offence, beginning with path:line. All are empty where the file keeps the rule.
using Offences = std::vector<std::string>;

// server -> engine -> {models, cache} -> kernels -> config -> base; nobody includes tools, bench or tests.
Offences CheckArrows(const SourceFile& file);
// A header in a subfolder is its folder's inside: only that folder, tests, benches and tools include it.
Offences CheckFaces(const SourceFile& file);
// Inside of models, cache, engine and server their folders have a direction too (the table in rules.cc); each may
// include the faces of its layer.
Offences CheckInsideArrows(const SourceFile& file);
// Only proto, server, tools and tests know gRPC and protobuf.
Offences CheckRpcStaysOutside(const SourceFile& file);
// Headers say `#pragma once`; every source file begins with a comment that says what it is.
Offences CheckHead(const SourceFile& file);
// A file that long holds more than one idea.
Offences CheckLength(const SourceFile& file);
// Absolute paths of somebody's machine do not belong into the project.
Offences CheckNoMachinePaths(const SourceFile& file);
// A file that a document names in `backquotes` with its folder exists below `root`, but in sections headed Planned.
Offences CheckNamedFilesExist(const SourceFile& file, const std::filesystem::path& root);
// A test that the last cell of a document's table names, `Suite.Name`, exists. `tests`: the sources that may have it.
Offences CheckNamedTestsExist(const SourceFile& file, const std::vector<SourceFile>& tests);
// Every .cc stands in a CMakeLists.txt of its folder or of one above it. `lists`: all CMakeLists.txt.
Offences CheckIsBuilt(const SourceFile& file, const std::vector<SourceFile>& lists);

// Files of the project below `root`: no build trees, nothing hidden but .ci, no weights.
std::vector<SourceFile> ReadTree(const std::filesystem::path& root);
bool IsCpp(std::string_view path);

}  // namespace invar::tidy
