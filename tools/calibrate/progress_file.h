// What a calibration has summed so far, beside its output file, so that a killed one goes on where it was. Bound to
// everything that the sums depend on; of anything else it is ignored and written over.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "base/status.h"

namespace invar::calibrate {

// Windows done of each pass.
struct Done {
  int32_t pass = 0;
  int32_t windows = 0;
};

class ProgressFile {
 public:
  // `identity`: of models, text and settings.
  ProgressFile(std::string path, const Digest& identity) : path_(std::move(path)), identity_(identity) {}

  // Fills `sums` and says how far they go; nothing done where there is no such file, or it is another's or damaged.
  Done Load(std::span<const std::span<double>> sums) const;
  // Errors: UNAVAILABLE.
  Status Save(const Done& done, std::span<const std::span<double>> sums) const;
  void Remove() const;

 private:
  const std::string path_;
  const Digest identity_;
};

}  // namespace invar::calibrate
