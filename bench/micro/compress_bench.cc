// Time of compressors on one layer: a prefill down to a share of the slots, what a round of upkeep adds while decoding,
// and how the encodings of pages are written and read. Made-up keys that resemble their neighbours; the best of several
// runs counts, since a shared machine only ever adds time.
//   build/release/bin/compress_bench [compressor ...]      default: centroid and some to compare with

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/split_mix64.h"
#include "bench/micro/best_seconds.h"
#include "cache/body_arena.h"
#include "cache/compress/chunked_matching.h"
#include "cache/compressor.h"

namespace invar::bench {
namespace {

using cache::Budget;
using cache::CompressedLayer;
using cache::Compressor;

// Rows that walk: each is 0.97 of the one before and noise.
struct Rows {
  Rows(const kernels::PageShape& layer_shape, const int64_t count) : shape(layer_shape), tokens(count) {
    SplitMix64 random(1);
    for (std::vector<float>* rows : {&keys, &values}) {
      rows->resize(shape.kv_heads * tokens * shape.head_dim);
      for (int64_t i = 0; i < static_cast<int64_t>(rows->size()); ++i) {
        const float noise = static_cast<float>(random.Next() >> 40) * 0x1p-23F - 1.0F;
        const bool is_first = i % (tokens * shape.head_dim) < shape.head_dim;
        (*rows)[i] = is_first ? noise : 0.97F * (*rows)[i - shape.head_dim] + 0.24F * noise;
      }
    }
  }
  kernels::ConstKvRows view() const {
    return {keys.data(), values.data(), tokens, tokens * shape.head_dim, shape.head_dim};
  }
  kernels::PageShape shape;
  int64_t tokens;
  std::vector<float> keys, values;
};

struct Shape {
  const char* name;
  kernels::PageShape layer;
};

void PrintPrefill(const std::string& kind, const Shape& shape, const Rows& rows, const double share) {
  const auto compressor = std::move(cache::MakeCompressor(kind).value());
  cache::BodyArena scratch;  // As the engine has it.
  const cache::CompressContext context = {.budget = Budget::Share(share), .scratch = &scratch};
  int64_t slots = 0;
  const double seconds = BestSeconds(3, [&] { slots = compressor->Prefill(rows.shape, rows.view(), context).slots(); });
  std::printf("Prefill/%s/%s/t%ld_share%g  %9.2f ms a layer  %8.1f ns a token  (%ld slots)\n", kind.c_str(), shape.name,
              rows.tokens, share, 1e3 * seconds, 1e9 * seconds / static_cast<double>(rows.tokens), slots);
}

// Decoding `rounds` times `step` tokens: what upkeep costs for each of them.
void PrintMaintain(const std::string& kind, const Shape& shape, const Rows& rows, const double share) {
  constexpr int64_t kStep = 64;
  constexpr int64_t kRounds = 16;
  const auto compressor = std::move(cache::MakeCompressor(kind).value());
  const cache::CompressContext context = {.budget = Budget::Share(share)};
  const int64_t first = rows.tokens - kStep * kRounds;
  const CompressedLayer begin = compressor->Prefill(rows.shape, rows.view().Slots(0, first), context);
  const double seconds = BestSeconds(3, [&] {
    CompressedLayer view = begin;
    for (int64_t t = first; t < rows.tokens; t += kStep) {
      view.Append(rows.view().Slots(t, kStep));
      compressor->Maintain(view, t + kStep, context);
    }
  });
  const double tokens = kStep * kRounds;
  std::printf("Maintain/%s/%s/t%ld_share%g  %9.2f us a token and layer (every %ld tokens)\n", kind.c_str(), shape.name,
              rows.tokens, share, 1e6 * seconds / tokens, kStep);
}

void PrintMatching(const Shape& shape, const Rows& rows) {
  cache::SettledSlots slots(rows.shape, 0, rows.tokens, rows.tokens);
  std::copy(rows.keys.begin(), rows.keys.end(), slots.key(0, 0));
  const double seconds = BestSeconds(5, [&] {
    for (int64_t h = 0; h < rows.shape.kv_heads; ++h) cache::MatchChunks(slots, h, {.begin = 0, .end = rows.tokens});
  });
  const double macs = static_cast<double>(rows.tokens) * 64 / 4 * rows.shape.head_dim * rows.shape.kv_heads;
  std::printf("Match/%s/t%ld_chunk64  %9.2f ms a layer  %8.1f ns a token  %6.2f GF\n", shape.name, rows.tokens,
              1e3 * seconds, 1e9 * seconds / static_cast<double>(rows.tokens), 2e-9 * macs / seconds);
}

void PrintEncodings(const Shape& shape, const Rows& rows) {
  for (int e = 0; e < kernels::kEncodings; ++e) {
    const auto encoding = static_cast<kernels::KvEncoding>(e);
    std::vector<std::byte> page(kernels::EncodedPageBytes(encoding, rows.shape));
    const auto first = rows.view().Slots(0, kernels::kEncodedPageSlots);
    const double write = BestSeconds(20, [&] { kernels::EncodePage(encoding, rows.shape, first, page); });
    Rows back(rows.shape, kernels::kEncodedPageSlots);
    const kernels::KvRows into = {back.keys.data(), back.values.data(), back.tokens, back.tokens * rows.shape.head_dim,
                                  rows.shape.head_dim};
    const double read = BestSeconds(20, [&] { kernels::DecodePage(encoding, rows.shape, page, into); });
    const double values = 2.0 * kernels::kEncodedPageSlots * rows.shape.kv_heads * rows.shape.head_dim;
    std::printf("Page/%s/%s  %7zu bytes  write %5.2f  read %5.2f ns a value\n",
                std::string(kernels::KvEncodingName(encoding)).c_str(), shape.name, page.size(), 1e9 * write / values,
                1e9 * read / values);
  }
}

int Main(const std::vector<std::string>& kinds) {
  for (const std::string& kind : kinds) {
    const auto made = cache::MakeCompressor(kind);
    if (!made.ok()) {
      std::printf("%s\n", made.status().message().c_str());
      return 2;
    }
  }
  const Shape shapes[] = {{"h3_d64", {.kv_heads = 3, .head_dim = 64}}, {"h2_d256", {.kv_heads = 2, .head_dim = 256}}};
  for (const Shape& shape : shapes) {
    const Rows rows(shape.layer, 8192);
    PrintMatching(shape, rows);
    for (const std::string& kind : kinds) {
      for (const double share : {0.5, 0.25}) PrintPrefill(kind, shape, rows, share);
      PrintMaintain(kind, shape, rows, 0.25);
    }
    PrintEncodings(shape, rows);
  }
  return 0;
}

}  // namespace
}  // namespace invar::bench

int main(const int argc, char** argv) {
  std::vector<std::string> kinds(argv + 1, argv + argc);
  if (kinds.empty()) kinds = {"centroid", "centroid:schedule=paper,outliers=0", "streaming", "kivi4"};
  return invar::bench::Main(kinds);
}
