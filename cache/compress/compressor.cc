// One path for all kinds: what is settled becomes plain slots, the kind thins them out, whole pages are encoded. Where
// nothing has to go, rows move into the body as they are and what was encoded stays untouched.
#include "cache/compressor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/compress/layer_writer.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

using kernels::KvEncoding;

constexpr int64_t kPage = kernels::kEncodedPageSlots;
// Pages of the body that upkeep looks at first: 512 slots have a page of pairs to merge several times over, and cost a
// tenth of a body of 4,096.
constexpr int64_t kNewestPages = 8;

// `more`: of a slot, beside its rows.
ViewBytes BytesOf(const kernels::PageShape& shape, const KvEncoding encoding, const int64_t more) {
  const int64_t row = int64_t{2} * shape.kv_heads * shape.head_dim * kernels::BytesOf(shape.dense);
  return {.full_row = row, .tail_row = row + more, .page = kernels::EncodedPageBytes(encoding, shape) + kPage * more};
}

}  // namespace

int64_t SpreadStride(const int64_t tokens, const int64_t queries) {
  Check(queries > 0, "some queries are spread", queries);
  int64_t stride = 1;
  while ((tokens + stride - 1) / stride > queries) stride *= 2;
  return stride;
}

// NaN and what is below 0 count as nothing.
Budget Budget::Share(const double share) { return Budget(-1, share > 0.0 ? std::min(share, 1.0) : 0.0); }

int64_t Budget::Of(const int64_t tokens, const ViewBytes& bytes, const int64_t tail) const {
  if (slots_ >= 0) return std::min(slots_, tokens);
  const auto within = static_cast<int64_t>(share_ * static_cast<double>(tokens * bytes.full_row));
  // Rows cost as much in the tail as in pages: every one counts.
  if (bytes.page >= kPage * bytes.tail_row) return std::min(tokens, within / bytes.tail_row);
  const int64_t body = within - tail * bytes.tail_row;
  if (body < 0) return std::min(tokens, within / bytes.tail_row);
  return std::min(tokens, body / bytes.page * kPage + tail);
}

bool Budget::HasPagesForAll(const ViewBytes& bytes) const {
  return slots_ < 0 && static_cast<double>(bytes.page) <= share_ * static_cast<double>(kPage * bytes.full_row);
}

Compressor::Compressor(CompressorTraits traits, std::string provenance)
    : traits_(traits), provenance_(std::move(provenance)) {}

bool Compressor::IsShownEnough(const Observation& observation) const {
  return (traits_.observation_window == 0 || (observation.window > 0 && !observation.queries.empty())) &&
         (traits_.spread_queries == 0 || !observation.spread_queries.empty()) &&
         (!traits_.second_pass || !observation.second_pass.empty()) &&
         (!traits_.query_moments || (!observation.query_mean.empty() && !observation.query_covariance.empty()));
}

kernels::KvEncoding Compressor::EncodingFor(const kernels::PageShape& shape, const Budget& budget) const {
  if (traits_.encoding.has_value()) return *traits_.encoding;
  for (const KvEncoding encoding : {KvEncoding::kDense, KvEncoding::kInt8, KvEncoding::kK8V4}) {
    if (budget.HasPagesForAll(BytesOf(shape, encoding, 0))) return encoding;
  }
  return KvEncoding::kKivi4;
}

// Merging takes whole pages away, so it is known how many rows will be behind them; dropping leaves any number.
int64_t Compressor::Target(const kernels::PageShape& shape, const KvEncoding encoding, const int64_t slots,
                           const int64_t tokens, const Budget& budget) const {
  if (traits_.keeps_all_tokens) return tokens;
  const int64_t older = std::max<int64_t>(0, slots - traits_.recent);
  const int64_t tail = traits_.recent + (traits_.family == CompressorFamily::kMerge ? older % kPage : kPage - 1);
  // As long as every token has a slot there are no degrees to keep.
  if (slots == tokens && budget.Of(tokens, BytesOf(shape, encoding, 0), tail) == tokens) return tokens;
  const int64_t degrees = traits_.family == CompressorFamily::kMerge ? shape.kv_heads * kLogDegreeBytes : 0;
  const int64_t within = budget.Of(tokens, BytesOf(shape, encoding, degrees), tail);
  return std::min(tokens, std::max(within, int64_t{traits_.sinks} + traits_.recent));
}

int64_t Compressor::BodyBytes(const kernels::PageShape& shape, const int64_t tokens, const Budget& budget) const {
  const KvEncoding encoding = EncodingFor(shape, budget);
  const int64_t slots = Target(shape, encoding, tokens, tokens, budget);
  return std::max<int64_t>(0, slots - traits_.recent) / kPage * kernels::EncodedPageBytes(encoding, shape);
}

CompressedLayer Compressor::Prefill(const kernels::PageShape& shape, const kernels::ConstKvRows& rows,
                                    const CompressContext& context) const {
  const auto read = [&](const int64_t first, const kernels::KvRows& into) {
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      for (int64_t s = 0; s < into.slots; ++s) {
        std::copy_n(rows.key(h, first + s), shape.head_dim, into.key(h, s));
        std::copy_n(rows.value(h, first + s), shape.head_dim, into.value(h, s));
      }
    }
  };
  return Prefill(shape, rows.slots, read, context);
}

CompressedLayer Compressor::Prefill(const kernels::PageShape& shape, const int64_t tokens, const RowsReader& read,
                                    const CompressContext& context) const {
  // Workers flush denormals; so the bits are the same without any.
  const FlushDenormals flush;
  CompressedLayer view(shape, EncodingFor(shape, context.budget), provenance_, context.bodies);
  LayerWriter writer(view, traits_.family == CompressorFamily::kMerge);
  const int64_t target = Target(shape, view.encoding(), tokens, tokens, context.budget);
  if (tokens <= target) {
    writer.Fill(tokens, read, traits_.recent);
    writer.EndRound(0);
    return view;
  }
  SettledSlots slots = LayerWriter::Gather(shape, tokens, read, context.scratch);
  if (IsShownEnough(context.observation)) {
    Reduce(slots, target, context);
  } else {
    KeepLatest(slots, target, {.sinks = traits_.sinks, .recent = traits_.recent});
  }
  writer.Put(slots, traits_.recent);
  writer.EndRound(std::max<int64_t>(0, slots.count() - target));
  return view;
}

void Compressor::Maintain(CompressedLayer& view, const int64_t verified, const CompressContext& context) const {
  Check(view.provenance() == provenance_, "a view is kept up by what made it", view.provenance(), provenance_);
  Check(view.settled() <= verified && verified <= view.tokens(), "verified tokens have rows", view.settled(), verified,
        view.tokens());
  const FlushDenormals flush;
  LayerWriter writer(view, traits_.family == CompressorFamily::kMerge);
  const int64_t settled_slots = view.slots() - (view.tokens() - verified);
  const int64_t target = Target(view.shape(), view.encoding(), settled_slots, verified, context.budget);
  if (settled_slots <= target || !IsShownEnough(context.observation)) {
    writer.Promote(verified, traits_.recent);
    writer.EndRound(std::max<int64_t>(0, settled_slots - target));
    return;
  }
  // A page more than asked for, so that the next tokens find room and not every round goes over all slots. (Merging
  // rounds to whole pages itself.)
  const int64_t room = traits_.family == CompressorFamily::kSelect ? kPage - 1 : 0;
  const int64_t goal = std::max(int64_t{traits_.sinks} + traits_.recent, target - room);
  int64_t pages = ReducesNewestFirst() ? kNewestPages : view.body_pages();
  while (true) {
    const int64_t older = std::max<int64_t>(0, view.body_pages() - pages);
    SettledSlots slots = writer.Take(verified, older);
    Reduce(slots, goal, context);
    const int64_t left = slots.before() + slots.count();
    if (left <= goal || older == 0) {
      writer.Put(slots, traits_.recent);
      return writer.EndRound(std::max<int64_t>(0, left - target));
    }
    pages *= 4;
  }
}

void Compressor::Reduce(SettledSlots& /*slots*/, int64_t /*target*/, const CompressContext& /*context*/) const {
  Check(false, "only kinds that drop or merge tokens are asked to");
}

}  // namespace invar::cache
