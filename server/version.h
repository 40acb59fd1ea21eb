// The version that --version, /version and the metrics tell.
#pragma once

namespace invar::server {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace invar::server
