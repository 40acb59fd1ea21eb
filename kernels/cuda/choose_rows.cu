// Choosing tokens from rows of logits: what kernels/sample.h does on the host, with its bits. A block a row; a second
// kernel scores the rows that ask for log-probabilities.
//
// Where the bits come from: maxima and what is kept have no rounding; ties go to the smallest id, whoever finds it.
//   sums of exp   blocks of kExpSumBlock elements, 16 lanes each: lane i % 16 adds elements i ascending in float, the
//                 lanes are added by halves, the blocks ascending in double
//   top-p         probabilities fall into buckets by size. Those of one bucket differ by at most e^(1/32), so that all
//                 of a vocabulary add up in 64 bits without rounding, in any order: as integers. What is added to
//                 buckets' sums, one token after another in the order of the sort, is one thread's work
//   noise         the double arithmetic of kernels/shared/gumbel.h
// Denormals count as zeros where the host's way flushes them: not among what is largest, but in all that follows.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/shared/gumbel.h"

namespace invar::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kBlockWarps = kThreads / kWarpLanes;
constexpr float kInfinity = __builtin_huge_valf();
constexpr int kBuckets = 1024;  // As kernels/sample.cc: 1/32 of a unit of (largest - logit) / temperature each.
constexpr int kDigits = 256;    // Of a radix of 8 bits,
constexpr int kPasses = 4;      // in a key of 32.

using Bucket = unsigned long long;  // What CUDA adds atomically in 64 bits.

struct Found {
  double value = 0.0;
  int32_t id = -1;  // -1: nothing.
};

// What a block shares.
struct Shared {
  double* values;     // [kBlockWarps]
  int32_t* ids;       // [kBlockWarps]
  float* terms;       // [kThreads]
  Bucket* buckets;    // [kBuckets]
  int32_t* digits;    // [kPasses, kDigits]
  double* sum;        // Of a walk so far.
  int32_t* crossing;  // Bucket in which it crosses.
  int32_t* stop;      // Place in the list at which it ends; -1: not yet.
  int32_t* count;     // Of the list.

  __host__ __device__ explicit Shared(SharedArrays& arrays)
      : values(arrays.Take<double>(kBlockWarps)),
        ids(arrays.Take<int32_t>(kBlockWarps)),
        terms(arrays.Take<float>(kThreads)),
        buckets(arrays.Take<Bucket>(kBuckets)),
        digits(arrays.Take<int32_t>(kPasses * kDigits)),
        sum(arrays.Take<double>(1)),
        crossing(arrays.Take<int32_t>(1)),
        stop(arrays.Take<int32_t>(1)),
        count(arrays.Take<int32_t>(1)) {}
};

__device__ __forceinline__ bool IsBetter(const Found& a, const Found& b) {
  if (a.id < 0 || b.id < 0) return a.id >= 0 && b.id < 0;
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The best of the block's, to all.
__device__ Found BlockBest(Found own, const Shared& shared) {
  for (int away = kWarpLanes / 2; away > 0; away /= 2) {
    const Found other{FromLaneXor(own.value, away), FromLaneXor(own.id, away)};
    if (IsBetter(other, own)) own = other;
  }
  if (Lane() == 0) {
    shared.values[Warp()] = own.value;
    shared.ids[Warp()] = own.id;
  }
  SyncBlock();
  Found best;
  for (int w = 0; w < kBlockWarps; ++w) {
    const Found other{shared.values[w], shared.ids[w]};
    if (IsBetter(other, best)) best = other;
  }
  SyncBlock();  // Before somebody finds something else.
  return best;
}

// NaN and -infinity are never chosen.
__device__ Found Largest(const float* x, const int64_t n, const Shared& shared) {
  Found own;
  for (int64_t i = Thread(); i < n; i += kThreads) {
    const Found other{x[i], x[i] > -kInfinity ? static_cast<int32_t>(i) : -1};
    if (IsBetter(other, own)) own = other;
  }
  return BlockBest(own, shared);
}

__device__ __forceinline__ float Flushed(const float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7f800000U) == 0 ? 0.0F : x;
}

// Ascends as logits descend; equal for equal logits.
__device__ __forceinline__ uint32_t KeyOf(const float logit) {
  const auto bits = std::bit_cast<uint32_t>(Flushed(logit));
  return (bits & 0x80000000U) != 0 ? bits : ~(bits | 0x80000000U);
}

// exp((x - largest) / temperature); of NaN, nothing.
__device__ __forceinline__ float TermOf(const float x, const float largest, const float temperature) {
  const float scaled = Flushed(Flushed(x) - Flushed(largest)) / temperature;
  return scaled < kInfinity ? Exp(scaled) : 0.0F;
}

// Sum of term(i) over [0, n). Afterwards nobody may write `partials` before the block has waited.
template <typename Term>
__device__ double SumOfTerms(const Term& term, const int64_t n, float* partials) {
  constexpr int kLanes = 16;
  const int64_t blocks = CeilDiv(n, kExpSumBlock);
  for (int64_t pair = Warp(); 2 * pair < blocks; pair += kBlockWarps) {
    const int64_t block = 2 * pair + Lane() / kLanes;
    const int64_t end = (block + 1) * kExpSumBlock < n ? (block + 1) * kExpSumBlock : n;
    float own = 0.0F;
    for (int64_t i = block * kExpSumBlock + Lane() % kLanes; i < end; i += kLanes) own += term(i);
    const float sum = GroupSum<kLanes>(own);
    if (block < blocks && Lane() % kLanes == 0) partials[block] = sum;
  }
  SyncBlock();
  double total = 0.0;
  for (int64_t block = 0; block < blocks; ++block) total += partials[block];
  return total;
}

// --- The list: tokens of a row, as keys of 64 bits that ascend in the order of the sort ---

__device__ __forceinline__ int32_t TokenAt(const uint64_t* list, const int64_t i) {
  return static_cast<int32_t>(static_cast<uint32_t>(list[i]));
}

// Takes all of [0, n) that `wants`, in order. Gives their count.
template <typename Wants>
__device__ int32_t SortedList(const float* x, const int64_t n, const Wants& wants, uint64_t* list,
                              const Shared& shared) {
  if (Thread() == 0) *shared.count = 0;
  SyncBlock();
  for (int64_t i = Thread(); i < n; i += kThreads) {
    if (!wants(x[i])) continue;
    list[AddShared(shared.count, 1)] = static_cast<uint64_t>(KeyOf(x[i])) << 32 | static_cast<uint32_t>(i);
  }
  SyncBlock();
  const int32_t count = *shared.count;
  int64_t padded = 1;
  while (padded < count) padded *= 2;
  for (int64_t i = count + Thread(); i < padded; i += kThreads) list[i] = ~uint64_t{0};
  // Bitonic: `run` sorted upwards and downwards in turn becomes 2 * run.
  for (int64_t run = 1; run < padded; run *= 2) {
    for (int64_t half = run; half > 0; half /= 2) {
      SyncBlock();  // For what the last turn moved.
      for (int64_t i = Thread(); i < padded / 2; i += kThreads) {
        const int64_t low = i / half * 2 * half + i % half;
        const bool up = (low & 2 * run) == 0;
        const uint64_t a = list[low];
        const uint64_t b = list[low + half];
        if ((a > b) != up) continue;
        list[low] = b;
        list[low + half] = a;
      }
    }
  }
  SyncBlock();
  return count;
}

// For TopList, before the block's next wait.
__device__ __forceinline__ void ClearDigits(const Shared& shared) {
  for (int d = Thread(); d < kPasses * kDigits; d += kThreads) shared.digits[d] = 0;
}

// The k best, best first, in the list; gives how many there are, at most k. Once a kernel.
__device__ int32_t TopList(const float* x, const int64_t n, const int32_t k, uint64_t* list, const Shared& shared) {
  // Digit by digit, the k-th key; all ones where there are fewer.
  uint32_t key = 0;
  uint32_t known = 0;
  int32_t left = k;
  for (int pass = 0; pass < kPasses; ++pass) {
    int32_t* digits = shared.digits + pass * kDigits;
    const int shift = 8 * (kPasses - 1 - pass);
    for (int64_t i = Thread(); i < n; i += kThreads) {
      if (!(x[i] > -kInfinity) || ((KeyOf(x[i]) ^ key) & known) != 0) continue;
      AddShared(&digits[KeyOf(x[i]) >> shift & (kDigits - 1)], 1);
    }
    SyncBlock();
    uint32_t digit = 0;
    while (digit < kDigits - 1 && left > digits[digit]) left -= digits[digit++];
    key |= digit << shift;
    known |= uint32_t{kDigits - 1} << shift;
  }
  const int32_t count = SortedList(
      x, n, [key](const float logit) { return logit > -kInfinity && KeyOf(logit) <= key; }, list, shared);
  return count < k ? count : k;
}

// --- What is kept ---

// Logits above `logit`, and those equal to it up to `last_id`. As it begins: all but -infinity.
struct Cutoff {
  float logit = -kInfinity;
  int32_t last_id = -1;
};

__device__ Cutoff CutoffAt(const DeviceRowChoice& choice, const int64_t place) {
  const int32_t id = TokenAt(choice.list, place);
  return {Flushed(choice.row[id]), id};
}

// The shortest beginning of the list with which `sum` reaches `wanted`; the whole list where it never does.
__device__ Cutoff Walk(const DeviceRowChoice& choice, const int32_t count, double sum, const double wanted,
                       const float largest, const Shared& shared) {
  int32_t stop = -1;
  for (int32_t first = 0; stop < 0 && first < count; first += kThreads) {
    const int32_t own = first + Thread();
    if (own < count) {
      shared.terms[Thread()] = TermOf(choice.row[TokenAt(choice.list, own)], largest, choice.settings.temperature);
    }
    SyncBlock();
    if (Thread() == 0) {
      *shared.stop = -1;
      for (int32_t i = first; i < count && i < first + kThreads && *shared.stop < 0; ++i) {
        if (i + 1 == count || !((sum += shared.terms[i - first]) < wanted)) *shared.stop = i;
      }
    }
    SyncBlock();
    stop = *shared.stop;
  }
  return CutoffAt(choice, stop);
}

// Least exponent of a term of a bucket, with one to spare: all bits of all its terms lie in [2^(that - 23), ...).
__device__ __forceinline__ int ExponentOf(const int bucket) {
  return static_cast<int>(-(bucket + 1) * (1.4426950408889634 / 32.0)) - 2;
}
__device__ __forceinline__ double PowerOfTwo(const int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

__device__ Cutoff TopPOfAll(const DeviceRowChoice& choice, const int64_t n, const float largest, const Shared& shared) {
  const float temperature = choice.settings.temperature;
  const auto term = [&](const int64_t i) { return TermOf(choice.row[i], largest, temperature); };
  const double per_logit = 32.0 / temperature;
  const double least = Flushed(largest);
  const auto bucket_of = [=](const float logit) {
    const double depth = (least - Flushed(logit)) * per_logit;
    return depth < kBuckets - 1 ? static_cast<int>(depth) : kBuckets - 1;
  };
  for (int b = Thread(); b < kBuckets; b += kThreads) shared.buckets[b] = 0;
  const double total = SumOfTerms(term, n, choice.partials);  // And the buckets are empty.
  const double wanted = total * (choice.settings.top_p > 0.0F ? choice.settings.top_p : 0.0F);
  for (int64_t i = Thread(); i < n; i += kThreads) {
    // The last bucket's sum is never needed: nothing comes behind it.
    const int bucket = choice.row[i] > -kInfinity ? bucket_of(choice.row[i]) : kBuckets - 1;
    if (bucket == kBuckets - 1) continue;
    AddShared(&shared.buckets[bucket], static_cast<Bucket>(term(i) * PowerOfTwo(23 - ExponentOf(bucket))));
  }
  SyncBlock();
  if (Thread() == 0) {
    double sum = 0.0;
    int crossing = 0;
    while (crossing + 1 < kBuckets) {
      const double next = sum + static_cast<double>(shared.buckets[crossing]) * PowerOfTwo(ExponentOf(crossing) - 23);
      if (!(next < wanted)) break;
      sum = next;
      ++crossing;
    }
    *shared.sum = sum;
    *shared.crossing = crossing;
  }
  SyncBlock();
  const int crossing = *shared.crossing;
  const int32_t count = SortedList(
      choice.row, n, [=](const float logit) { return logit > -kInfinity && bucket_of(logit) == crossing; }, choice.list,
      shared);
  if (count == 0) return {};  // The sum never reaches what is wanted: keep all.
  return Walk(choice, count, *shared.sum, wanted, largest, shared);
}

__device__ Cutoff CutoffOf(const DeviceRowChoice& choice, const int64_t n, const float largest, const Shared& shared) {
  const SampleSettings& settings = choice.settings;
  const bool top_p = settings.top_p < 1.0F;
  if (settings.top_k <= 0 || settings.top_k >= n) {
    return top_p ? TopPOfAll(choice, n, largest, shared) : Cutoff{};
  }
  const int32_t count = TopList(choice.row, n, settings.top_k, choice.list, shared);
  if (!top_p) return CutoffAt(choice, count - 1);
  const double total = SumOfTerms(
      [&](const int64_t i) { return TermOf(choice.row[TokenAt(choice.list, i)], largest, settings.temperature); },
      count, choice.partials);
  return Walk(choice, count, 0.0, total * (settings.top_p > 0.0F ? settings.top_p : 0.0F), largest, shared);
}

// --- The kernels ---

// Does `change` to each of a list of tokens, which the next one finds done.
template <typename Change>
__device__ void ForEachOf(const int32_t count, const Change& change) {
  if (count == 0) return;
  for (int32_t i = Thread(); i < count; i += kThreads) change(i);
  SyncBlock();
}

__device__ void Adjust(const DeviceRowChoice& choice, const int64_t n) {
  float* row = choice.row;
  ForEachOf(choice.penalised_count, [&](const int32_t i) {
    const PenalisedToken& of = choice.penalised[i];
    float& logit = row[of.token];
    logit = logit > 0.0F ? logit / choice.repetition : logit * choice.repetition;
    if (of.in_output == 0) return;
    logit -= choice.frequency * static_cast<float>(of.in_output);
    logit -= choice.presence;
  });
  ForEachOf(choice.biased_count, [&](const int32_t i) { row[choice.biased[i].token] += choice.biased[i].bias; });
  if (choice.allowed_count > 0) {
    ForEachOf(choice.allowed_count, [&](const int32_t i) { row[n + i] = row[choice.allowed[i]]; });
    ForEachOf(static_cast<int32_t>(n), [&](const int32_t i) { row[i] = -kInfinity; });
    ForEachOf(choice.allowed_count, [&](const int32_t i) { row[choice.allowed[i]] = row[n + i]; });
  }
  ForEachOf(choice.masked_count, [&](const int32_t i) { row[choice.masked[i]] = -kInfinity; });
}

// The largest (logit - largest) / temperature + noise among what is kept.
__device__ int32_t Draw(const DeviceRowChoice& choice, const int64_t n, const Found& top, const Cutoff& cutoff,
                        const Shared& shared) {
  const double largest = Flushed(static_cast<float>(top.value));
  const double temperature = choice.settings.temperature;
  const float min_p = Flushed(choice.settings.min_p);
  const double least = min_p > 0.0F ? NaturalLog(min_p < 1.0F ? min_p : 1.0F) : -__builtin_huge_val();
  const auto keeps = [&](const float logit, const int64_t id) {
    return logit > cutoff.logit || (logit == cutoff.logit && id <= cutoff.last_id);
  };
  // The largest has this score, where it is kept: nobody wins with less.
  const double floor = keeps(Flushed(choice.row[top.id]), top.id)
                           ? GumbelOf(TokenNoise(choice.key, static_cast<uint32_t>(top.id / 4))[top.id % 4])
                           : -kMostGumbel;
  Found own;
  for (int64_t group = Thread(); group * 4 < n; group += kThreads) {
    PhiloxWords words{};
    bool has_words = false;
    for (int64_t id = group * 4; id < n && id < group * 4 + 4; ++id) {
      const float logit = Flushed(choice.row[id]);
      if (!keeps(logit, id)) continue;
      const double scaled = (logit - largest) / temperature;
      if (!(scaled >= least && scaled + kMostGumbel >= floor)) continue;
      if (!has_words) words = TokenNoise(choice.key, static_cast<uint32_t>(group));
      has_words = true;
      const Found found{scaled + GumbelOf(words[id % 4]), static_cast<int32_t>(id)};
      if (IsBetter(found, own)) own = found;
    }
  }
  return BlockBest(own, shared).id;
}

__global__ void __launch_bounds__(kThreads) ChooseTokens(const ChooseLaunch args) {
  SharedArrays arrays(SharedMemory());
  const Shared shared(arrays);
  const DeviceRowChoice& choice = args.choices[BlockX()];
  DeviceChosenRow& chosen = args.chosen[BlockX()];
  const int64_t n = args.usable_ids;
  ClearDigits(shared);
  Found not_finite;
  for (int64_t i = Thread(); i < n; i += kThreads) {
    const float logit = choice.logits[i];
    choice.row[i] = logit;
    if (!(logit > -kInfinity && logit < kInfinity)) not_finite = {1.0, 0};
  }
  if (BlockBest(not_finite, shared).id >= 0) {  // And the row is copied.
    if (Thread() == 0) chosen = {.finite = 0};
    return;
  }
  Adjust(choice, n);
  const Found top = Largest(choice.row, n, shared);
  int32_t token = top.id;
  if (top.id >= 0 && choice.settings.temperature >= kGreedyBelow && top.value < kInfinity) {
    token = Draw(choice, n, top, CutoffOf(choice, n, static_cast<float>(top.value), shared), shared);
  }
  if (Thread() == 0) chosen = {.token = token};
}

__global__ void __launch_bounds__(kThreads) ScoreTokens(const ChooseLaunch args) {
  SharedArrays arrays(SharedMemory());
  const Shared shared(arrays);
  const DeviceRowChoice& choice = args.choices[BlockX()];
  DeviceChosenRow& chosen = args.chosen[BlockX()];
  if (!choice.scores || chosen.finite == 0 || chosen.token < 0) return;
  const float* logits = choice.logits;
  ClearDigits(shared);
  const Found top = Largest(logits, args.cols, shared);
  const auto largest = static_cast<float>(top.value);
  float log_sum = top.id < 0 ? -kInfinity : largest;
  if (top.id >= 0 && largest < kInfinity) {
    const double sum =
        SumOfTerms([&](const int64_t i) { return TermOf(logits[i], largest, 1.0F); }, args.cols, choice.partials);
    log_sum = Flushed(static_cast<float>(Flushed(largest) + NaturalLog(sum)));
  }
  int32_t count = 0;
  if (choice.alternatives > 0) {
    count = TopList(logits, args.usable_ids, choice.alternatives, choice.list, shared);
    for (int32_t i = Thread(); i < count; i += kThreads) {
      const int32_t id = TokenAt(choice.list, i);
      choice.top[i] = {id, logits[id]};
    }
  }
  if (Thread() == 0) {
    chosen.logit = logits[chosen.token];
    chosen.log_sum = log_sum;
    chosen.top_count = count;
  }
}

}  // namespace

void ChooseRows(const ChooseLaunch& args, const Stream stream) {
  SharedArrays arrays(nullptr);
  const Shared shared(arrays);
  const LaunchShape shape{{args.count}, kThreads, arrays.bytes()};
  Launch("choose_tokens", ChooseTokens, shape, stream, args);
  if (args.scores) Launch("score_tokens", ScoreTokens, shape, stream, args);
}

}  // namespace invar::kernels::cuda
