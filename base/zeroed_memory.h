// Memory for pages and states of sequences: zeroed, at whole cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/status.h"

namespace invar {

struct FreeZeroed {
  void operator()(std::byte* data) const { std::free(data); }
};
using ZeroedMemory = std::unique_ptr<std::byte, FreeZeroed>;

// Errors: RESOURCE_EXHAUSTED where there is not so much. Threads: any.
StatusOr<ZeroedMemory> MakeZeroedMemory(int64_t bytes);

}  // namespace invar
