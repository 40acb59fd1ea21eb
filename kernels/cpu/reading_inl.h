// How kernels that do little with what they read ask memory for it: line after line, in long stretches. The lines that
// a core waits for itself are too few to fill its way to memory; its own prefetcher has to ask for more, which follows
// lines in order, starts anew where a stretch begins, and is misled by prefetches from far ahead. Two threads on Zen 4
// (bench/results/2026-11-30-avx512bf16.md) read 70 GB/s where they go on for 32 MiB, 59 in stretches of 256 KiB, 50 in
// such of 64 KiB, and 47 to 57 where every line is prefetched 16 KiB ahead.

// Bytes ahead that such a kernel prefetches into the second-level cache: what a core reads in the time that memory
// takes to answer, 60 ns x 35 GB/s. Zen 4 reads as fast without; it is there for prefetchers that stop at the end of a
// page. Where weights must be widened first, the core has less time to ask itself, and such processors answer later:
// Emerald Rapids (bench/results/2026-12-01-avx512.md) multiplies 1, 2 and 4 rows at 87 to 94 % of its read rate with
// 8 KiB, at 55 to 84 % with 2.
static constexpr int64_t kReadAhead = kExpands ? 8192 : 2048;

// Lines of the next stretch that are prefetched before this one is at its end: as many as tell where to go on. With 32
// Zen 4 loses 7 % where memory comes at 61 GB/s, with none 4 %.
static constexpr int64_t kLinesOfNext = 8;
