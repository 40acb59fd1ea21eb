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
  kVerifyPrefix,
};
inline constexpr size_t kRpcCount = 11;

constexpr std::string_view NameOf(const Rpc rpc) {
  switch (rpc) {
    case Rpc::kGenerate:
      return "Generate";
    case Rpc::kTokenize:
      return "Tokenize";
    case Rpc::kDetokenize:
      return "Detokenize";
    case Rpc::kRenderChat:
      return "RenderChat";
    case Rpc::kListModels:
      return "ListModels";
    case Rpc::kGetCacheStatistics:
      return "GetCacheStatistics";
    case Rpc::kFlushCache:
      return "FlushCache";
    case Rpc::kExplainPlan:
      return "ExplainPlan";
    case Rpc::kFetchPrefix:
      return "FetchPrefix";
    case Rpc::kQuotePrefix:
      return "QuotePrefix";
    case Rpc::kVerifyPrefix:
      return "VerifyPrefix";
  }
  return {};
}

// A count an RPC.
struct RpcCounts {
  std::array<int64_t, kRpcCount> of{};

  int64_t& operator[](const Rpc rpc) { return of[static_cast<size_t>(rpc)]; }
  int64_t operator[](const Rpc rpc) const { return of[static_cast<size_t>(rpc)]; }
  int64_t total() const { return std::accumulate(of.begin(), of.end(), int64_t{0}); }
};

}  // namespace invar::server
