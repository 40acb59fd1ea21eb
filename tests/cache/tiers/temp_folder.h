// A folder of one test, removed with all that is in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.h"

namespace invar::cache {

class TempFolder {
 public:
  TempFolder() : path_(testing::TempDir() + "invar_tier_XXXXXX") {
    Check(mkdtemp(path_.data()) != nullptr, "a folder for the test", path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace invar::cache
