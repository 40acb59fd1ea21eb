// A compressed view of a subject's exact KV, laid out as a forward reads it. Bodies are read where they
// lie; tails go to pages of the subject's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/compressor.h"
#include "models/model.h"
#include "tools/eval/query_log.h"
#include "tools/eval/subject.h"

namespace invar::eval {

class BoundView {
 public:
  // What of the first `length` tokens `compressor` keeps within `budget`. `log`: their queries, for kinds that look at
  // them. One view of a subject is bound at a time: the tails lie in the same pages. Requires: all outlive this.
  BoundView(Subject& subject, const cache::Compressor& compressor, cache::Budget budget, const QueryLog& log,
            int32_t length);

  // A round's end: the exact rows of tokens [tokens(), end) follow, then comes upkeep where enough tokens have come
  // since the last. Forgets what was read on it.
  void Settle(int32_t end);

  int32_t tokens() const { return static_cast<int32_t>(layers_.front().tokens()); }
  // Bytes of all layers as a share of those of the exact rows.
  double bytes_share() const;

  // For a span whose first token is at `position`, everything since tokens() having been read on the view.
  std::vector<models::ViewLayer> LayersAt(int32_t position) const;

 private:
  cache::CompressContext ContextOf(int32_t layer, const Shown& shown) const;
  void Bind(int32_t layer);

  Subject& subject_;
  const cache::Compressor& compressor_;
  const cache::Budget budget_;
  const QueryLog& log_;
  int32_t kept_up_;  // Tokens at the last upkeep.
  std::vector<cache::CompressedLayer> layers_;
  std::vector<std::vector<float>> log_degrees_;  // Of each body, [pages][kv_heads][64]; empty: one token a slot.
};

}  // namespace invar::eval
