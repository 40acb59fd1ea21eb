// Names of types and of the arithmetic.
#include "kernels/numerics.h"

namespace invar::kernels {

std::string_view DTypeName(const DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "unknown";
}

std::string Numerics::id() const {
  return backend + "-" + std::string(DTypeName(activations)) + "-kv." + std::string(DTypeName(kv)) + "-g" +
         std::to_string(kPageTokens) + "." + std::to_string(kSuperblockTokens) + "-r2";
}

}  // namespace invar::kernels
