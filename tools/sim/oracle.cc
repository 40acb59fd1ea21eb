// One token after another, each from a fresh hash of all tokens before it.
#include "tools/sim/oracle.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "engine/sample/logprobs.h"
#include "engine/sample/sampler.h"

namespace invar::sim {
namespace {

using engine::Request;

struct Match {
  std::string stop;
  size_t end = 0;
};

// Walks over the ends of `text`: the first at which a stop string is complete, the longest of those.
std::optional<Match> FirstMatch(const std::string& text, const std::vector<std::string>& stops) {
  std::optional<Match> match;
  for (size_t end = 1; end <= text.size() && !match.has_value(); ++end) {
    for (const std::string& stop : stops) {
      if (!text.substr(0, end).ends_with(stop)) continue;
      if (!match.has_value() || stop.size() > match->stop.size()) match = Match{stop, end};
    }
  }
  return match;
}

class Writer {
 public:
  Writer(const Request& request, const models::FingerprintOptions& model, const models::Tokenizer& tokenizer,
         const int32_t noise_shift)
      : request_(request),
        model_(model),
        tokenizer_(tokenizer),
        noise_shift_(noise_shift),
        detokenizer_(tokenizer, /*skip_special=*/true) {
    if (!engine::UsesPenalties(request.sampling)) return;
    for (const TokenId token : request.prompt) counts_.AddPrompt(token);
  }

  Expected Write() {
    std::vector<TokenId> tokens = request_.prompt;
    if (request_.output.prompt_logprobs.has_value()) ScorePrompt();
    const int32_t room = model_.max_sequence_tokens - static_cast<int32_t>(request_.prompt.size());
    const int32_t limit = std::min(request_.stopping.max_tokens, room);
    while (static_cast<int32_t>(out_.tokens.size()) < limit && !stopped_) {
      const TokenId token = Next(tokens);
      tokens.push_back(token);
      Take(token);
    }
    if (!std::holds_alternative<std::string>(out_.matched)) free_text_ += armed_text_ + detokenizer_.Finish();
    out_.text = free_text_;
    return std::move(out_);
  }

 private:
  int32_t usable_ids() const { return std::min(model_.vocabulary_size, tokenizer_.vocabulary_size()); }

  void ScorePrompt() {
    for (size_t i = 1; i < request_.prompt.size(); ++i) {
      const std::vector<float> row = models::FingerprintLogits(model_, std::span(request_.prompt).first(i));
      out_.prompt_logprobs.push_back(
          engine::MakeLogprob(rows_, row, usable_ids(), request_.prompt[i], *request_.output.prompt_logprobs).value());
    }
  }

  TokenId Next(const std::vector<TokenId>& tokens) {
    const std::vector<float> row = models::FingerprintLogits(model_, tokens);
    const int32_t shift = out_.tokens.empty() ? 0 : noise_shift_;
    const std::optional<TokenId> token =
        engine::SampleToken({.rows = rows_,
                             .logits = row,
                             .sampling = request_.sampling,
                             .stopping = request_.stopping,
                             .counts = counts_,
                             .output_tokens = static_cast<int32_t>(out_.tokens.size()),
                             .position = Position(static_cast<int32_t>(tokens.size()) + shift),
                             .usable_ids = usable_ids()},
                            scratch_);
    Check(token.has_value(), "hashes give finite logits");
    out_.logprobs.push_back(
        engine::MakeLogprob(rows_, row, usable_ids(), *token, request_.output.logprobs.value_or(0)).value());
    return *token;
  }

  void Take(const TokenId token) {
    const engine::StoppingParams& stopping = request_.stopping;
    const bool armed = static_cast<int32_t>(out_.tokens.size()) >= stopping.min_tokens;
    out_.tokens.push_back(token);
    if (engine::UsesPenalties(request_.sampling)) counts_.AddOutput(token);
    const bool is_stop = armed && std::count(stopping.stop_token_ids.begin(), stopping.stop_token_ids.end(), token) > 0;
    if (!is_stop || stopping.include_stop) (armed ? armed_text_ : free_text_) += detokenizer_.Append(token);
    if (const std::optional<Match> match = FirstMatch(armed_text_, stopping.stop)) {
      free_text_ += armed_text_.substr(0, stopping.include_stop ? match->end : match->end - match->stop.size());
      out_.matched = match->stop;
    }
    if (is_stop && out_.matched.index() == 0) out_.matched = token;
    stopped_ = out_.matched.index() != 0;
    if (stopped_) out_.reason = engine::FinishReason::kStop;
  }

  const Request& request_;
  const models::FingerprintOptions& model_;
  const models::Tokenizer& tokenizer_;
  const int32_t noise_shift_;
  const kernels::RowSampler rows_ = kernels::RowSampler::Create("scalar").value();
  models::Detokenizer detokenizer_;
  engine::TokenCounts counts_;
  std::vector<float> scratch_;
  std::string free_text_;  // Before min_tokens: no match may touch it.
  std::string armed_text_;
  bool stopped_ = false;
  Expected out_;
};

}  // namespace

Expected ExpectedAnswer(const Request& request, const models::FingerprintOptions& model,
                        const models::Tokenizer& tokenizer, const int32_t noise_shift) {
  return Writer(request, model, tokenizer, noise_shift).Write();
}

}  // namespace invar::sim
