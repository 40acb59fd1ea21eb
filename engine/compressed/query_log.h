// Queries of a sequence's tokens, as compressors want to be shown them: of the latest, or of some spread over all.
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
// Whether it is shown any, of whichever tokens.
bool IsShownQueries(const cache::CompressorTraits& traits);

// Appends a row of queries as floats.
void AppendRow(const kernels::Activations& queries, int64_t row, std::vector<float>& floats);

// Rows come in order of tokens, every layer once a forward.
class QueryLog final : public models::QueryObserver {
 public:
  // `spread` above 0: of all rows only so many at most are kept, of tokens 0, stride, 2 stride and so on; the stride
  // doubles as they come (cache::SpreadStride).
  explicit QueryLog(const models::AttentionLayers& attention, const int32_t spread = 0)
      : shape_(attention.shape),
        spread_(spread),
        inverse_frequencies_(attention.inverse_frequencies),
        layers_(attention.page_offsets_bytes.size()) {}

  void Queries(int32_t layer, const kernels::Activations& queries) override;
  // Forgets all; the next row is of token `first`: 0 where rows are spread.
  void Restart(int64_t first);
  // Nobody asks for rows of tokens before `first` any more: they go when they are most of what there is. Requires: rows
  // are not spread.
  void Trim(int64_t first);

  // What a second pass over tokens [0, tokens) found, for kinds that go by it: [layers][kv_heads][tokens]. They are
  // shown it of a view of these tokens, not of a longer one: nothing is known of what came then. Restart forgets it.
  void TakeSecondPass(int64_t tokens, std::vector<std::vector<float>> largest);

  // What `traits` ask for of the last tokens before `end`, or of as many as are there; of queries spread over all
  // tokens before `end`. Requires: end is at most the token behind the last row, and the rows that are asked for were
  // kept.
  Shown Show(const cache::CompressorTraits& traits, int32_t layer, int64_t end) const;

 private:
  // Rows of tokens first_, first_ + stride and so on.
  struct Layer {
    std::vector<float> rows = {};  // [rows][heads * head_dim]
    int64_t next = 0;              // The token that comes next.
    int64_t stride = 1;
  };

  int64_t columns() const { return int64_t{shape_.heads} * shape_.head_dim; }
  void Thin(Layer& layer) const;
  // Of tokens first, first + stride and so on: [heads][count][head_dim].
  std::vector<float> ByHead(const Layer& layer, int64_t first, int64_t count, int64_t stride) const;

  const kernels::AttentionShape shape_;
  const int64_t spread_;
  const std::vector<double> inverse_frequencies_;
  int64_t first_ = 0;
  std::vector<Layer> layers_;
  int64_t repeated_ = 0;  // Tokens of the second pass.
  std::vector<std::vector<float>> second_pass_;
};

}  // namespace invar::engine
