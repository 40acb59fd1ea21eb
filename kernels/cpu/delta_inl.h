// Gated delta rule, one token after another, for some columns of one head's state. With g the decay and b the beta:
//   u = k . S,  w = q . S  (state before the token);  d = b (v - g u);  o = g w + (q . k) d;  S = g S + k d
// q, k [rows, dim_k] f32, l2-normalised    v, o strided    S [dim_k, columns] f32, read and written in place
// Order: sums run over dim_k ascending, one fma each. The update of token t and the two sums of token t + 1 share one
// sweep: the same operations in the same order as token by token, so cuts change no bits.
// The work of few tokens takes no longer than the state's way from memory: the columns that come next are on it
// meanwhile.

static void DeltaPrepareHead(const DeltaPrepare& p) {
  const v16 q_scale = Set1(InverseSqrtOne(DotLanes(p.q, p.q, p.dim_k) + 1e-6F));
  const v16 k_scale = Set1(InverseSqrtOne(DotLanes(p.k, p.k, p.dim_k) + 1e-6F));
  const v16 by_dim = Set1(InverseSqrtOne(static_cast<float>(p.dim_k)));
  for (int64_t i = 0; i < p.dim_k; i += 16) {
    const int64_t n = p.dim_k - i;
    StoreAs(p.q_out + i, 0, false, Mul(Mul(LoadUpTo(p.q + i, n), q_scale), by_dim), n);
    StoreAs(p.k_out + i, 0, false, Mul(LoadUpTo(p.k + i, n), k_scale), n);
  }
  *p.qk = DotLanes(p.q_out, p.k_out, p.dim_k);
}

static void DeltaGates(const float* b, const float* a, const float* a_log, const float* dt_bias, const int64_t heads,
                       float* beta, float* decay) {
  for (int64_t h = 0; h < heads; h += 16) {
    const int64_t n = heads - h;
    StoreAs(beta + h, 0, false, Sigmoid(LoadUpTo(b + h, n)), n);
    const v16 rate = Exp(LoadUpTo(a_log + h, n));
    const v16 step = Softplus(Add(LoadUpTo(a + h, n), LoadUpTo(dt_bias + h, n)));
    StoreAs(decay + h, 0, false, Exp(Sub(Zero(), Mul(rate, step))), n);
  }
}

// G groups of 16 columns; the last may be partial (`last` columns).
template <int G>
static inline void DeltaGroups(const DeltaColumns& p, const int64_t last) {
  float* scratch = p.scratch;
  const auto lanes = [last](const int g) { return g == G - 1 ? last : int64_t{16}; };
  v16 u[G];
  v16 w[G];
  v16 d[G];
  // Once a row of a sweep: all sweeps together bring the coming columns closer, evenly, since a burst would stall.
  const float* ahead = p.ahead;
  const int64_t sweeps = p.rows + 1;
  int64_t due = 0;
  int at = 0;
  const auto bring_closer = [&] {
    for (due += G; due >= sweeps; due -= sweeps) {
      PrefetchFar(ahead + at * 16);
      if (++at == G) {
        at = 0;
        ahead += p.state_stride;
      }
    }
  };
  for (int g = 0; g < G; ++g) u[g] = w[g] = Zero();
  for (int64_t i = 0; i < p.dim_k; ++i) {
    const v16 k = Set1(p.k[i]);
    const v16 q = Set1(p.q[i]);
    const float* row = p.state + i * p.state_stride;
    bring_closer();
    for (int g = 0; g < G; ++g) {
      const v16 s = LoadUpTo(row + g * 16, lanes(g));
      Store(scratch + (i * G + g) * 16, s);
      u[g] = Fma(k, s, u[g]);
      w[g] = Fma(q, s, w[g]);
    }
  }
  for (int64_t t = 0; t < p.rows; ++t) {
    const v16 decay = Set1(p.decay[t]);
    for (int g = 0; g < G; ++g) {
      const v16 v = LoadUpTo(p.v + t * p.v_stride + g * 16, lanes(g));
      d[g] = Mul(Set1(p.beta[t]), Sub(v, Mul(decay, u[g])));
      const v16 out = Fma(Set1(p.qk[t]), d[g], Mul(decay, w[g]));
      StoreAs(p.out + t * p.out_stride + g * 16, 0, false, out, lanes(g));
      u[g] = w[g] = Zero();
    }
    const float* k = p.k + t * p.dim_k;
    if (t + 1 == p.rows) {
      for (int64_t i = 0; i < p.dim_k; ++i) {
        const v16 key = Set1(k[i]);
        bring_closer();
        for (int g = 0; g < G; ++g) {
          const v16 s = Fma(key, d[g], Mul(decay, Load(scratch + (i * G + g) * 16)));
          StoreAs(p.state + i * p.state_stride + g * 16, 0, false, s, lanes(g));
        }
      }
      break;
    }
    const float* next_k = k + p.dim_k;
    const float* next_q = p.q + (t + 1) * p.dim_k;
    for (int g = 0; g < G; ++g) {
      const int64_t soon = t + 2 < p.rows ? t + 2 : t;
      PrefetchNear(p.v + soon * p.v_stride + g * 16);
      PrefetchNear(p.out + soon * p.out_stride + g * 16);
    }
    for (int64_t i = 0; i < p.dim_k; ++i) {
      const v16 key = Set1(k[i]);
      const v16 coming_k = Set1(next_k[i]);
      const v16 coming_q = Set1(next_q[i]);
      bring_closer();
      for (int g = 0; g < G; ++g) {
        const v16 s = Fma(key, d[g], Mul(decay, Load(scratch + (i * G + g) * 16)));
        Store(scratch + (i * G + g) * 16, s);
        u[g] = Fma(coming_k, s, u[g]);
        w[g] = Fma(coming_q, s, w[g]);
      }
    }
  }
}

template <int G>
static inline void DeltaOneToken(const DeltaColumns& p, const int64_t last) {
  const auto lanes = [last](const int g) { return g == G - 1 ? last : int64_t{16}; };
  v16 d[G];
  v16 w[G];
  for (int g = 0; g < G; ++g) d[g] = w[g] = Zero();
  for (int64_t i = 0; i < p.dim_k; ++i) {
    const v16 k = Set1(p.k[i]);
    const v16 q = Set1(p.q[i]);
    const float* row = p.state + i * p.state_stride;
    for (int g = 0; g < G; ++g) {
      const v16 s = LoadUpTo(row + g * 16, lanes(g));
      d[g] = Fma(k, s, d[g]);
      w[g] = Fma(q, s, w[g]);
    }
  }
  const v16 decay = Set1(*p.decay);
  for (int g = 0; g < G; ++g) {
    d[g] = Mul(Set1(*p.beta), Sub(LoadUpTo(p.v + g * 16, lanes(g)), Mul(decay, d[g])));
    StoreAs(p.out + g * 16, 0, false, Fma(Set1(*p.qk), d[g], Mul(decay, w[g])), lanes(g));
  }
  for (int64_t i = 0; i < p.dim_k; ++i) {
    const v16 key = Set1(p.k[i]);
    float* row = p.state + i * p.state_stride;
    for (int g = 0; g < G; ++g) {
      const v16 s = Fma(key, d[g], Mul(decay, LoadUpTo(row + g * 16, lanes(g))));
      StoreAs(row + g * 16, 0, false, s, lanes(g));
    }
  }
}

static void Delta(const DeltaColumns& p) {
  WithConstant<kDeltaGroups>((p.columns + 15) / 16, [&](auto groups) {
    constexpr int G = decltype(groups)::value;
    DeltaGroups<G>(p, p.columns - (G - 1) * 16);
  });
}

// One token has no work to hide memory behind: whole rows of the state, in the order that processors read ahead.
static void DeltaToken(const DeltaColumns& p) {
  WithConstant<kMaxTokenColumns / 16>((p.columns + 15) / 16, [&](auto groups) {
    constexpr int G = decltype(groups)::value;
    DeltaOneToken<G>(p, p.columns - (G - 1) * 16);
  });
}
