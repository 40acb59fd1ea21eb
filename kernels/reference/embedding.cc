// out[t] = row ids[t] of the table.
#include "kernels/reference/ops.h"

namespace invar::kernels::reference {

void Embed(const PackedMatrix& table, std::span<const int32_t> ids, const F32View out) {
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t k = 0; k < table.cols; ++k) out.row(t)[k] = static_cast<float>(WeightAt(table, ids[t], k));
  }
}

}  // namespace invar::kernels::reference
