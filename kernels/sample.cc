// Every filter keeps a prefix of the order (logit descending, id ascending), so the kept set is one cutoff: a logit,
// and the last id kept among its equals. Elementary functions are our own (bits do not depend on a C library).
#include "kernels/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/worker_pool.h"
#include "kernels/cpu/isa.h"
#include "kernels/gumbel.h"

namespace invar::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Kept: logits above `logit`, and those equal to it up to `last_id`.
struct Cutoff {
  float logit = kMinusInfinity;
  int32_t last_id = -1;  // With -infinity: all but -infinity.

  bool Keeps(const float value, const int32_t id) const { return value > logit || (value == logit && id <= last_id); }
};

bool Better(const float a, const int32_t a_id, const float b, const int32_t b_id) {
  return a > b || (a == b && a_id < b_id);
}

Cutoff Stricter(const Cutoff& a, const Cutoff& b) { return Better(a.logit, a.last_id, b.logit, b.last_id) ? a : b; }

// The one pass over all logits: the largest of each block. What follows looks into the blocks it needs.
class Blocks {
 public:
  Blocks(const cpu::KernelTable& table, std::span<const float> logits)
      : logits_(logits), maxima_((logits.size() + cpu::kMaximaBlock - 1) / cpu::kMaximaBlock) {
    table.block_maxima(logits.data(), static_cast<int64_t>(logits.size()), maxima_.data());
  }

  // Id of the largest logit, ties to the smallest; -1 where there is none.
  int32_t Best() const {
    const auto block = std::max_element(maxima_.begin(), maxima_.end());  // The first of equals.
    if (block == maxima_.end() || *block == kMinusInfinity) return -1;
    size_t id = static_cast<size_t>(block - maxima_.begin()) * cpu::kMaximaBlock;
    while (logits_[id] != *block) ++id;
    return static_cast<int32_t>(id);
  }

  // At least this value have the k largest: the k-th largest of the maxima.
  float TopThreshold(const int64_t k) const {
    if (k > static_cast<int64_t>(maxima_.size())) return kMinusInfinity;
    std::vector<float> sorted = maxima_;
    std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
    return sorted[k - 1];
  }

  // Calls visit(id), ids ascending, for all logits of the blocks whose largest is wanted(largest).
  template <typename Wanted, typename Visit>
  void ForEach(const Wanted& wanted, const Visit& visit) const {
    for (size_t block = 0; block < maxima_.size(); ++block) {
      if (!wanted(maxima_[block])) continue;
      const size_t end = std::min(logits_.size(), (block + 1) * cpu::kMaximaBlock);
      for (size_t id = block * cpu::kMaximaBlock; id < end; ++id) visit(static_cast<int32_t>(id));
    }
  }

 private:
  std::span<const float> logits_;
  std::vector<float> maxima_;
};

// Sum of exp((logit - largest) / temperature) over all; optionally each term.
double SumExp(const cpu::KernelTable& table, std::span<const float> logits, const float largest,
              const float temperature, float* terms) {
  return table.exp_sum(logits.data(), static_cast<int64_t>(logits.size()), largest, temperature, terms);
}

// The shortest prefix of `ids` (best first) whose probabilities reach `top_p` of their sum.
Cutoff TopPOfSorted(const cpu::KernelTable& table, std::span<const float> logits, std::span<const int32_t> ids,
                    const float largest, const SampleSettings& settings) {
  std::vector<float> values;
  for (const int32_t id : ids) values.push_back(logits[id]);
  std::vector<float> terms(ids.size());
  const double total = SumExp(table, values, largest, settings.temperature, terms.data());
  const double wanted = total * std::max(0.0F, settings.top_p);
  double sum = 0.0;
  size_t i = 0;
  while (i + 1 < ids.size() && (sum += terms[i]) < wanted) ++i;
  return {values[i], ids[i]};
}

// The same over all logits: terms fall into buckets by size; only the bucket in which the sum crosses is sorted.
Cutoff TopPOfAll(const cpu::KernelTable& table, std::span<const float> logits, const float largest,
                 const SampleSettings& settings) {
  constexpr int kBuckets = 1024;
  std::vector<float> terms(logits.size());
  const double total = SumExp(table, logits, largest, settings.temperature, terms.data());
  const double wanted = total * std::max(0.0F, settings.top_p);
  // By (largest - logit) / temperature, 1/32 wide; descends as logits do. Kept, for it is needed twice.
  const double per_logit = 32.0 / settings.temperature;
  std::vector<uint16_t> buckets(logits.size());
  std::vector<double> sums(kBuckets + 1, 0.0);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double depth = (static_cast<double>(largest) - logits[i]) * per_logit;
    const int bucket = depth < kBuckets - 1 ? static_cast<int>(depth) : kBuckets - 1;
    buckets[i] = static_cast<uint16_t>(logits[i] > kMinusInfinity ? bucket : kBuckets);  // NaN and -infinity apart.
    sums[buckets[i]] += terms[i];
  }
  double sum = 0.0;
  int crossing = 0;
  while (crossing + 1 < kBuckets && sum + sums[crossing] < wanted) sum += sums[crossing++];
  std::vector<int32_t> ids;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (buckets[i] == crossing) ids.push_back(static_cast<int32_t>(i));
  }
  if (ids.empty()) return {};  // The sum never reaches what is wanted: keep all.
  std::sort(ids.begin(), ids.end(),
            [&](const int32_t a, const int32_t b) { return Better(logits[a], a, logits[b], b); });
  size_t i = 0;
  while (i + 1 < ids.size() && (sum += terms[ids[i]]) < wanted) ++i;
  return {logits[ids[i]], ids[i]};
}

// The k best ids, best first.
std::vector<int32_t> TopOf(std::span<const float> logits, const Blocks& blocks, const int32_t k) {
  const float threshold = blocks.TopThreshold(k);
  std::vector<int32_t> ids;
  blocks.ForEach([&](const float largest) { return largest >= threshold; },
                 [&](const int32_t id) {
                   if (logits[id] >= threshold && logits[id] > kMinusInfinity) ids.push_back(id);
                 });
  const size_t count = std::min<size_t>(k, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(),
                    [&](const int32_t a, const int32_t b) { return Better(logits[a], a, logits[b], b); });
  ids.resize(count);
  return ids;
}

Cutoff CutoffOf(const cpu::KernelTable& table, std::span<const float> logits, const Blocks& blocks, const float largest,
                const SampleSettings& settings) {
  const bool top_p = settings.top_p < 1.0F;
  if (settings.top_k > 0 && settings.top_k < static_cast<int64_t>(logits.size())) {
    const std::vector<int32_t> ids = TopOf(logits, blocks, settings.top_k);
    const Cutoff by_k{logits[ids.back()], ids.back()};
    return top_p ? Stricter(by_k, TopPOfSorted(table, logits, ids, largest, settings)) : by_k;
  }
  return top_p ? TopPOfAll(table, logits, largest, settings) : Cutoff{};
}

}  // namespace

StatusOr<RowSampler> RowSampler::Create(const std::string_view isa) {
  StatusOr<const cpu::KernelTable*> table = cpu::ChooseTable(isa);
  if (!table.ok()) return table.status();
  return RowSampler(**table);
}

std::string_view RowSampler::isa() const { return table_->name; }

int32_t RowSampler::ArgMax(std::span<const float> logits) const { return Blocks(*table_, logits).Best(); }

int32_t RowSampler::Sample(std::span<const float> logits, const SampleSettings& settings, const NoiseKey& key) const {
  const Blocks blocks(*table_, logits);
  const int32_t top = blocks.Best();
  const bool greedy = !(settings.temperature >= kGreedyBelow);
  if (top < 0 || greedy || logits[top] == std::numeric_limits<float>::infinity()) return top;
  const FlushDenormals flush;
  const double largest = logits[top];
  const double temperature = settings.temperature;
  const Cutoff cutoff = CutoffOf(*table_, logits, blocks, logits[top], settings);
  const double least =
      settings.min_p > 0.0F ? NaturalLog(std::min(settings.min_p, 1.0F)) : -std::numeric_limits<double>::infinity();
  int32_t best = -1;
  double best_score = -std::numeric_limits<double>::infinity();
  uint32_t least_word = 0;  // Below it no token can win: its noise is at most -log(1 - u), its scaled logit at most 0.
  PhiloxWords words{};
  int64_t words_group = -1;
  // Every decision below is monotone in the logit, so a block whose largest cannot win is passed over whole.
  const auto may_win = [&](const double scaled) { return scaled >= least && scaled + kMostGumbel >= best_score; };
  const auto wanted = [&](const float most) { return most >= cutoff.logit && may_win((most - largest) / temperature); };
  blocks.ForEach(wanted, [&](const int32_t id) {
    if (!cutoff.Keeps(logits[id], id)) return;
    const double scaled = (logits[id] - largest) / temperature;
    if (!may_win(scaled)) return;
    if (id / 4 != words_group) {
      words_group = id / 4;
      words = TokenNoise(key, static_cast<uint32_t>(words_group));
    }
    const uint32_t word = words[id % 4];
    if (word < least_word) return;
    const double score = scaled + GumbelOf(word);
    if (score <= best_score) return;
    best_score = score;
    best = id;
    // 1 - u <= exp(-score) is necessary; 1 / (1 + score + score^2 / 2) > exp(-score) is a safe and simple bound.
    if (score > 0.0) {
      const double bound =
          1.0 / (1.0 + score * (1.0 + score * (0.5 + score * (1.0 / 6 + score * (1.0 / 24 + score / 120)))));
      least_word = static_cast<uint32_t>(std::max(0.0, (1.0 - bound) * 0x1p32 - 2.0));
    }
  });
  return best;
}

float RowSampler::LogSumExp(std::span<const float> logits) const {
  const int32_t top = ArgMax(logits);
  if (top < 0 || std::isinf(logits[top])) return top < 0 ? kMinusInfinity : logits[top];
  const FlushDenormals flush;
  return static_cast<float>(logits[top] + NaturalLog(SumExp(*table_, logits, logits[top], 1.0F, nullptr)));
}

void RowSampler::Top(std::span<const float> logits, const int32_t k, std::vector<int32_t>* ids) const {
  ids->clear();
  const FlushDenormals flush;
  if (k > 0) *ids = TopOf(logits, Blocks(*table_, logits), k);
}

}  // namespace invar::kernels
