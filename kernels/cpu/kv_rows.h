// Rows of keys and values out of a page and into one, as floats: for building compressed views, not for the forward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_encoding.h"

namespace invar::kernels::cpu {

// `page`: one layer's part, in the layout of attention_inl.h; rows.slots places from `place` on. A bf16 page takes the
// nearest bf16.
void ReadKvRows(const PageShape& shape, const std::byte* page, int32_t place, const KvRows& rows);
void WriteKvRows(const PageShape& shape, int32_t place, const ConstKvRows& rows, std::byte* page);

}  // namespace invar::kernels::cpu
