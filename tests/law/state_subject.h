// A model whose states a law is held on, and the way it computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/model.h"
#include "tests/support/tiny_model.h"

namespace invar::models {

struct Subject {
  std::string name;
  std::string folder;  // Empty: the model of hashes.
  std::string backend;
  kernels::DType activations = kernels::DType::kF32;
  std::string isa;
};

// Subjects of every instruction set of this machine, added to `all`.
inline void AddIsas(std::vector<Subject>& all) {
  for (const std::string& isa : kernels::SupportedIsas()) {
    all.push_back({"moe_" + isa, testing::GoldenFolder("qwen3_5_moe"), "cpu", kernels::DType::kBf16, isa});
    all.push_back({"head_" + isa, testing::GoldenFolder("qwen3_5-vl"), "cpu", kernels::DType::kBf16, isa});
    all.push_back({"next_" + isa, testing::GoldenFolder("qwen3_next"), "cpu", kernels::DType::kBf16, isa});
  }
}

struct LoadedSubject {
  std::unique_ptr<Model> hashes;
  testing::TinyModel tiny;  // Where `hashes` is null.

  Model& model() { return hashes != nullptr ? *hashes : *tiny.model; }
};
// On two threads; `hashes` says which model of hashes.
inline StatusOr<LoadedSubject> Load(const Subject& subject, const FingerprintOptions& hashes) {
  LoadedSubject loaded;
  if (subject.folder.empty()) {
    loaded.hashes = MakeFingerprintModel(hashes);
    return loaded;
  }
  StatusOr<testing::TinyModel> tiny = testing::LoadTinyModel(
      subject.folder,
      {.backend = subject.backend, .isa = subject.isa, .activations = subject.activations, .threads = 2});
  if (!tiny.ok()) return tiny.status();
  loaded.tiny = *std::move(tiny);
  return loaded;
}

}  // namespace invar::models
