// What an evaluation found, for readers: a table, JSON for scripts, a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/eval/run.h"
#include "tools/eval/served.h"

namespace invar::eval {

// Who was evaluated, when and how.
struct EvalHeading {
  std::string model;        // Folder as it was given.
  std::string fingerprint;  // ModelSpec's.
  std::string numerics_id;
  std::string date;  // ISO 8601, UTC.
};

nlohmann::ordered_json ToJson(const EvalHeading& heading, const EvalOptions& options, const EvalResults& results);
std::string ToTable(const EvalOptions& options, const EvalResults& results);
// A whole SVG document: a column of bars a measure, a line a candidate.
std::string ToPicture(const EvalHeading& heading, const EvalOptions& options, const EvalResults& results);

// Of answers as they are served.
nlohmann::ordered_json ToJson(const EvalHeading& heading, const EvalOptions& options, const ServedResults& results);
std::string ToTable(const ServedResults& results);

}  // namespace invar::eval
