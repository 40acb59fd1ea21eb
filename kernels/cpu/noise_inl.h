// Words of noise of many tokens, and those of them that matter. Integers alone: the bits are Philox's (base/noise.h),
// which the files of one instruction set do not call (kernel_table.h).

struct RoundKeys {
  Words low[kPhiloxRounds];
  Words high[kPhiloxRounds];
};
static inline RoundKeys RoundKeysOf(const uint64_t seed) {
  RoundKeys keys;
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.low[round] = SetWords(static_cast<uint32_t>(seed) + round * kPhiloxStep0);
    keys.high[round] = SetWords(static_cast<uint32_t>(seed >> 32) + round * kPhiloxStep1);
  }
  return keys;
}

// c: words 0 to 3 of kWordLanes groups, the first of them `group`.
static inline void NoiseOf(const NoiseSift& sift, const RoundKeys& keys, const uint32_t group, Words c[4]) {
  c[0] = WordsFrom(group);
  c[1] = SetWords(sift.output_index);
  c[2] = SetWords(sift.position);
  c[3] = SetWords(0);
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Words first = MulWords(SetWords(kPhiloxMultiplier0), c[0]);
    const Words second = MulWords(SetWords(kPhiloxMultiplier2), c[2]);
    c[0] = XorWords(XorWords(HighHalves(second), c[1]), keys.low[round]);
    c[1] = second;
    c[2] = XorWords(XorWords(HighHalves(first), c[3]), keys.high[round]);
    c[3] = first;
  }
}

// As KernelTable::sift_noise.
static int64_t SiftNoise(const NoiseSift& sift, NoisyToken* out) {
  const RoundKeys keys = RoundKeysOf(sift.seed);
  const Words least = SetWords(sift.least_word);
  int64_t count = 0;
  for (int64_t i = 0; i < sift.n; i += 16) {
    // NaN counts as least, and so does nothing; lanes behind the end count as zeros, and are told apart below.
    const v16 logits = Max(LoadUpTo(sift.x + i, sift.n - i), Set1(-__builtin_inff()));
    if (!(MaxLanes(logits) >= sift.least_logit)) continue;
    for (int64_t from = i; from < i + 16; from += 4 * kWordLanes) {
      Words words[4];
      NoiseOf(sift, keys, static_cast<uint32_t>(sift.first + from) / 4, words);
      for (int w = 0; w < 4; ++w) {
        uint32_t lanes = WordsAtLeast(words[w], least);
        if (lanes == 0) continue;
        uint64_t stored[kWordLanes];
        StoreWords(stored, words[w]);
        for (; lanes != 0; lanes &= lanes - 1) {
          const int lane = __builtin_ctz(lanes);
          const int64_t id = from + 4 * lane + w;
          if (id >= sift.n || !(sift.x[id] >= sift.least_logit)) continue;
          out[count++] = {static_cast<int32_t>(sift.first + id), static_cast<uint32_t>(stored[lane])};
        }
      }
    }
  }
  return count;
}
