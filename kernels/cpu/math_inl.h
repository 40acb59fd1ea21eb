// Elementary functions over v16, the same polynomial everywhere: results do not depend on a C library.

static inline int64_t Least(const int64_t a, const int64_t b) { return a < b ? a : b; }
static inline int64_t Most(const int64_t a, const int64_t b) { return a > b ? a : b; }
static inline int64_t RoundUp(const int64_t a, const int64_t to) { return (a + to - 1) / to * to; }

// e^x: 2^n times a polynomial of degree 7 in |r| <= ln(2) / 2. 0 below -87.3; at most e^88.3, so never infinite.
static inline v16 Exp(const v16 x) {
  const v16 magic = Set1(12582912.0F);  // 1.5 * 2^23: adding it rounds to a whole number.
  const v16 y = Max(Set1(-87.3F), Min(Set1(88.3F), x));
  const v16 biased = Fma(y, Set1(1.44269504F), magic);
  const v16 n = Sub(biased, magic);
  v16 r = Fma(n, Set1(-0.693359375F), y);
  r = Fma(n, Set1(2.12194440e-4F), r);
  v16 p = Set1(1.0F / 5040.0F);
  p = Fma(p, r, Set1(1.0F / 720.0F));
  p = Fma(p, r, Set1(1.0F / 120.0F));
  p = Fma(p, r, Set1(1.0F / 24.0F));
  p = Fma(p, r, Set1(1.0F / 6.0F));
  p = Fma(p, r, Set1(0.5F));
  p = Fma(p, r, Set1(1.0F));
  p = Fma(p, r, Set1(1.0F));
  return SelectLess(x, Set1(-87.3F), Zero(), Mul(p, Pow2OfBiased(biased)));
}

static inline v16 InverseSqrt(const v16 x) { return Div(Set1(1.0F), Sqrt(x)); }
static inline v16 Sigmoid(const v16 x) { return Div(Set1(1.0F), Add(Set1(1.0F), Exp(Sub(Zero(), x)))); }
static inline v16 Silu(const v16 x) { return Mul(x, Sigmoid(x)); }

// log(1 + y), 0 <= y <= 1: 2 atanh(s), s = y / (2 + y) <= 1/3.
static inline v16 Log1p(const v16 y) {
  const v16 s = Div(y, Add(Set1(2.0F), y));
  const v16 z = Mul(s, s);
  v16 p = Set1(1.0F / 17.0F);
  p = Fma(p, z, Set1(1.0F / 15.0F));
  p = Fma(p, z, Set1(1.0F / 13.0F));
  p = Fma(p, z, Set1(1.0F / 11.0F));
  p = Fma(p, z, Set1(1.0F / 9.0F));
  p = Fma(p, z, Set1(1.0F / 7.0F));
  p = Fma(p, z, Set1(1.0F / 5.0F));
  p = Fma(p, z, Set1(1.0F / 3.0F));
  p = Fma(p, z, Set1(1.0F));
  return Mul(Add(s, s), p);
}

static inline v16 Softplus(const v16 x) {
  const v16 magnitude = Max(x, Sub(Zero(), x));
  return Add(Max(x, Zero()), Log1p(Exp(Sub(Zero(), magnitude))));
}

static inline float ExpOne(const float x) {
  float lanes[16];
  Store(lanes, Exp(Set1(x)));
  return lanes[0];
}
static inline float SigmoidOne(const float x) {
  float lanes[16];
  Store(lanes, Sigmoid(Set1(x)));
  return lanes[0];
}
static inline float InverseSqrtOne(const float x) {
  float lanes[16];
  Store(lanes, InverseSqrt(Set1(x)));
  return lanes[0];
}

// Stores lanes [0, n) as f32 or rounded to bf16 at element `index` of `out`.
static inline void StoreAs(void* out, const int64_t index, const bool bf16, const v16 y, const int64_t n) {
  if (!bf16) {
    float* to = static_cast<float*>(out) + index;
    if (n >= 16) {
      Store(to, y);
    } else {
      StorePartial(to, y, n);
    }
    return;
  }
  uint16_t* to = static_cast<uint16_t*>(out) + index;
  if (n >= 16) {
    StoreBf16(to, y);
    return;
  }
  uint16_t lanes[16];
  StoreBf16(lanes, y);
  for (int64_t i = 0; i < n; ++i) to[i] = lanes[i];
}

static inline v16 LoadUpTo(const float* p, const int64_t n) { return n >= 16 ? Load(p) : LoadPartial(p, n); }

// Sum of products: lane i % 16 takes elements i ascending, then the lanes are summed by halves.
static inline float DotLanes(const float* x, const float* y, const int64_t n) {
  v16 sum = Zero();
  for (int64_t i = 0; i < n; i += 16) sum = Fma(LoadUpTo(x + i, n - i), LoadUpTo(y + i, n - i), sum);
  return SumLanes(sum);
}
