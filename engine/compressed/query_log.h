// The queries of the latest tokens, as compressors want to be shown them.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/compressor.h"
#include "cache/expected_queries.h"
#include "models/model.h"

namespace invar::engine {

// What a compressor is shown of one layer, with the floats it points to.
struct Shown {
  std::vector<float> queries = {};
  cache::QueryMoments moments = {};
  cache::Observation observation = {};
};

// Queries of so many last tokens are shown to a compressor, or taken the moments of.
int32_t QueriesShown(const cache::CompressorTraits& traits);

// Rows come in order of tokens, every layer once a forward.
class QueryLog final : public models::QueryObserver {
 public:
  explicit QueryLog(const models::AttentionLayers& attention)
      : shape_(attention.shape),
        inverse_frequencies_(attention.inverse_frequencies),
        layers_(attention.page_offsets_bytes.size()) {}

  void Queries(int32_t layer, const kernels::Activations& queries) override;
  // Forgets all; the next row is of token `first`.
  void Restart(int64_t first);
  // Nobody asks for rows of tokens before `first` any more: they go when they are most of what there is.
  void Trim(int64_t first);

  // What `traits` ask for of the last tokens before `end`, or of as many as are there. Requires: end is at most the
  // token behind the last row.
  Shown Show(const cache::CompressorTraits& traits, int32_t layer, int64_t end) const;

 private:
  int64_t columns() const { return int64_t{shape_.heads} * shape_.head_dim; }

  const kernels::AttentionShape shape_;
  const std::vector<double> inverse_frequencies_;
  int64_t first_ = 0;
  std::vector<std::vector<float>> layers_;  // [rows][heads * head_dim]
};

}  // namespace invar::engine
