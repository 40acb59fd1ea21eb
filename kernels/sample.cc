// Every filter keeps a prefix of the order (logit descending, id ascending), so the kept set is one cutoff: a logit,
// and the last id kept among its equals. Elementary functions are our own (bits do not depend on a C library).
#include "kernels/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/worker_pool.h"
#include "kernels/cpu/isa.h"
#include "kernels/shared/gumbel.h"

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

  // Calls visit(id of the first, logits, largest), ids ascending, for the blocks whose largest is wanted(largest).
  template <typename Wanted, typename Visit>
  void ForEach(const Wanted& wanted, const Visit& visit) const {
    for (size_t block = 0; block < maxima_.size(); ++block) {
      if (!wanted(maxima_[block])) continue;
      const size_t first = block * cpu::kMaximaBlock;
      const size_t count = std::min<size_t>(logits_.size() - first, cpu::kMaximaBlock);
      visit(static_cast<int32_t>(first), logits_.subspan(first, count), maxima_[block]);
    }
  }

  // Calls visit(ids) for blocks' logits of at least `least`, ids ascending.
  template <typename Visit>
  void ForEachFrom(const float least, const Visit& visit) const {
    ForEach([=](const float largest) { return largest >= least; },
            [&](const int32_t first, const std::span<const float> block, float) {
              // Without branches, for nothing foretells which are to come.
              std::array<int32_t, cpu::kMaximaBlock> found;  // NOLINT: written as far as it is read.
              size_t count = 0;
              for (size_t i = 0; i < block.size(); ++i) {
                found[count] = first + static_cast<int32_t>(i);
                count += block[i] >= least ? 1 : 0;
              }
              visit(std::span<const int32_t>(found.data(), count));
            });
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

// The end of the shortest beginning of ids with which `sum` reaches `wanted`; the last where it never does.
Cutoff Walk(std::span<const float> logits, std::span<const int32_t> ids, std::span<const float> terms, double sum,
            const double wanted) {
  size_t i = 0;
  while (i + 1 < ids.size() && (sum += terms[i]) < wanted) ++i;
  return {logits[ids[i]], ids[i]};
}

// exp((logit - largest) / temperature) of each of some ids; returns their sum.
double TermsOf(const cpu::KernelTable& table, std::span<const float> logits, std::span<const int32_t> ids,
               const float largest, const float temperature, std::vector<float>* terms) {
  std::vector<float> values;
  values.reserve(ids.size());
  for (const int32_t id : ids) values.push_back(logits[id]);
  terms->resize(ids.size());
  return SumExp(table, values, largest, temperature, terms->data());
}

// The shortest prefix of `ids` (best first) whose probabilities reach `top_p` of their sum.
Cutoff TopPOfSorted(const cpu::KernelTable& table, std::span<const float> logits, std::span<const int32_t> ids,
                    const float largest, const SampleSettings& settings) {
  std::vector<float> terms;
  const double total = TermsOf(table, logits, ids, largest, settings.temperature, &terms);
  return Walk(logits, ids, terms, 0.0, total * std::max(0.0F, settings.top_p));
}

// Ids by (largest - logit) / temperature, 1/32 wide; descends as logits do. The last bucket has all that is smaller.
class Buckets {
 public:
  static constexpr int kCount = 1024;

  Buckets(const float largest, const float temperature) : largest_(largest), per_logit_(32.0 / temperature) {}

  // Requires: the logit is no NaN and not infinite.
  int Of(const float logit) const {
    const double depth = (largest_ - logit) * per_logit_;
    return depth < kCount - 1 ? static_cast<int>(depth) : kCount - 1;
  }
  // No logit of a bucket before `end` is below it, and it is finite.
  float Least(const int end) const {
    constexpr double kLowest = std::numeric_limits<float>::lowest();
    if (end == kCount) return static_cast<float>(kLowest);
    const double width = end / per_logit_;
    // A logit and the sums that lead here are rounded by less than this.
    const double slack = 1e-6 * (std::fabs(largest_) + width);
    return static_cast<float>(std::max(kLowest, largest_ - width - slack));
  }

 private:
  const double largest_;
  const double per_logit_;
};

// The same over all logits: terms fall into buckets by size; only the bucket in which the sum crosses is sorted.
Cutoff TopPOfAll(const cpu::KernelTable& table, std::span<const float> logits, const Blocks& blocks,
                 const float largest, const SampleSettings& settings) {
  const double wanted = SumExp(table, logits, largest, settings.temperature, nullptr) * std::max(0.0F, settings.top_p);
  const Buckets buckets(largest, settings.temperature);
  std::array<double, Buckets::kCount> sums{};
  double sum = 0.0;
  int crossing = 0;
  // Buckets are filled as far as they are needed, which mostly is not far: each time as many as there were.
  for (int begin = 0, end = Buckets::kCount / 8; crossing == begin; begin = end, end *= 2) {
    blocks.ForEachFrom(buckets.Least(end), [&](const std::span<const int32_t> found) {
      std::array<float, cpu::kMaximaBlock> values;  // NOLINT: written as far as
      std::array<float, cpu::kMaximaBlock> terms;   // NOLINT: they are read.
      std::array<int, cpu::kMaximaBlock> of;        // NOLINT
      size_t count = 0;
      for (const int32_t id : found) {
        values[count] = logits[id];
        of[count] = buckets.Of(logits[id]);
        count += of[count] >= begin && of[count] < end ? 1 : 0;
      }
      SumExp(table, std::span(values).first(count), largest, settings.temperature, terms.data());
      for (size_t i = 0; i < count; ++i) sums[of[i]] += terms[i];
    });
    const int last = std::min(end, Buckets::kCount - 1);
    while (crossing < last && sum + sums[crossing] < wanted) sum += sums[crossing++];
  }
  std::vector<int32_t> ids;
  blocks.ForEachFrom(buckets.Least(crossing + 1), [&](const std::span<const int32_t> found) {
    for (const int32_t id : found) {
      if (buckets.Of(logits[id]) == crossing) ids.push_back(id);
    }
  });
  if (ids.empty()) return {};  // The sum never reaches what is wanted: keep all.
  std::sort(ids.begin(), ids.end(),
            [&](const int32_t a, const int32_t b) { return Better(logits[a], a, logits[b], b); });
  std::vector<float> terms;
  TermsOf(table, logits, ids, largest, settings.temperature, &terms);
  return Walk(logits, ids, terms, sum, wanted);
}

// The k best ids, best first.
std::vector<int32_t> TopOf(std::span<const float> logits, const Blocks& blocks, const int32_t k) {
  const float threshold = blocks.TopThreshold(k);
  std::vector<int32_t> ids;
  blocks.ForEachFrom(std::max(threshold, std::numeric_limits<float>::lowest()),
                     [&](const std::span<const int32_t> found) { ids.insert(ids.end(), found.begin(), found.end()); });
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
  return top_p ? TopPOfAll(table, logits, blocks, largest, settings) : Cutoff{};
}

// No smaller word's noise reaches `score`. With noise of -log(-log(u)), 1 - u <= exp(-score) is necessary;
// 1 / (1 + score + score^2 / 2 ...) > exp(-score) is a safe and simple bound.
uint32_t LeastWord(const double score) {
  if (!(score > 0.0)) return 0;
  const double bound =
      1.0 / (1.0 + score * (1.0 + score * (0.5 + score * (1.0 / 6 + score * (1.0 / 24 + score / 120)))));
  return static_cast<uint32_t>(std::max(0.0, (1.0 - bound) * 0x1p32 - 2.0));
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
  const auto offer = [&](const int32_t id, const uint32_t word) {
    const double scaled = (logits[id] - largest) / temperature;
    if (!cutoff.Keeps(logits[id], id) || !(scaled >= least)) return;
    const double score = scaled + GumbelOf(word);
    if (score < best_score || (score == best_score && id >= best)) return;
    best_score = score;
    best = id;
  };
  // What is most likely to win comes first, for it rules out most of the others.
  offer(top, TokenNoise(key, static_cast<uint32_t>(top) / 4)[top % 4]);
  // Every decision is monotone in the logit, so a block whose largest cannot win is passed over whole.
  const auto wanted = [&](const float most) {
    const double scaled = (most - largest) / temperature;
    return most >= cutoff.logit && scaled >= least && scaled + kMostGumbel >= best_score;
  };
  std::array<cpu::NoisyToken, cpu::kMaximaBlock> sifted;  // NOLINT: written as far as it is read.
  blocks.ForEach(wanted, [&](const int32_t first, const std::span<const float> block, const float most) {
    const cpu::NoiseSift sift{.x = block.data(),
                              .n = std::ssize(block),
                              .first = first,
                              .least_logit = cutoff.logit,
                              .least_word = LeastWord(best_score - (most - largest) / temperature),
                              .seed = key.seed,
                              .output_index = key.output_index,
                              .position = key.position};
    const int64_t count = table_->sift_noise(sift, sifted.data());
    for (int64_t i = 0; i < count; ++i) offer(sifted[i].id, sifted[i].word);
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
