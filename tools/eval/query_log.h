// The queries of the latest tokens, as compressors want to be shown them.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/compressor.h"
#include "models/model.h"

namespace invar::eval {

// What a compressor is shown of one layer, with the floats it points to.
struct Shown {
  std::vector<float> queries;
  cache::Observation observation;
};

// Rows come in order of tokens, every layer once a forward.
class QueryLog final : public models::QueryObserver {
 public:
  QueryLog(int32_t layers, const kernels::AttentionShape& shape) : shape_(shape), layers_(layers) {}

  void Queries(int32_t layer, const kernels::Activations& queries) override;
  // Forgets all; the next row is of token `first`.
  void Restart(int64_t first);

  // The queries of the last `window` tokens before `end`, or as many as are there. Requires: end is at most the token
  // behind the last row.
  Shown Show(int32_t layer, int64_t end, int32_t window) const;

 private:
  int64_t columns() const { return int64_t{shape_.heads} * shape_.head_dim; }

  const kernels::AttentionShape shape_;
  int64_t first_ = 0;
  std::vector<std::vector<float>> layers_;  // [rows][heads * head_dim]
};

}  // namespace invar::eval
