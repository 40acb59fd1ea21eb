// HostRows: rows of a forward as the host may read them: where they lie, or where the backend keeps them apart, copies
// in memory that both touch. Copies are taken one after another until Reset, which drops them.
// Threads: the one that calls Forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"

namespace invar::models {

class HostRows {
 public:
  // Requires: `backend` outlives this.
  explicit HostRows(kernels::Backend& backend) : backend_(backend) {}

  void Reset() {
    current_ = 0;
    used_ = 0;
  }
  // Views of `rows` that can be read behind the backend's Wait. Those of copies have no space between their rows.
  kernels::ConstF32View Bring(const kernels::ConstF32View& rows);
  kernels::Activations Bring(const kernels::Activations& rows);
  // Memory that the host fills for an operation to read. Until Reset.
  std::byte* Take(int64_t bytes);

 private:
  std::byte* Copy(const void* rows, int64_t count, int64_t row_bytes, int64_t stride_bytes);

  kernels::Backend& backend_;
  struct Block {
    kernels::RowMemory memory;
    int64_t bytes = 0;
  };
  std::vector<Block> blocks_;  // As many as the hungriest forward needed, each larger than the one before.
  size_t current_ = 0;
  int64_t used_ = 0;  // Of the current one.
  std::vector<kernels::CopyPiece> pieces_;
};

}  // namespace invar::models
