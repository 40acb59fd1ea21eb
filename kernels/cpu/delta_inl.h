// Gated delta rule, one token after another, for some columns of one head's state. With g the decay and b the beta:
//   u = k . S,  w = q . S  (state before the token);  d = b (v - g u);  o = g w + (q . k) d;  S = g S + k d
// q, k [rows, dim_k] f32, l2-normalised    v, o strided    S [dim_k, columns] f32, read and written in place
// Order: sums run over dim_k ascending, one fma each. The update of token t and the two sums of token t + 1 share one
// sweep: the same operations in the same order as token by token, so cuts change no bits.
// The work of few tokens takes no longer than the state's way from memory: the columns that come next are on it
// meanwhile.

// Tokens are independent here: step by step for several of them, so that one's sum does not wait for another's root.
static void DeltaPrepareHead(const DeltaPrepare& p) {
  const v16 by_dim = Set1(InverseSqrtOne(static_cast<float>(p.dim_k)));
  const v16 least = Set1(1e-6F);
  for (int64_t first = 0; first < p.rows; first += 16) {
    const int64_t n = Least(16, p.rows - first);
    const float* const q = p.q + first * p.stride;
    const float* const k = p.k + first * p.stride;
    float q_scales[16] = {};
    float k_scales[16] = {};
    for (int64_t t = 0; t < n; ++t) {
      q_scales[t] = DotLanes(q + t * p.stride, q + t * p.stride, p.dim_k);
      k_scales[t] = DotLanes(k + t * p.stride, k + t * p.stride, p.dim_k);
    }
    Store(q_scales, InverseSqrt(Add(Load(q_scales), least)));
    Store(k_scales, InverseSqrt(Add(Load(k_scales), least)));
    for (int64_t t = 0; t < n; ++t) {
      float* const q_out = p.q_out + (first + t) * p.dim_k;
      float* const k_out = p.k_out + (first + t) * p.dim_k;
      v16 sum = Zero();
      for (int64_t i = 0; i < p.dim_k; i += 16) {
        const int64_t lanes = p.dim_k - i;
        const v16 q_unit = Mul(Mul(LoadUpTo(q + t * p.stride + i, lanes), Set1(q_scales[t])), by_dim);
        const v16 k_unit = Mul(LoadUpTo(k + t * p.stride + i, lanes), Set1(k_scales[t]));
        StoreAs(q_out + i, 0, false, q_unit, lanes);
        StoreAs(k_out + i, 0, false, k_unit, lanes);
        sum = Fma(q_unit, k_unit, sum);
      }
      p.qk[first + t] = SumLanes(sum);
    }
  }
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

// Brings the columns that come next closer, some lines before every kStretch rows of every sweep: all at once would
// stall, and counting at every row would take from the sweep.
template <int G>
struct ComingColumns {
  static constexpr int64_t kStretch = 16;

  ComingColumns(const DeltaColumns& p)
      : row(p.ahead),
        stride(p.state_stride),
        left(p.dim_k * G),
        lines(left / ((p.rows + 1) * ((p.dim_k + kStretch - 1) / kStretch)) + 1) {}

  void BringSome() {
    const int64_t some = Least(lines, left);
    left -= some;
    for (int64_t i = 0; i < some; ++i) {
      PrefetchFar(row + group * 16);
      if (++group == G) {
        group = 0;
        row += stride;
      }
    }
  }

  const float* row;
  const int64_t stride;
  int64_t left;
  const int64_t lines;  // A stretch.
  int group = 0;
};

// G groups of 16 columns, all whole, or the last of `last` columns.
template <int G, bool kWhole>
struct EdgeOf {
  v16 LoadGroup(const float* row, const int g) const {
    return kWhole || g < G - 1 ? Load(row + g * 16) : LoadPartial(row + g * 16, last);
  }
  void StoreGroup(float* row, const int g, const v16 y) const {
    kWhole || g < G - 1 ? Store(row + g * 16, y) : StorePartial(row + g * 16, y, last);
  }

  const int64_t last;
};

// Several tokens of one head. `p` by value: what is stored cannot change it, so
// its members stay in registers.
template <int G, bool kWhole>
static inline void DeltaGroups(const DeltaColumns p, const int64_t last) {
  const EdgeOf<G, kWhole> edge{last};
  v16 u[G];
  v16 w[G];
  v16 d[G];
  ComingColumns<G> coming(p);
  // Calls step(i, row i of the columns in scratch).
  const auto sweep = [&](const auto& step) {
    for (int64_t begin = 0; begin < p.dim_k; begin += coming.kStretch) {
      coming.BringSome();
      const int64_t end = Least(begin + coming.kStretch, p.dim_k);
      for (int64_t i = begin; i < end; ++i) step(i, p.scratch + i * G * 16);
    }
  };
  for (int g = 0; g < G; ++g) u[g] = w[g] = Zero();
  sweep([&](const int64_t i, float* columns) {
    const v16 k = Set1(p.k[i]);
    const v16 q = Set1(p.q[i]);
    for (int g = 0; g < G; ++g) {
      const v16 s = edge.LoadGroup(p.state + i * p.state_stride, g);
      Store(columns + g * 16, s);
      u[g] = Fma(k, s, u[g]);
      w[g] = Fma(q, s, w[g]);
    }
  });
  for (int64_t t = 0; t < p.rows; ++t) {
    const v16 decay = Set1(p.decay[t]);
    for (int g = 0; g < G; ++g) {
      d[g] = Mul(Set1(p.beta[t]), Sub(edge.LoadGroup(p.v + t * p.v_stride, g), Mul(decay, u[g])));
      edge.StoreGroup(p.out + t * p.out_stride, g, Fma(Set1(p.qk[t]), d[g], Mul(decay, w[g])));
      u[g] = w[g] = Zero();
    }
    const float* k = p.k + t * p.dim_k;
    if (t + 1 == p.rows) {
      sweep([&](const int64_t i, const float* columns) {
        const v16 key = Set1(k[i]);
        for (int g = 0; g < G; ++g) {
          edge.StoreGroup(p.state + i * p.state_stride, g, Fma(key, d[g], Mul(decay, Load(columns + g * 16))));
        }
      });
      break;
    }
    const float* next_k = k + p.dim_k;
    const float* next_q = p.q + (t + 1) * p.dim_k;
    for (int g = 0; g < G; ++g) {
      const int64_t soon = t + 2 < p.rows ? t + 2 : t;
      PrefetchNear(p.v + soon * p.v_stride + g * 16);
      PrefetchNear(p.out + soon * p.out_stride + g * 16);
    }
    sweep([&](const int64_t i, float* columns) {
      const v16 key = Set1(k[i]);
      const v16 coming_k = Set1(next_k[i]);
      const v16 coming_q = Set1(next_q[i]);
      for (int g = 0; g < G; ++g) {
        const v16 s = Fma(key, d[g], Mul(decay, Load(columns + g * 16)));
        Store(columns + g * 16, s);
        u[g] = Fma(coming_k, s, u[g]);
        w[g] = Fma(coming_q, s, w[g]);
      }
    });
  }
}

// One token of several heads, whose states have the same shape: while that of one head is written, the next one's sums
// are made, so that memory brings states without a pause. Whole rows, in the order that processors read ahead.
template <int G, bool kWhole>
[[gnu::noinline]] static void DeltaHeads(const DeltaColumns* heads, const int64_t count, const int64_t last) {
  const EdgeOf<G, kWhole> edge{last};
  v16 u[G];
  v16 w[G];
  v16 d[G];
  const auto add = [&](const DeltaColumns& p, const float* row, const int64_t i) {
    const v16 k = Set1(p.k[i]);
    const v16 q = Set1(p.q[i]);
    for (int g = 0; g < G; ++g) {
      const v16 s = edge.LoadGroup(row, g);
      u[g] = Fma(k, s, u[g]);
      w[g] = Fma(q, s, w[g]);
    }
  };
  const auto update = [&](const v16 key, const v16 decay, float* row) {
    for (int g = 0; g < G; ++g) edge.StoreGroup(row, g, Fma(key, d[g], Mul(decay, edge.LoadGroup(row, g))));
  };
  for (int g = 0; g < G; ++g) u[g] = w[g] = Zero();
  for (int64_t i = 0; i < heads[0].dim_k; ++i) add(heads[0], heads[0].state + i * heads[0].state_stride, i);
  for (int64_t n = 0; n < count; ++n) {
    const DeltaColumns p = heads[n];
    const v16 decay = Set1(*p.decay);
    for (int g = 0; g < G; ++g) {
      d[g] = Mul(Set1(*p.beta), Sub(edge.LoadGroup(p.v, g), Mul(decay, u[g])));
      edge.StoreGroup(p.out, g, Fma(Set1(*p.qk), d[g], Mul(decay, w[g])));
      u[g] = w[g] = Zero();
    }
    if (n + 1 == count) {
      for (int64_t i = 0; i < p.dim_k; ++i) update(Set1(p.k[i]), decay, p.state + i * p.state_stride);
      return;
    }
    const DeltaColumns next = heads[n + 1];
    for (int64_t i = 0; i < p.dim_k; ++i) {
      add(next, next.state + i * next.state_stride, i);
      update(Set1(p.k[i]), decay, p.state + i * p.state_stride);
    }
  }
}

static void Delta(const DeltaColumns& p) {
  WithConstant<kDeltaGroups>((p.columns + 15) / 16, [&](auto groups) {
    constexpr int G = decltype(groups)::value;
    if (p.columns == G * 16) {
      DeltaGroups<G, true>(p, 16);
    } else {
      DeltaGroups<G, false>(p, p.columns - (G - 1) * 16);
    }
  });
}

static void DeltaTokens(const DeltaColumns* heads, const int64_t count) {
  const int64_t columns = heads[0].columns;
  WithConstant<kMaxTokenColumns / 16>((columns + 15) / 16, [&](auto groups) {
    constexpr int G = decltype(groups)::value;
    if (columns == G * 16) {
      DeltaHeads<G, true>(heads, count, 16);
    } else {
      DeltaHeads<G, false>(heads, count, columns - (G - 1) * 16);
    }
  });
}
