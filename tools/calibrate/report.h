// What a calibration found, for readers: a table, JSON for scripts, a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/calibrate/calibration.h"

namespace invar::calibrate {

std::string ToTable(const Calibration& calibration);
nlohmann::ordered_json ToJson(const Calibration& calibration, const CalibrateOptions& options);
// A whole SVG document: payload against KL, and the error of layers over depth.
std::string ToPicture(const Calibration& calibration);

// Numbers a token of its code.
int32_t RankOf(const engine::ScdLayerPlan& plan);

}  // namespace invar::calibrate
