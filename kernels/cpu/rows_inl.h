// Row-wise operations: norms, gates, softmax. Each row is a function of itself alone.
// Sums: lane i % 16 takes elements i ascending; the 16 lanes are summed by halves (SumLanes).

// out = x / sqrt(mean(x^2) + eps) * weight        x, weight [n] f32; out [n] bf16 or f32
static void RmsNorm(const float* x, const float* weight, const int64_t n, const float eps, void* out, const bool bf16) {
  const v16 scale = Set1(InverseSqrtOne(DotLanes(x, x, n) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += 16) {
    StoreAs(out, i, bf16, Mul(Mul(LoadUpTo(x + i, n - i), scale), LoadUpTo(weight + i, n - i)), n - i);
  }
}

// The same times silu(z).
static void GatedRmsNorm(const float* x, const float* z, const float* weight, const int64_t n, const float eps,
                         void* out, const bool bf16) {
  const v16 scale = Set1(InverseSqrtOne(DotLanes(x, x, n) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += 16) {
    const v16 y = Mul(Mul(LoadUpTo(x + i, n - i), scale), LoadUpTo(weight + i, n - i));
    StoreAs(out, i, bf16, Mul(y, Silu(LoadUpTo(z + i, n - i))), n - i);
  }
}

// out = silu(gate) * up
static void SwiGlu(const float* gate, const float* up, const int64_t n, void* out, const bool bf16) {
  for (int64_t i = 0; i < n; i += 16) {
    StoreAs(out, i, bf16, Mul(Silu(LoadUpTo(gate + i, n - i)), LoadUpTo(up + i, n - i)), n - i);
  }
}

// out += scale * x
static void AddScaled(const float* x, const float scale, const int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    StoreAs(out, i, false, Fma(Set1(scale), LoadUpTo(x + i, n - i), LoadUpTo(out + i, n - i)), n - i);
  }
}

static void AddSigmoidScaled(const float* x, const float gate, const int64_t n, float* out) {
  AddScaled(x, SigmoidOne(gate), n, out);
}

static void Softmax(const float* x, const int64_t n, float* out) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  v16 sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = static_cast<int>(Least(16, n - i));
    const v16 y = KeepLanes(Exp(Sub(LoadUpTo(x + i, n - i), Set1(largest))), 0, lanes, 0.0F);
    sum = Add(sum, y);
    StoreAs(out, i, false, y, n - i);
  }
  const v16 total = Set1(SumLanes(sum));
  for (int64_t i = 0; i < n; i += 16) StoreAs(out, i, false, Div(LoadUpTo(out + i, n - i), total), n - i);
}

// The largest of each block of kMaximaBlock values that is not NaN; -infinity where there is none.
static void BlockMaxima(const float* x, const int64_t n, float* maxima) {
  const v16 least = Set1(-__builtin_inff());
  for (int64_t block = 0; block < n; block += kMaximaBlock) {
    v16 largest[2] = {least, least};
    const int64_t end = Least(block + kMaximaBlock, n);
    int64_t i = block;
    for (; i + 32 <= end; i += 32) {
      largest[0] = Max(Load(x + i), largest[0]);  // The second where the first is NaN.
      largest[1] = Max(Load(x + i + 16), largest[1]);
    }
    for (; i < end; i += 16) {
      const v16 some = KeepLanes(LoadUpTo(x + i, end - i), 0, static_cast<int>(Least(16, end - i)), -__builtin_inff());
      largest[0] = Max(some, largest[0]);
    }
    maxima[block / kMaximaBlock] = MaxLanes(Max(largest[0], largest[1]));
  }
}

// Lanes of one block are summed in float, blocks in double.
static double ExpSum(const float* x, const int64_t n, const float largest, const float temperature, float* terms) {
  double total = 0.0;
  for (int64_t block = 0; block < n; block += 1024) {
    v16 sum = Zero();
    for (int64_t i = block; i < Least(block + 1024, n); i += 16) {
      const int lanes = static_cast<int>(Least(16, n - i));
      const v16 below = Sub(LoadUpTo(x + i, n - i), Set1(largest));
      const v16 scaled =
          temperature == 1.0F ? below : Div(below, Set1(temperature));  // The same, and dividing is slow.
      // Comparing with a NaN is false, so it counts as nothing.
      const v16 known = SelectLess(scaled, Set1(__builtin_inff()), scaled, Set1(-__builtin_inff()));
      const v16 y = KeepLanes(Exp(known), 0, lanes, 0.0F);
      sum = Add(sum, y);
      if (terms != nullptr) StoreAs(terms + i, 0, false, y, n - i);
    }
    total += SumLanes(sum);
  }
  return total;
}
