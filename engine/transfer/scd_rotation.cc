// Angles in double, as the backend computes them: at position 4,000 a float's angle is off by 2e-4.
#include "engine/transfer/scd_rotation.h"

#include <cmath>

namespace invar::engine {
namespace {

// Pairs (x, y) become scale * (x cos - y sin, y cos + x sin) for angles of `direction`.
void Turn(const KeyRotation& rotation, const int64_t first, const double direction, const double scale,
          FloatRows& keys) {
  const auto half = static_cast<int64_t>(rotation.inverse_frequencies.size());
  for (int64_t r = 0; r < keys.rows; ++r) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(first + r) * rotation.inverse_frequencies[static_cast<size_t>(i)];
      const double c = std::cos(angle) * scale;
      const double s = std::sin(angle) * scale * direction;
      for (int64_t head = 0; head < keys.cols; head += rotation.head_dim) {
        float& x = keys.row(r)[head + i];
        float& y = keys.row(r)[head + i + half];
        const double turned = x * c - y * s;
        y = static_cast<float>(y * c + x * s);
        x = static_cast<float>(turned);
      }
    }
  }
}

}  // namespace

void Rotate(const KeyRotation& rotation, const int64_t first, FloatRows& keys) {
  Turn(rotation, first, 1.0, rotation.factor, keys);
}
void Unrotate(const KeyRotation& rotation, const int64_t first, FloatRows& keys) {
  Turn(rotation, first, -1.0, 1.0 / rotation.factor, keys);
}

}  // namespace invar::engine
