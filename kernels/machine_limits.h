// The most that a machine can do, measured; performance is stated as a share of it.
#pragma once

namespace invar::kernels {

struct MachineLimits {
  double read_gbps = 0.0;    // Memory, 1e9 bytes a second.
  double update_gbps = 0.0;  // Of bytes that are read and written in place.
  double bf16_gflops = 0.0;  // Matrix products of bf16 pairs, on registers.
  double lane_gops = 0.0;    // Fused multiply-adds a second.
};

}  // namespace invar::kernels
