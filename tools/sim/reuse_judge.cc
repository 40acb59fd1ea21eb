// Upper bounds: nothing can be found that no earlier request of the scope left since the last flush.
#include "tools/sim/reuse_judge.h"

#include <algorithm>

namespace invar::sim {
namespace {

const engine::Request& RequestOf(const Begun& run) { return run.planned->request; }

// Tokens `run` has computed KV of: its last output token has never run.
std::vector<TokenId> ComputedTokens(const Begun& run) {
  std::vector<TokenId> tokens = RequestOf(run).prompt;
  const std::vector<TokenId>& output = run.observed->tokens();
  if (!output.empty()) tokens.insert(tokens.end(), output.begin(), output.end() - 1);
  return tokens;
}

bool SameScope(const engine::Request& a, const engine::Request& b) {
  return a.tenant == b.tenant && a.cache.salt == b.cache.salt;
}

}  // namespace

std::vector<std::string> ReuseJudge::Problems(const Begun& run) const {
  std::vector<std::string> problems;
  const auto require = [&](const bool holds, const char* const problem) {
    if (!holds) problems.emplace_back(problem);
  };
  const engine::PrefixReuse& reuse = *run.observed->reuse();
  const int32_t prompt = static_cast<int32_t>(RequestOf(run).prompt.size());
  const bool has_state = schedule_.model.recurrent_layers > 0;
  require(reuse.computed_tokens == prompt - reuse.state_match_tokens, "what is not resumed is computed");
  require(reuse.state_match_tokens >= 0 && reuse.state_match_tokens <= reuse.kv_match_tokens,
          "a state without the KV before it");
  require(reuse.state_match_tokens < prompt && reuse.kv_match_tokens <= prompt, "a match leaves a token to run");
  require(reuse.recomputed_tokens == reuse.kv_match_tokens - reuse.state_match_tokens,
          "KV whose state is missing is run again");
  require(!RequestOf(run).output.prompt_logprobs.has_value() || reuse.state_match_tokens == 0,
          "a scored prompt runs from its start");
  if (RequestOf(run).cache.bypass_read || !schedule_.options.prefix_cache) {
    require(reuse.kv_match_tokens == 0, "found though it was not to look");
    return problems;
  }
  const bool asks = schedule_.peer.has_value() && RequestOf(run).transfer.allowed;
  require(reuse.transferred_tokens == 0 || asks, "brought by a peer that was not asked");
  require(reuse.transferred_tokens <= reuse.state_match_tokens, "brought, and not there");
  if (schedule_.peer.has_value()) return problems;  // It may bring what nobody has left here.
  require(reuse.kv_match_tokens <= MostShared(run, /*of_states=*/false), "KV that nobody of its scope has left");
  if (has_state) {
    require(reuse.state_match_tokens <= MostShared(run, /*of_states=*/true),
            "a state that nobody of its scope has left");
  }
  return problems;
}

int32_t ReuseJudge::MostShared(const Begun& run, const bool of_states) const {
  const TimeNs now = *run.observed->started_at();
  const TimeNs flushed = LastFlush(RequestOf(run), now, of_states);
  const std::vector<TokenId>& prompt = RequestOf(run).prompt;
  int32_t most = 0;
  for (const Begun& other : runs_) {
    const std::optional<TimeNs> ended = other.observed->ended_at();
    if (other.planned == run.planned || RequestOf(other).cache.bypass_write) continue;
    if (!SameScope(RequestOf(other), RequestOf(run)) || *other.observed->started_at() > now) continue;
    if (ended.has_value() && *ended < flushed) continue;
    const std::vector<TokenId> tokens = ComputedTokens(other);
    const auto equal = std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end()).first;
    most = std::max(most, static_cast<int32_t>(equal - prompt.begin()));
  }
  return most;
}

// -1: none. A flush and the steps it is posted before have the same time; what ended before that time is gone.
TimeNs ReuseJudge::LastFlush(const engine::Request& request, const TimeNs until, const bool of_states) const {
  TimeNs last = -1;
  const bool has_state = schedule_.model.recurrent_layers > 0;
  for (const PlannedFlush& flush : schedule_.flushes) {
    if (flush.at > until) continue;
    if (!flush.what.Covers({.tenant = request.tenant, .salt = request.cache.salt, .provenance = {}})) continue;
    if (schedule_.tier.has_value() && flush.what.part != cache::CachedPart::kAll) continue;  // Tiers can bring it back.
    const bool takes_kv = flush.what.part != cache::CachedPart::kStates;
    const bool takes_states = flush.what.part != cache::CachedPart::kKv || !has_state;
    if (of_states ? takes_states : takes_kv) last = std::max(last, flush.at);
  }
  return last;
}

}  // namespace invar::sim
