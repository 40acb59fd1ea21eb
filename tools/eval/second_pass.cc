// Attention is worked out beside the model's own, from its queries and the keys in its pages, while it runs.
#include "tools/eval/second_pass.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/worker_pool.h"
#include "cache/compress/dot_columns.h"
#include "engine/compressed/query_log.h"
#include "kernels/dense_page.h"

namespace invar::eval {
namespace {

// Of the request and the lead, by any tokenizer: each byte a token.
constexpr int32_t kRequestTokensMax = static_cast<int32_t>(sizeof(kRepeatRequest)) + kLeadTokens;

class Watcher final : public models::QueryObserver {
 public:
  Watcher(const Subject& subject, const int64_t tokens)
      : subject_(subject),
        shape_(subject.page_shape()),
        attention_(subject.spec().attention),
        tokens_(tokens),
        largest_(attention_.page_offsets_bytes.size(),
                 std::vector<float>(static_cast<size_t>(shape_.kv_heads * tokens), 0.0F)),
        seen_(attention_.page_offsets_bytes.size(), tokens) {}

  // The next piece stands behind the context again.
  void Restart() { std::ranges::fill(seen_, tokens_); }
  std::vector<std::vector<float>> Take() && { return std::move(largest_); }

  void Queries(const int32_t layer, const kernels::Activations& queries) override {
    std::vector<float> rows;
    for (int64_t r = 0; r < queries.rows; ++r) engine::AppendRow(queries, r, rows);
    const int64_t first = seen_[layer];
    seen_[layer] += queries.rows;
    const std::vector<float> keys = KeysOf(layer, seen_[layer]);
    subject_.model().backend()->pool().ParallelFor(
        shape_.kv_heads, [&](const int64_t h) { Watch(layer, h, keys, rows, queries.rows, first); });
  }

 private:
  int64_t row_floats() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }

  // Of positions [0, end): [positions][kv_heads][dim].
  std::vector<float> KeysOf(const int32_t layer, const int64_t end) const {
    std::vector<float> keys(static_cast<size_t>(end * row_floats()));
    std::vector<float> values(keys.size());
    const kernels::KvRows into = {keys.data(), values.data(), end, shape_.head_dim, row_floats()};
    const engine::PageRows exact = subject_.exact();
    for (int64_t place = 0; place < end; place += kernels::kPageTokens) {
      const std::byte* const page = exact.arena +
                                    exact.pages[place / kernels::kPageTokens].value() * subject_.spec().page_bytes +
                                    attention_.page_offsets_bytes[layer];
      kernels::ReadRows(shape_, page, 0, into.Slots(place, std::min<int64_t>(kernels::kPageTokens, end - place)));
    }
    return keys;
  }

  // `rows` [count][heads][dim] of positions from `first` on.
  void Watch(const int32_t layer, const int64_t h, const std::vector<float>& keys, const std::vector<float>& rows,
             const int64_t count, const int64_t first) {
    const int64_t dim = shape_.head_dim;
    const int64_t group = attention_.shape.heads / shape_.kv_heads;
    float* const largest = largest_[layer].data() + h * tokens_;
    std::array<float, cache::kDotColumns> factors;
    factors.fill(attention_.shape.scale);
    std::vector<float> columns(static_cast<size_t>(dim * cache::kDotColumns));
    std::vector<float> logits(static_cast<size_t>((first + count) * cache::kDotColumns));
    for (int64_t q = h * group; q < (h + 1) * group; ++q) {
      for (int64_t from = 0; from < count; from += cache::kDotColumns) {
        const int64_t together = std::min(cache::kDotColumns, count - from);
        const int64_t end = first + from + together;
        cache::FillColumns(rows.data() + (from * attention_.shape.heads + q) * dim, attention_.shape.heads * dim,
                           factors.data(), together, dim, columns.data());
        cache::DotColumns(keys.data() + h * dim, row_floats(), end, columns.data(), dim, logits.data());
        for (int64_t w = 0; w < together; ++w) TakeLargest(logits.data() + w, first + from + w, largest);
      }
    }
  }

  // `logits` of positions up to `own`, kDotColumns apart.
  void TakeLargest(const float* const logits, const int64_t own, float* const largest) const {
    float top = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i <= own; ++i) top = std::max(top, logits[i * cache::kDotColumns]);
    std::vector<float> weights(static_cast<size_t>(own + 1));
    double total = 0.0;
    for (int64_t i = 0; i <= own; ++i) {
      weights[i] = std::exp(logits[i * cache::kDotColumns] - top);
      total += weights[i];
    }
    for (int64_t i = 0; i < tokens_; ++i)
      largest[i] = std::max(largest[i], static_cast<float>(static_cast<double>(weights[i]) / total));
  }

  const Subject& subject_;
  const kernels::PageShape shape_;
  const models::AttentionLayers& attention_;
  const int64_t tokens_;
  std::vector<std::vector<float>> largest_;
  std::vector<int64_t> seen_;  // By layer: positions before the next row.
};

}  // namespace

int32_t SecondPassTokens(const int32_t tokens) { return std::min(tokens, kPieceTokens) + kRequestTokensMax; }

std::vector<std::vector<float>> SecondPass(Subject& subject, const models::Tokenizer& tokenizer, const Place& end,
                                           const std::span<const TokenId> tokens, const int64_t piece_tokens) {
  const auto request = tokenizer.Encode(kRepeatRequest, models::ControlTokens::kStayText, /*add_special=*/false, {});
  Check(request.ok(), "the request to repeat is plain text");
  Watcher watcher(subject, std::ssize(tokens));
  for (int64_t begin = 0; begin < std::ssize(tokens); begin += piece_tokens) {
    const int64_t lead = std::min<int64_t>(kLeadTokens, begin);
    const auto piece = tokens.subspan(begin - lead, lead + std::min<int64_t>(piece_tokens, std::ssize(tokens) - begin));
    std::vector<TokenId> inputs = *request;
    inputs.insert(inputs.end(), piece.begin(), piece.end());
    Place place = end;
    watcher.Restart();
    subject.Read(nullptr, place, inputs, std::ssize(inputs), {}, &watcher);
  }
  return std::move(watcher).Take();
}

}  // namespace invar::eval
