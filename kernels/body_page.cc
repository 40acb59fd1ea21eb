// Pages of a compressed view's body, whichever backend reads them.
#include "base/check.h"
#include "kernels/backend.h"

namespace invar::kernels {

void Backend::WriteBodyPage(const KvEncoding encoding, const PageShape& shape, const ConstKvRows& rows,
                            const std::span<std::byte> page) const {
  Check(static_cast<int64_t>(page.size()) == BodyPageBytes(encoding, shape), "a body page has its encoding's size",
        page.size());
  if (encoding == KvEncoding::kDense) {
    WriteKv(shape, 0, rows, page.data());
  } else {
    EncodePage(encoding, shape, rows, page);
  }
}

}  // namespace invar::kernels
