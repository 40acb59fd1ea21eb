// The written definition of the arithmetic: what must agree for two results to be comparable bit for bit.
// Its id stands in packed files, checkpoints, transfers and responses.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/tensor.h"

namespace invar::kernels {

// Attention reduces over KV in blocks of 64 absolute positions (one page), restarted every 1024 and merged in order.
// 64: K block of 64 positions x 256 dims x 2 B = 32 KiB fits L1/L2; 1024: lets threads split long contexts.
inline constexpr int32_t kPageTokens = 64;
inline constexpr int32_t kSuperblockTokens = 1024;

struct Numerics {
  DType activations = DType::kBf16;  // What matrix products read.
  DType kv = DType::kBf16;           // What attention pages hold; softmax weights have the same type.
  std::string backend;               // "cpu" and "reference" differ in the order of sums.

  // Names everything above and the revision of the rules: "cpu-bf16-kv.bf16-g64.1024-r2".
  std::string id() const;
};

}  // namespace invar::kernels
