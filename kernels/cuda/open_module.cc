// The caller's side of module.h. The library is never closed: backends made by it may live to the end.
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "kernels/cuda/module.h"

namespace invar::kernels::cuda {
namespace {

std::vector<std::string> Candidates(const std::string& folder) {
  if (!folder.empty()) return {folder + "/" + kModuleFile};
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> all;
  if (!error) {
    all.push_back((program.parent_path() / kModuleFile).string());
    all.push_back((program.parent_path().parent_path() / "lib" / kModuleFile).string());
  }
  all.emplace_back(kModuleFile);  // A bare name is looked for by the system's loader.
  return all;
}

Status NotHere(const std::string& why) {
  return Status(StatusCode::kFailedPrecondition, "no CUDA backend: " + why, "backend");
}

// Of the candidates that exist, the first must do: a broken one is not passed over in silence.
StatusOr<void*> Load(const std::string& folder) {
  std::string last;
  for (const std::string& path : Candidates(folder)) {
    if (path.find('/') != std::string::npos && !std::filesystem::exists(path)) {
      last = fmt::format("{} is not there", path);
      continue;
    }
    // RTLD_LOCAL: the module brings its own copies of what both sides are built from.
    if (void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); module != nullptr) return module;
    const char* error = dlerror();
    last = error != nullptr ? error : path + " cannot be opened";
    if (path.find('/') != std::string::npos) break;
  }
  return NotHere(last);
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> OpenModule(const std::string& folder, const DType activations, WorkerPool& pool) {
  StatusOr<void*> module = Load(folder);
  if (!module.ok()) return module.status();
  auto* open = reinterpret_cast<OpenFunction>(dlsym(*module, kModuleEntry));
  if (open == nullptr) return NotHere(fmt::format("{} has no entry {}", kModuleFile, kModuleEntry));
  OpenAnswer answer;
  open({.face = BackendFace(), .activations = activations, .pool = &pool}, answer);
  if (answer.backend != nullptr) {
    if (answer.note[0] != '\0') Logger("kernels")->warn("CUDA backend: {}", answer.note);
    return std::unique_ptr<Backend>(answer.backend);
  }
  const std::string message = answer.message;
  if (static_cast<StatusCode>(answer.code) == StatusCode::kInvalidArgument) {
    return InvalidArgument(message, "activations");
  }
  return NotHere(message.empty() ? fmt::format("{} gave no reason", kModuleFile) : message);
}

}  // namespace invar::kernels::cuda
