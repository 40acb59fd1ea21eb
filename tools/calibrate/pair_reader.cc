// See pair_reader.h.
#include "tools/calibrate/pair_reader.h"

#include <algorithm>

#include "tools/calibrate/attend.h"

namespace invar::calibrate {
namespace {

// A token's weight is 1/2 for being there and 1/2 by its share of attention, which is cut off at 8 times the mean: the
// first tokens of a text take most of it, and nothing else would be fitted.
constexpr double kFloor = 0.5;
constexpr double kMostMass = 8.0;

// Which of its kind `layer` of the stack is.
template <typename Layers, typename Of>
size_t IndexOf(const Layers& layers, const size_t layer, const Of& of) {
  const auto found =
      std::ranges::find_if(layers, [&](const auto& one) { return static_cast<size_t>(of(one).value()) == layer; });
  return static_cast<size_t>(found - layers.begin());
}

}  // namespace

void PairReader::Read(const Window& window) {
  tokens_ = std::ssize(window.prefix);
  taps_.clear();
  taps_.emplace_back(producer_.spec());
  taps_.emplace_back(consumer_.spec());
  producer_.Restart(0);
  producer_.Read(0, window.prefix, 0, {.layers = &taps_[0]});
  consumer_.Restart(0);
  consumer_.Read(0, window.prefix, 0, {.layers = &taps_[1]});
  const std::span<const std::byte> state = consumer_.slot(SlotId(0));
  state_.assign(state.begin(), state.end());
  even_.assign(static_cast<size_t>(tokens_), 1.0F);
  QueryTap queries(consumer_.spec());
  if (by_mass_) consumer_.Read(0, window.suffix, tokens_, {.queries = &queries});
  weights_.clear();
  for (int32_t i = 0; i < consumer_.spec().attention_layers; ++i)
    weights_.push_back(by_mass_ ? WeightsOf(i, queries) : even_);
  std::ranges::copy(state_, consumer_.slot(SlotId(0)).begin());
}

std::vector<float> PairReader::WeightsOf(const int32_t attention_layer, const QueryTap& queries) const {
  std::vector<double> mass(static_cast<size_t>(tokens_), 0.0);
  const engine::FloatRows& rows = queries.queries[static_cast<size_t>(attention_layer)];
  Attend(consumer_.spec().attention.shape, rows, ReadTurnedKv(consumer_.sequence(0), attention_layer, 0, tokens_),
         mass);
  const double mean =
      static_cast<double>(rows.rows * consumer_.spec().attention.shape.heads) / static_cast<double>(tokens_);
  std::vector<float> weights;
  for (const double one : mass)
    weights.push_back(static_cast<float>(kFloor + (1.0 - kFloor) * std::min(one / mean, kMostMass)));
  return weights;
}

engine::ScdPairedLayer PairReader::Layer(const size_t layer) const {
  const models::ModelSpec& spec = consumer_.spec();
  engine::ScdPairedLayer pair{
      .producer_inputs = taps_[0].inputs[layer], .consumer_inputs = taps_[1].inputs[layer], .weights = even_};
  const size_t attention = IndexOf(spec.attention.layers, layer, [](const LayerIndex index) { return index; });
  if (attention < spec.attention.layers.size()) {
    pair.weights = weights_[attention];
    pair.producer_kv = ReadKv(producer_.sequence(0), static_cast<int32_t>(attention), 0, tokens_);
    pair.consumer_kv = ReadKv(consumer_.sequence(0), static_cast<int32_t>(attention), 0, tokens_);
    return pair;
  }
  const size_t recurrent = IndexOf(spec.recurrent_states, layer, [](const auto& state) { return state.layer; });
  pair.producer_scanned = &taps_[0].scanned[layer];
  pair.consumer_scanned = &taps_[1].scanned[layer];
  pair.producer_state = RecurrentState(producer_.sequence(0), recurrent, SlotId(0));
  pair.consumer_state = RecurrentState(consumer_.sequence(0), recurrent, SlotId(0));
  return pair;
}

}  // namespace invar::calibrate
