// v16: sixteen float lanes, here as an array. Included inside one instruction set's namespace.
// Every operation is a single IEEE operation a lane under the thread's MXCSR (denormals flushed), so that the three
// builds give equal bits. Fma is one rounding: a one-lane instruction where the machine has it, else exact arithmetic
// in double rounded to odd and then to float, which rounds (and flushes) once.

#include "kernels/cpu/f16_inl.h"

struct v16 {
  float lane[16];
};

[[gnu::target("fma")]] static void FmaHardware(const float* a, const float* b, const float* c, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a[i]), _mm_set_ss(b[i]), _mm_set_ss(c[i])));
  }
}

static void FmaExact(const float* a, const float* b, const float* c, float* out) {
  for (int i = 0; i < 16; ++i) {
    const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);  // Exact: 24 + 24 bits.
    const double addend = static_cast<double>(c[i]);
    const double sum = product + addend;
    const double back = sum - product;
    const double error = (product - (sum - back)) + (addend - back);  // Exact rest of the sum.
    double odd = sum;
    uint64_t bits = __builtin_bit_cast(uint64_t, sum);
    if (error != 0.0 && (bits & 1) == 0) {
      bits += ((error > 0.0) == (sum > 0.0)) ? 1 : -1;
      odd = __builtin_bit_cast(double, bits);
    }
    out[i] = static_cast<float>(odd);
  }
}

static bool HasFma() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("fma");
}
static const bool kHardwareFma = HasFma();

static inline v16 Zero() { return v16{}; }
static inline v16 Set1(const float x) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = x;
  return r;
}
static inline v16 Load(const float* p) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
  return r;
}
static inline v16 LoadPartial(const float* p, const int64_t n) {
  v16 r{};
  for (int64_t i = 0; i < 16 && i < n; ++i) r.lane[i] = p[i];
  return r;
}
static inline void Store(float* p, const v16& a) {
  for (int i = 0; i < 16; ++i) p[i] = a.lane[i];
}
static inline void StorePartial(float* p, const v16& a, const int64_t n) {
  for (int64_t i = 0; i < 16 && i < n; ++i) p[i] = a.lane[i];
}
static inline v16 Add(const v16& a, const v16& b) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] + b.lane[i];
  return r;
}
static inline v16 Sub(const v16& a, const v16& b) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] - b.lane[i];
  return r;
}
static inline v16 Mul(const v16& a, const v16& b) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] * b.lane[i];
  return r;
}
static inline v16 Div(const v16& a, const v16& b) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] / b.lane[i];
  return r;
}
static inline v16 Fma(const v16& a, const v16& b, const v16& c) {
  v16 r;
  if (kHardwareFma) {
    FmaHardware(a.lane, b.lane, c.lane, r.lane);
  } else {
    FmaExact(a.lane, b.lane, c.lane, r.lane);
  }
  return r;
}
// The second operand where either is NaN or both are zero.
static inline v16 Max(const v16& a, const v16& b) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return r;
}
static inline v16 Min(const v16& a, const v16& b) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return r;
}
static inline v16 Sqrt(const v16& a) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a.lane[i])));
  return r;
}
static inline v16 SelectLess(const v16& x, const v16& y, const v16& yes, const v16& no) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = x.lane[i] < y.lane[i] ? yes.lane[i] : no.lane[i];
  return r;
}
// Lanes [begin, end) of a; the others are `other`.
static inline v16 KeepLanes(const v16& a, const int begin, const int end, const float other) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = i >= begin && i < end ? a.lane[i] : other;
  return r;
}
static inline uint32_t BitsOf(const float x) { return __builtin_bit_cast(uint32_t, x); }
static inline float FloatOf(const uint32_t x) { return __builtin_bit_cast(float, x); }
// 2^n, where n + 1.5 * 2^23 was computed in float, n in [-126, 127].
static inline v16 Pow2OfBiased(const v16& a) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = FloatOf((BitsOf(a.lane[i]) << 23) + 0x3f800000U);
  return r;
}
static inline uint32_t RoundedBf16Bits(const uint32_t bits) {
  if ((bits & 0x7fffffffU) > 0x7f800000U) return (bits >> 16) | 0x40U;
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}
// Rounded to the nearest even bf16, kept as float.
static inline v16 RoundBf16(const v16& a) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = FloatOf(RoundedBf16Bits(BitsOf(a.lane[i])) << 16);
  return r;
}
static inline void StoreBf16(uint16_t* p, const v16& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint16_t>(RoundedBf16Bits(BitsOf(a.lane[i])));
}
static inline v16 LoadBf16(const uint16_t* p) {
  v16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = FloatOf(static_cast<uint32_t>(p[i]) << 16);
  return r;
}
// Sixteen pairs (even, odd) of bf16, as two vectors of floats.
struct Pairs {
  v16 even;
  v16 odd;
};
static inline Pairs LoadPairs(const uint16_t* p) {
  Pairs r;
  for (int i = 0; i < 16; ++i) {
    r.even.lane[i] = FloatOf(static_cast<uint32_t>(p[2 * i]) << 16);
    r.odd.lane[i] = FloatOf(static_cast<uint32_t>(p[2 * i + 1]) << 16);
  }
  return r;
}
// Sixteen f16 as floats.
static inline v16 LoadF16(const std::byte* p) {
  v16 r;
  WidenF16s(p, r.lane);
  return r;
}
// Sum by halves: lanes i and i + 8, then + 4, + 2, + 1.
static inline float SumLanes(const v16& a) {
  float x[16];
  Store(x, a);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] = x[i] + x[i + width];
  }
  return x[0];
}
static inline float MaxLanes(const v16& a) {
  float x = a.lane[0];
  for (int i = 1; i < 16; ++i) x = x > a.lane[i] ? x : a.lane[i];
  return x;
}
static inline void PrefetchNear(const void*) {}
static inline void PrefetchFar(const void*) {}

// Largest tiles of the product kernel: rows, and column groups of 16 for each number of rows.
static constexpr int kMaxTileRows = 4;
static constexpr int kMaxWideningRows = 4;
static constexpr int kTileGroups[kMaxTileRows + 1] = {0, 1, 1, 1, 1};
// Column groups of the state that one sweep of the gated delta rule takes: two sums and a difference each.
static constexpr int kDeltaGroups = 1;

// Column groups widened at once, and memory for them (matmul_inl.h).
static constexpr int kWidenGroups = 1;
static constexpr int64_t kStripeBytes = 16384;
// Whether the weights of all groups fit beside the accumulators, so that one broadcast serves every group.
static constexpr bool kKeepsWeights = false;

// Words of noise: one lane, as eight_lanes_inl.h defines them.
using Words = uint64_t;
static constexpr int kWordLanes = 1;
static inline Words SetWords(const uint32_t x) { return x; }
static inline Words WordsFrom(const uint32_t x) { return x; }
static inline Words XorWords(const Words a, const Words b) { return a ^ b; }
static inline Words MulWords(const Words a, const Words b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) * static_cast<uint32_t>(b);
}
static inline Words HighHalves(const Words a) { return a >> 32; }
static inline uint32_t WordsAtLeast(const Words a, const Words least) {
  return static_cast<uint32_t>(a) >= static_cast<uint32_t>(least) ? 1 : 0;
}
static inline void StoreWords(uint64_t* p, const Words a) { *p = a; }
