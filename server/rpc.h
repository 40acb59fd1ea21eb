// The calls of all our services, as counts and metrics name them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace invar::server {

enum class Rpc {
  kGenerate,
  kTokenize,
  kDetokenize,
  kRenderChat,
  kListModels,
  kGetCacheStatistics,
  kFlushCache,
  kExplainPlan,
  kFetchPrefix,
  kQuotePrefix,
};
inline constexpr int kRpcCount = 10;
inline constexpr std::array<std::string_view, kRpcCount> kRpcNames = {
    "Generate",           "Tokenize",   "Detokenize",  "RenderChat",  "ListModels",
    "GetCacheStatistics", "FlushCache", "ExplainPlan", "FetchPrefix", "QuotePrefix"};

// A count an RPC.
struct RpcCounts {
  std::array<int64_t, kRpcCount> of{};

  int64_t& operator[](const Rpc rpc) { return of[static_cast<size_t>(rpc)]; }
  int64_t operator[](const Rpc rpc) const { return of[static_cast<size_t>(rpc)]; }
  int64_t total() const { return std::accumulate(of.begin(), of.end(), int64_t{0}); }
};

}  // namespace invar::server
