// See zeroed_memory.h.
#include "base/zeroed_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace invar {

StatusOr<ZeroedMemory> MakeZeroedMemory(const int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  const int64_t rounded = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(rounded)));
  if (data == nullptr)
    return ResourceExhausted(fmt::format("wanted {} bytes of memory for sequences, found too little", rounded));
  std::memset(data, 0, static_cast<size_t>(rounded));
  return ZeroedMemory(data);
}

}  // namespace invar
