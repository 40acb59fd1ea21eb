// One path for all kinds: what is settled becomes plain slots, the kind thins them out, whole pages are encoded. Where
// nothing has to go, rows move into the body as they are and what was encoded stays untouched.
#include "cache/compressor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "cache/compress/layer_writer.h"
#include "cache/compress/select.h"

namespace invar::cache {
namespace {

constexpr int64_t kPage = kernels::kEncodedPageSlots;
// Pages of the body that upkeep looks at first: 512 slots have a page of pairs to merge several times over, and cost a
// tenth of a body of 4,096.
constexpr int64_t kNewestPages = 8;

}  // namespace

int64_t Budget::Of(const int64_t tokens) const {
  if (slots_ >= 0) return std::min(slots_, tokens);
  // NaN and what is below 0 count as nothing.
  const double share = share_ > 0.0 ? std::min(share_, 1.0) : 0.0;
  return std::min(tokens, static_cast<int64_t>(std::ceil(share * static_cast<double>(tokens))));
}

Compressor::Compressor(CompressorTraits traits, std::string provenance)
    : traits_(traits), provenance_(std::move(provenance)) {}

bool Compressor::IsShownEnough(const Observation& observation) const {
  return (traits_.observation_window == 0 || (observation.window > 0 && !observation.queries.empty())) &&
         (!traits_.attention_mass || !observation.mass.empty()) &&
         (!traits_.second_pass || !observation.second_pass.empty()) &&
         (!traits_.query_moments || (!observation.query_mean.empty() && !observation.query_covariance.empty()));
}

int64_t Compressor::Target(const int64_t tokens, const Budget& budget) const {
  if (traits_.keeps_all_tokens) return tokens;
  return std::min(tokens, std::max(budget.Of(tokens), int64_t{traits_.sinks} + traits_.recent));
}

CompressedLayer Compressor::Prefill(const kernels::PageShape& shape, const kernels::ConstKvRows& rows,
                                    const CompressContext& context) const {
  // Workers flush denormals; so the bits are the same without any.
  const FlushDenormals flush;
  CompressedLayer view(shape, traits_.encoding, provenance_);
  LayerWriter writer(view, traits_.family == CompressorFamily::kMerge);
  const int64_t target = Target(rows.slots, context.budget);
  if (rows.slots <= target) {
    writer.Fill(rows, traits_.recent);
    writer.EndRound(0);
    return view;
  }
  SettledSlots slots = LayerWriter::Gather(shape, rows);
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
  const int64_t target = Target(verified, context.budget);
  const int64_t settled_slots = view.slots() - (view.tokens() - verified);
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
