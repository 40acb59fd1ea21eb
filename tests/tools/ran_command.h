// A command of `invar` as its users run it.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace invar::tools {

struct Ran {
  int exit_code = 0;
  std::string output;  // Both streams.
};

// `arguments` as a shell takes them, the command's name first.
inline Ran RunInvar(const std::string& arguments) {
  const std::string command = std::string(INVAR_BINARY_DIR) + "/bin/invar " + arguments + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  Ran ran;
  std::array<char, 4096> buffer{};
  while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), read);
  ran.exit_code = WEXITSTATUS(pclose(pipe));
  return ran;
}

}  // namespace invar::tools
