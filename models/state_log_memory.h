// Memory that state logs are written to (ForwardSpan::state_log), aligned as they want it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "models/model.h"

namespace invar::models {

struct FreeStateLogs {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kStateLogAlignment}); }
};
using StateLogMemory = std::unique_ptr<std::byte, FreeStateLogs>;

inline StateLogMemory MakeStateLogMemory(const int64_t bytes) {
  return StateLogMemory(
      static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes), std::align_val_t{kStateLogAlignment})));
}

}  // namespace invar::models
