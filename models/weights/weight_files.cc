// The index of a sharded folder is checked both ways: every name it lists lies in the shard it says, and no shard
// holds a tensor the index does not know.
#include "models/weights/weight_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "models/text/strict_json.h"

namespace invar::models {
namespace {

constexpr int64_t kIndexBytesMax = 100'000'000;

// name -> shard file name.
StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  StatusOr<std::string> text = ReadFile(path, kIndexBytesMax);
  if (!text.ok()) return text.status();
  StatusOr<nlohmann::json> index = ParseStrictJson(*text, path);
  if (!index.ok()) return index.status();
  if (!index->is_object() || !index->contains("weight_map") || !(*index)["weight_map"].is_object() ||
      (*index)["weight_map"].empty()) {
    return InvalidArgument(path + ": weight_map: wanted an object of tensor names, found none", "weight_map");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, file] : (*index)["weight_map"].items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : std::string();
    // A shard lies in the folder: an index must not reach other files of the machine.
    if (shard.empty() || shard.find('/') != std::string::npos || shard == "." || shard == "..") {
      return InvalidArgument(fmt::format("{}: weight_map: tensor \"{}\": wanted a file name in the folder, found {}",
                                         path, name, file.dump()),
                             "weight_map");
    }
    shards[name] = shard;
  }
  return shards;
}

}  // namespace

Status WeightFiles::AddFile(const std::string& path) {
  StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  for (const auto& [name, info] : file->tensors()) {
    const auto [place, inserted] = names_.emplace(name, files_.size());
    if (!inserted) {
      return DataLoss(fmt::format("{}: tensor \"{}\": wanted it once, found it in {} too", path, name,
                                  files_[place->second].path()));
    }
  }
  files_.push_back(*std::move(file));
  return OkStatus();
}

StatusOr<WeightFiles> WeightFiles::Open(const std::string& folder) {
  WeightFiles opened;
  const std::string index_path = folder + "/model.safetensors.index.json";
  std::error_code error;
  if (!std::filesystem::exists(index_path, error)) {
    const std::string path = folder + "/model.safetensors";
    if (!std::filesystem::exists(path, error)) {
      return NotFound(folder + ": wanted model.safetensors or model.safetensors.index.json, found neither");
    }
    if (Status s = opened.AddFile(path); !s.ok()) return s;
    return opened;
  }
  StatusOr<std::map<std::string, std::string>> shards = ReadIndex(index_path);
  if (!shards.ok()) return shards.status();
  std::set<std::string> files;
  for (const auto& [name, shard] : *shards) files.insert(shard);
  for (const std::string& shard : files) {
    if (!std::filesystem::exists(folder + "/" + shard, error)) {
      return NotFound(fmt::format("{}: weight_map: wanted shard {}, found no such file", index_path, shard));
    }
    if (Status s = opened.AddFile(folder + "/" + shard); !s.ok()) return s;
  }
  for (const auto& [name, shard] : *shards) {
    const auto place = opened.names_.find(name);
    if (place == opened.names_.end() || opened.files_[place->second].path() != folder + "/" + shard) {
      return DataLoss(
          fmt::format("{}: tensor \"{}\": wanted it in {}, found {}", index_path, name, shard,
                      place == opened.names_.end() ? "it nowhere" : "it in " + opened.files_[place->second].path()));
    }
  }
  for (const auto& [name, file] : opened.names_) {
    if (!shards->contains(name)) {
      return DataLoss(fmt::format("{}: tensor \"{}\": wanted every tensor in the index, found it only in {}",
                                  index_path, name, opened.files_[file].path()));
    }
  }
  return opened;
}

const TensorInfo* WeightFiles::Find(const std::string& name) const {
  const auto place = names_.find(name);
  return place == names_.end() ? nullptr : &files_[place->second].tensors().at(name);
}

const std::string& WeightFiles::FileOf(const std::string& name) const {
  const auto place = names_.find(name);
  return files_[place == names_.end() ? 0 : place->second].path();
}

}  // namespace invar::models
