// A compressed view of a subject's exact KV: the engine's, with its tail in pages of the subject's and its upkeep at
// the engine's pace.
#pragma once

#include <cstdint>
#include <span>

#include "cache/compressor.h"
#include "engine/compressed/compressed_kv.h"
#include "engine/compressed/query_log.h"
#include "models/model.h"
#include "tools/eval/subject.h"

namespace invar::eval {

class BoundView {
 public:
  // What of the first `length` tokens `compressor` keeps within `budget`. `log`: their queries, for kinds that look at
  // them. One view of a subject is bound at a time: the tails lie in the same pages. Requires: all outlive this.
  BoundView(Subject& subject, const cache::Compressor& compressor, cache::Budget budget, const engine::QueryLog& log,
            int32_t length);

  // A round's end: the exact rows of tokens [tokens(), end) follow, then comes upkeep where enough tokens have come
  // since the last. Forgets what was read on it.
  void Settle(int32_t end);

  int32_t tokens() const { return view_.tokens(); }
  // Bytes of all layers as a share of those of the exact rows.
  double bytes_share() const;

  // For a span whose first token is at `position`, everything since tokens() having been read on the view.
  std::span<const models::ViewLayer> LayersAt(const int32_t position) { return view_.At(Position(position)); }

 private:
  Subject& subject_;
  const engine::QueryLog& log_;
  int32_t kept_up_;  // Tokens at the last upkeep.
  engine::CompressedKv view_;
};

}  // namespace invar::eval
