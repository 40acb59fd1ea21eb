// See measure.h.
#include "tools/calibrate/measure.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "tools/calibrate/attend.h"

namespace invar::calibrate {
namespace {

constexpr int32_t kOwn = 0;   // The consumer's sequence of its own prefill.
constexpr int32_t kMade = 1;  // And that of the reconstruction.

size_t Best(const std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void ToLogProbabilities(std::vector<float>& logits) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - largest));
  const auto shift = static_cast<float>(largest + std::log(sum));
  for (float& x : logits) x -= shift;
}

double Kl(const std::span<const float> own, const std::span<const float> other) {
  double sum = 0.0;
  for (size_t i = 0; i < own.size(); ++i)
    sum += std::exp(static_cast<double>(own[i])) * (static_cast<double>(own[i]) - other[i]);
  return sum;
}

double RelativeError(const std::span<const float> own, const std::span<const float> made) {
  double error = 0.0;
  double size = 1e-30;
  for (size_t i = 0; i < own.size(); ++i) {
    const double difference = static_cast<double>(own[i]) - made[i];
    error += difference * difference;
    size += static_cast<double>(own[i]) * own[i];
  }
  return std::sqrt(error / size);
}

// What the consumer itself makes of one window.
struct Own {
  explicit Own(const models::ModelSpec& spec) : queries(spec) {}

  QueryTap queries;
  std::vector<std::vector<float>> log_probabilities;  // A row of the suffix each.
  std::vector<engine::ScdKv> kv;                      // Of each attention layer, rope on.
  std::vector<engine::FloatRows> attended;            // Of each attention layer: outputs of the suffix's queries.
  std::vector<std::byte> state;                       // After the prefix.
};

class Judge {
 public:
  Judge(Party& producer, Party& consumer, const engine::ScdProfile& profile, const std::span<const Trial> trials)
      : producer_(producer), consumer_(consumer), profile_(profile) {
    for (const Trial& trial : trials) {
      for (const engine::ScdLayerPlan& plan : trial.point.layers) {
        if (plan.mode == engine::ScdMode::kMapState && plan.tail > 0) tails_.insert(plan.tail);
      }
    }
  }

  void Open(const Window& window) {
    prefix_ = window.prefix.first(window.prefix.size() - 1);
    inputs_ = {window.prefix.back()};
    inputs_.insert(inputs_.end(), window.suffix.begin(), window.suffix.end() - 1);
    ReadProducer();
    ReadOwn();
  }

  void Try(const Trial& trial, TrialResult& result) {
    Make(trial, result);
    CompareLayers(trial, result);
    size_t row = 0;
    double kl = 0.0;
    int64_t agreeing = 0;
    std::vector<float> logits;
    consumer_.Read(kMade, inputs_, std::ssize(prefix_), {.on_row = [&](int64_t, const std::span<const float> given) {
                     logits.assign(given.begin(), given.end());
                     ToLogProbabilities(logits);
                     const std::vector<float>& own = own_->log_probabilities[row++];
                     kl += Kl(own, logits);
                     agreeing += Best(own) == Best(logits) ? 1 : 0;
                   }});
    const auto rows = static_cast<double>(inputs_.size());
    result.quality.kl += kl / rows;
    result.quality.top1_agreement += static_cast<double>(agreeing) / rows;
  }

 private:
  void ReadProducer() {
    tap_.emplace(producer_.spec());
    std::vector<models::StateCopy> copies;
    slots_.clear();
    int32_t next = 0;
    const int64_t tokens = std::ssize(prefix_);
    for (auto tail = tails_.rbegin(); tail != tails_.rend(); ++tail) {
      const int64_t after = tokens - *tail;
      if (after <= 0) continue;
      slots_.emplace_back(after, producer_.checkpoint(next++));
      copies.push_back({.after = Position(static_cast<int32_t>(after)), .to = slots_.back().second});
    }
    producer_.Restart(0);
    producer_.Read(0, prefix_, 0, {.layers = &*tap_, .checkpoints = copies});
  }

  void ReadOwn() {
    own_.emplace(consumer_.spec());
    consumer_.Restart(kOwn);
    consumer_.Read(kOwn, prefix_, 0, {});
    const std::span<const std::byte> state = consumer_.slot(SlotId(kOwn));
    own_->state.assign(state.begin(), state.end());
    for (int32_t i = 0; i < consumer_.spec().attention_layers; ++i)
      own_->kv.push_back(ReadTurnedKv(consumer_.sequence(kOwn), i, 0, std::ssize(prefix_)));
    consumer_.Read(kOwn, inputs_, std::ssize(prefix_),
                   {.queries = &own_->queries, .on_row = [&](int64_t, const std::span<const float> logits) {
                      own_->log_probabilities.emplace_back(logits.begin(), logits.end());
                      ToLogProbabilities(own_->log_probabilities.back());
                    }});
    std::ranges::copy(own_->state, consumer_.slot(SlotId(kOwn)).begin());
    for (size_t i = 0; i < own_->kv.size(); ++i)
      own_->attended.push_back(Attend(consumer_.spec().attention.shape, own_->queries.queries[i], own_->kv[i]));
  }

  // Through the bytes of the payload, as two processes would.
  void Make(const Trial& trial, TrialResult& result) {
    if (trial.alone) consumer_.Copy(kOwn, kMade);
    const engine::ScdProducerPrefix from{.sequence = producer_.sequence(0),
                                         .tokens = std::ssize(prefix_),
                                         .inputs = tap_->inputs,
                                         .residuals = tap_->residuals,
                                         .state_at = [this](const int64_t position) { return SlotAt(position); }};
    const engine::ScdConsumerPrefix to{
        .sequence = consumer_.sequence(kMade), .tokens = prefix_, .rows_max = consumer_.rows_max()};
    result.payload_bytes = 0;
    for (size_t layer = 0; layer < trial.point.layers.size(); ++layer) {
      if (trial.alone && *trial.alone != layer) continue;
      std::vector<std::byte> payload;
      EncodeScdLayer(profile_, trial.point, layer, from, payload);
      result.payload_bytes += std::ssize(payload);
      const Status made = DecodeScdLayer(profile_, trial.point, layer, payload, to);
      Check(made.ok(), "what was encoded is decoded", made.message());
    }
  }

  SlotId SlotAt(const int64_t position) const {
    if (position == std::ssize(prefix_)) return SlotId(0);
    const auto found = std::ranges::find(slots_, position, &std::pair<int64_t, SlotId>::first);
    Check(found != slots_.end(), "the producer kept the state there", position);
    return found->second;
  }

  void CompareLayers(const Trial& trial, TrialResult& result) {
    result.layer_errors.resize(trial.point.layers.size(), 0.0);
    size_t attention = 0;
    size_t recurrent = 0;
    double cosine = 0.0;
    for (size_t layer = 0; layer < result.layer_errors.size(); ++layer) {
      if (profile_.shape.layers[layer].recurrent) {
        const std::span<const float> made = RecurrentState(consumer_.sequence(kMade), recurrent, SlotId(kMade));
        const std::span<const float> own = RecurrentState(consumer_.sequence(kOwn), recurrent, SlotId(kOwn));
        result.layer_errors[layer] += RelativeError(own, made);
        ++recurrent;
        continue;
      }
      const engine::ScdKv made =
          ReadTurnedKv(consumer_.sequence(kMade), static_cast<int32_t>(attention), 0, std::ssize(prefix_));
      const engine::ScdKv& own = own_->kv[attention];
      const double keys = RelativeError(own.keys.values, made.keys.values);
      const double values = RelativeError(own.values.values, made.values.values);
      result.layer_errors[layer] += std::sqrt((keys * keys + values * values) / 2.0);
      if (!trial.alone) {
        const kernels::AttentionShape& shape = consumer_.spec().attention.shape;
        cosine += MeanCosine(shape, own_->attended[attention], Attend(shape, own_->queries.queries[attention], made));
      }
      ++attention;
    }
    result.quality.attention_cosine += attention > 0 ? cosine / static_cast<double>(attention) : 1.0;
  }

  Party& producer_;
  Party& consumer_;
  const engine::ScdProfile& profile_;
  std::set<int32_t> tails_;
  // Of the window that is open.
  std::span<const TokenId> prefix_;
  std::vector<TokenId> inputs_;
  std::optional<LayerTap> tap_;
  std::vector<std::pair<int64_t, SlotId>> slots_;
  std::optional<Own> own_;
};

}  // namespace

std::vector<TrialResult> Measure(Party& producer, Party& consumer, const engine::ScdProfile& profile,
                                 const std::span<const Trial> trials, const std::span<const Window> windows,
                                 const std::function<void()>& progress) {
  std::vector<TrialResult> results(trials.size());
  Judge judge(producer, consumer, profile, trials);
  for (const Window& window : windows) {
    judge.Open(window);
    for (size_t i = 0; i < trials.size(); ++i) {
      judge.Try(trials[i], results[i]);
      if (progress) progress();
    }
  }
  const auto count = static_cast<double>(std::max<size_t>(1, windows.size()));
  for (TrialResult& result : results) {
    result.quality.kl /= count;
    result.quality.top1_agreement /= count;
    result.quality.attention_cosine /= count;
    for (double& error : result.layer_errors) error /= count;
  }
  return results;
}

}  // namespace invar::calibrate
