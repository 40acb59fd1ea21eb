// Pages of keys and values as rows: where each of them lies, in one order per kind of code that reads it. For building
// compressed views and for looking at pages; forwards read and write pages by themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_encoding.h"

namespace invar::kernels {

// Bytes of one KV head's part of a dense page: a multiple of 64.
int64_t DenseHeadBytes(const PageShape& shape);

// Rows of rows.slots places of `page`, one layer's part, from `place` on: out of it as floats, and into it, where a
// bf16 page takes the nearest bf16. What was read and is written again has the same bytes. Requires: place + rows.slots
// <= 64. Threads: any.
void ReadRows(const PageShape& shape, const std::byte* page, int32_t place, const KvRows& rows);
void WriteRows(const PageShape& shape, int32_t place, const ConstKvRows& rows, std::byte* page);

}  // namespace invar::kernels
