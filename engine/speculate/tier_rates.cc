// The sums of tier_rates.h.
#include "engine/speculate/tier_rates.h"

#include <algorithm>
#include <cmath>

#include "kernels/numerics.h"

namespace invar::engine {
namespace {

constexpr double kNewer = 0.2;  // Of a moving average.
// Pages that a request keeps in the fast tier while its full KV is away: the one being filled, and one for a draft.
constexpr int64_t kPagesKept = 2;
// Of views, before one was made: what the mildest compressors leave.
constexpr double kGuessedViewShare = 0.5;
// More at once are not looked at.
constexpr int32_t kRequestsMax = 64;
// A gap is a cycle on average; so much of the limit is the average allowed to be.
constexpr double kGapShare = 0.85;

// Of sums that fade: a hundred rounds count, about, of what forwards wait.
constexpr double kWaitFade = 0.99;
// What holds expectations against what came follows a machine that others use too: twenty rounds, and five steps of
// plain decoding, which are rare.
constexpr double kRoundsFade = 0.95;
constexpr double kRoundSeconds = 0.1;  // What takes longer counts as several rounds: two seconds say enough.
constexpr double kPlainFade = 0.8;
// Sums that are off by more than this have not met what they are of.
constexpr double kOffMost = 2.0;

double Bounded(const double off) { return std::clamp(off, 1.0 / kOffMost, kOffMost); }

void Average(double& average, const double value) {
  average = average == 0 ? value : (1.0 - kNewer) * average + kNewer * value;
}

}  // namespace

void TierRates::Share::Add(const double part, const double whole, const double fade) {
  part_ = fade * part_ + part;
  whole_ = fade * whole_ + whole;
}

struct TierRates::Load {
  double tokens = 0;
  double full_bytes = 0;     // In the fast tier as a whole, states too.
  double kept_bytes = 0;     // There while the rest is away.
  double working_bytes = 0;  // While its prompt is run.
  double view_bytes = 0;
  double stream_bytes = 0;
  double stage_bytes = 0;  // The least that a stream needs.
  double once_s = 0;       // Of a token that it generates: its share of what comes once a request.
  double acceptance = 0;
};

TierRates::TierRates(const models::ModelSpec& spec)
    : work_(spec.work),
      state_bytes_(spec.state_bytes),
      page_bytes_(spec.page_bytes),
      layers_(std::max<int64_t>(1, std::ssize(spec.attention.page_offsets_bytes))),
      steps_(spec.work),
      drafts_(spec.work) {}

void TierRates::Streamed(const int64_t bytes, const TimeNs took) {
  if (bytes <= 0) return;
  streamed_ = true;
  Average(link_s_, ToSeconds(took) / static_cast<double>(bytes));
}

void TierRates::Waited(const int64_t bytes, const TimeNs took) {
  if (bytes > 0) wait_.Add(ToSeconds(took), static_cast<double>(bytes), kWaitFade);
}

void TierRates::RoundsGave(const int64_t tokens, const TimeNs took) {
  if (tokens <= 0 || token_s_ <= 0) return;
  const double seconds = ToSeconds(took);
  const double rounds = std::max(1.0, seconds / kRoundSeconds);
  off_.Add(seconds, static_cast<double>(tokens) * token_s_, std::pow(kRoundsFade, rounds));
}

void TierRates::PlainStepTook(const ForwardWork& work, const TimeNs took) {
  if (steps_.observed()) plain_off_.Add(ToSeconds(took), steps_.Of(work), kPlainFade);
}

void TierRates::ViewsMade(const int64_t tokens, const TimeNs took) {
  if (tokens > 0 && took > 0) Average(view_s_, ToSeconds(took) / static_cast<double>(tokens));
}

void TierRates::MovedOut(const int64_t bytes, const TimeNs took) {
  if (bytes > 0 && took > 0) Average(move_s_, ToSeconds(took) / static_cast<double>(bytes));
}

TierRates::Load TierRates::LoadOf(const RoundDemand& demand) {
  if (demand.viewed_tokens > 0) {
    Average(view_bytes_, static_cast<double>(demand.view_bytes) / static_cast<double>(demand.viewed_tokens));
  }
  const double requests = std::max(1, demand.requests);
  const double page_tokens = kernels::kPageTokens;
  Load load{.tokens = static_cast<double>(demand.tokens) / requests, .acceptance = demand.acceptance};
  const double pages = std::floor(load.tokens / page_tokens) + 1;
  load.full_bytes = pages * static_cast<double>(page_bytes_) + static_cast<double>(state_bytes_);
  load.kept_bytes = static_cast<double>(kPagesKept * page_bytes_ + state_bytes_);
  load.working_bytes = static_cast<double>(demand.working_pages * page_bytes_ + state_bytes_);
  load.stream_bytes = std::max(0.0, pages - 1) * static_cast<double>(page_bytes_);
  load.stage_bytes = 2 * load.stream_bytes / static_cast<double>(layers_);
  load.view_bytes = view_bytes_ > 0 ? view_bytes_ * load.tokens
                                    : kGuessedViewShare * load.full_bytes + static_cast<double>(state_bytes_);
  const double once = view_s_ * load.tokens + move_s_ * load.stream_bytes;
  load.once_s = once * requests / std::max<double>(1, static_cast<double>(demand.output_tokens));
  return load;
}

double TierRates::PlainTokensPerSecond(const Load& load, const int32_t requests) const {
  const double positions = requests * load.tokens;
  const double step_s =
      steps_.Of({.rows = static_cast<double>(requests), .positions = positions, .kv_positions = positions});
  return requests / (step_s * Bounded(plain_off_.of(1.0)));
}

TierRates::Weighed TierRates::BestRounds(const Load& load, const int32_t requests, const ModeLimits& limits,
                                         const VerifyLimits& verify) const {
  Weighed weighed{.choice = {.mode = DecodeMode::kStaggered, .residents = requests}};
  ModeChoice& best = weighed.choice;
  const double link_s = link_s_ * load.stream_bytes;
  const double wait_s = wait_.of(link_s_) * load.stream_bytes;
  const double off = Bounded(off_.of(1.0));
  const auto staged = static_cast<int32_t>(
      std::clamp(static_cast<double>(verify.staging_bytes) / std::max(1.0, load.stage_bytes), 1.0, 1e6));
  for (int32_t draft = 0; draft <= limits.draft_max; ++draft) {
    const int32_t rows = draft + 1;
    const double tokens = requests * ExpectedRun(load.acceptance, draft);
    const auto drafts = [&](const double at_once) {
      if (draft == 0) return 0.0;
      const double all = static_cast<double>(draft) * requests;
      return drafts_.Of(
          {.forwards = all / at_once, .rows = all, .positions = all * load.tokens, .kv_positions = all * load.tokens});
    };
    const auto verifies = [&](const int32_t at_once) {
      const double forwards = std::ceil(static_cast<double>(requests) / at_once);
      const double all = static_cast<double>(rows) * requests;
      return steps_.Of(
          {.forwards = forwards, .rows = all, .positions = all * load.tokens, .kv_positions = requests * load.tokens});
    };
    const int32_t group = std::clamp(std::min({requests, staged, verify.streams, verify.rows / rows}), 1, requests);
    const double apart = std::max(drafts(std::max(1, requests - 1)) + verifies(1), requests * link_s);
    // What reads and checks layers takes a core from who computes: how much of it is hidden behind one forward, waiting
    // tells.
    const double together = drafts(requests) + verifies(group) + requests * wait_s;
    const double cycle = off * std::min(apart, together) + tokens * load.once_s;
    if (cycle > kGapShare * limits.gap_s_max) continue;
    if (tokens / cycle <= best.tokens_per_s) continue;
    best.tokens_per_s = tokens / cycle;
    weighed.token_s = std::min(apart, together) / tokens;
    best.together = together <= apart;
    best.draft_min = draft;
    // Only where the link is what everybody waits for are more tokens free.
    const bool link_bound = !best.together && apart <= requests * link_s;
    best.draft_max = link_bound ? limits.draft_max : draft;
  }
  return weighed;
}

ModeChoice TierRates::Choose(const RoundDemand& demand, const ModeLimits& limits, const VerifyLimits& verify) {
  const Load load = LoadOf(demand);
  token_s_ = 0;
  const auto budget = static_cast<double>(demand.budget_bytes - demand.other_pages * page_bytes_);
  const auto holds = static_cast<int32_t>(std::clamp(budget / load.full_bytes, 1.0, 1e6));
  const bool all_fit = demand.requests * load.full_bytes <= budget && demand.requests <= limits.plain_max;
  if (demand.requests > 0 && demand.may_stay && all_fit) {
    return {.mode = DecodeMode::kPlain, .residents = demand.requests, .all_fit = true};
  }
  if (!known() || !demand.tried || demand.requests == 0) {
    const int32_t draft = std::min(kFirstDraft, limits.draft_max);
    return {.mode = DecodeMode::kStaggered, .residents = INT32_MAX, .draft_min = draft, .draft_max = draft};
  }
  const auto views = static_cast<double>(demand.views_bytes_max);
  const int32_t plain = std::min({demand.requests, holds, limits.plain_max});
  const double full = PlainTokensPerSecond(load, plain);
  ModeChoice rounds;
  for (int32_t n = 1; n <= std::min({demand.requests, limits.staggered_max, kRequestsMax}); ++n) {
    // The last to come has the views of all beside it.
    const double last = std::max(load.kept_bytes, load.working_bytes);
    const bool fits = n * load.view_bytes <= views && n * load.view_bytes + (n - 1) * load.kept_bytes + last <= budget;
    if (n > std::max(1, demand.away) && !fits) break;
    const Weighed of_n = BestRounds(load, n, limits, verify);
    if (of_n.choice.tokens_per_s <= rounds.tokens_per_s) continue;
    rounds = of_n.choice;
    token_s_ = of_n.token_s;
  }
  rounds.gain = rounds.tokens_per_s / full;
  rounds.plain_residents = plain;
  if (rounds.tokens_per_s > 0 && rounds.gain >= limits.gain_min) return rounds;
  rounds.mode = DecodeMode::kPlain;
  rounds.residents = plain;
  rounds.tokens_per_s = full;
  return rounds;
}

}  // namespace invar::engine
