// Task after task, all ways to serve it beside each other: so each also runs in company, on what others left in the
// cache, and a prompt is run once.
#include "tools/eval/served.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "engine/engine.h"
#include "engine/validate.h"
#include "tools/eval/candidates.h"
#include "tools/eval/lay_tasks.h"
#include "tools/eval/windows.h"

namespace invar::eval {
namespace {

constexpr char kDrafter[] = "compressed_kv";
// Tasks that full KV answers beside each other the second time.
constexpr int64_t kCompany = 8;
// Views of all candidates draft beside each other.
constexpr int64_t kDraftMemoryBytes = int64_t{1} << 30;

// Told on this thread, which drives the engine.
class AnswerSink final : public engine::EventSink {
 public:
  bool Push(engine::TokenEvent event) override {
    if (auto* const delta = std::get_if<engine::DeltaEvent>(&event)) {
      tokens_.insert(tokens_.end(), delta->tokens.begin(), delta->tokens.end());
    } else if (auto* const finished = std::get_if<engine::FinishedEvent>(&event)) {
      speculation_ = finished->speculation;
    } else if (auto* const failed = std::get_if<engine::FailedEvent>(&event)) {
      failed_ = failed->status;
    }
    return true;
  }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::optional<engine::SpeculationReport>& speculation() const { return speculation_; }
  const Status& status() const { return failed_; }

 private:
  std::vector<TokenId> tokens_;
  std::optional<engine::SpeculationReport> speculation_;
  Status failed_;
};

// One way to serve, and where its answers count.
struct Way {
  ServedAnswers* answers;
  engine::Request request;
  std::shared_ptr<AnswerSink> sink = std::make_shared<AnswerSink>();
};

class Server {
 public:
  Server(const EvalModel& model, const EvalOptions& options, engine::Engine& engine, ServedResults& results)
      : model_(model), options_(options), engine_(engine), results_(results) {}

  Status Answer(const LaidTask& laid) {
    Way full{.answers = &results_.full, .request = RequestOf(laid)};
    if (Status s = Run({&full, 1}); !s.ok()) return s;
    alone_.push_back({full.sink->tokens(), IsRight(laid, full)});
    Count(laid, full, alone_.back());
    std::vector<Way> ways = WaysOf(laid);
    if (Status s = Run(ways); !s.ok()) return s;
    for (const Way& way : ways) Count(laid, way, alone_.back());
    return OkStatus();
  }

  // From the last task to the first, several at once: what full KV is compared by must not depend on company.
  // Requires: Answer() was called for each of `tasks`, in this order.
  Status AnswerInCompany(const std::span<const LaidTask> tasks) {
    for (int64_t end = std::ssize(tasks); end > 0; end -= kCompany) {
      std::vector<Way> ways;
      const int64_t begin = std::max<int64_t>(0, end - kCompany);
      for (int64_t i = end; i-- > begin;)
        ways.push_back({.answers = &results_.full_in_company, .request = RequestOf(tasks[i])});
      if (Status s = Run(ways); !s.ok()) return s;
      for (size_t w = 0; w < ways.size(); ++w) {
        const int64_t task = end - 1 - static_cast<int64_t>(w);
        Count(tasks[task], ways[w], alone_[task]);
      }
    }
    return OkStatus();
  }

 private:
  // What full KV said when nothing else ran.
  struct Reference {
    std::vector<TokenId> tokens;
    bool right;
  };

  engine::Request RequestOf(const LaidTask& laid) const {
    engine::Request request;
    request.prompt = laid.prompt.context;
    request.prompt.insert(request.prompt.end(), laid.prompt.question.begin(), laid.prompt.question.end());
    request.sampling.temperature = 0.0F;
    request.stopping.max_tokens = static_cast<int32_t>(std::ssize(laid.prompt.gold)) + kAnswerSpareTokens;
    request.stopping.stop_token_ids = model_.stops;
    return request;
  }

  std::vector<Way> WaysOf(const LaidTask& laid) {
    std::vector<Way> ways;
    for (size_t i = 0; i < results_.rows.size(); ++i) {
      ServedRow& row = results_.rows[i];
      std::optional<float> budget;
      if (row.has_budget) budget = static_cast<float>(row.budget);
      Way approximate{.answers = &row.approximate, .request = RequestOf(laid)};
      approximate.request.approximation = {.compressor = row.name, .kv_budget = budget};
      ways.push_back(std::move(approximate));
      if (!row.drafts) continue;
      for (const int32_t tokens : options_.draft_tokens) {
        Way lossless{.answers = &row.lossless, .request = RequestOf(laid)};
        lossless.request.speculation = {
            .drafter = kDrafter, .draft_tokens = tokens, .compressor = row.name, .kv_budget = budget};
        ways.push_back(std::move(lossless));
      }
    }
    return ways;
  }

  Status Run(const std::span<Way> ways) {
    for (Way& way : ways) {
      if (const StatusOr<SequenceId> id = engine_.Submit(std::move(way.request), way.sink); !id.ok())
        return id.status();
    }
    while (engine_.RunOneStep()) {
    }
    for (const Way& way : ways)
      if (!way.sink->status().ok()) return way.sink->status();
    return OkStatus();
  }

  bool IsRight(const LaidTask& laid, const Way& way) const {
    const std::string text = model_.tokenizer.Decode(way.sink->tokens(), /*skip_special=*/true);
    return laid.task.score(laid.task, laid.task.lead + text) >= 1.0;
  }

  void Count(const LaidTask& laid, const Way& way, const Reference& alone) {
    ServedAnswers& answers = *way.answers;
    const bool right = IsRight(laid, way);
    answers.right.resize(results_.tasks.size());
    ++answers.answers;
    answers.right[laid.kind] += right ? 1 : 0;
    answers.lost += alone.right && !right ? 1 : 0;
    answers.differing += way.sink->tokens() == alone.tokens ? 0 : 1;
    if (!way.sink->speculation().has_value()) return;
    answers.drafted_tokens += way.sink->speculation()->drafted_tokens;
    answers.accepted_tokens += way.sink->speculation()->accepted_tokens;
  }

  const EvalModel& model_;
  const EvalOptions& options_;
  engine::Engine& engine_;
  ServedResults& results_;
  std::vector<Reference> alone_;  // A task each.
};

}  // namespace

int32_t ServedAnswers::all_right() const { return std::accumulate(right.begin(), right.end(), 0); }

StatusOr<ServedResults> RunServed(const EvalModel& model, std::unique_ptr<models::Model> served,
                                  const EvalOptions& options,
                                  const std::function<void(int64_t done, int64_t total)>& progress) {
  const StatusOr<Candidates> candidates = MakeCandidates(options.compressors, options.budgets);
  if (!candidates.ok()) return candidates.status();
  const StatusOr<std::vector<const TaskKind*>> kinds = KindsOf(options.tasks);
  if (!kinds.ok()) return kinds.status();
  StatusOr<std::string> text = ReadTexts(options.text_paths);
  if (!text.ok()) return text.status();
  const StatusOr<std::vector<LaidTask>> tasks =
      LayTasks(model.tokenizer, options.plain ? nullptr : model.chat,
               {.context_tokens = options.context_tokens, .samples = options.samples, .seed = options.seed},
               NoiseText(*text), *kinds);
  if (!tasks.ok()) return tasks.status();

  ServedResults results;
  for (const TaskKind* kind : *kinds) results.tasks.emplace_back(kind->name);
  for (const Candidate& candidate : candidates->rows) {
    if (candidate.is_full()) continue;
    if (Status s = engine::CheckCompressor(candidate.name, engine::ViewUse::kAnswers, "--compressor"); !s.ok())
      return s;
    const bool drafts = engine::CheckCompressor(candidate.name, engine::ViewUse::kDrafts, "--compressor").ok();
    results.rows.push_back({.name = candidate.name,
                            .has_budget = candidate.has_budget(),
                            .budget = candidate.budget,
                            .settings = candidate.compressor->provenance(),
                            .drafts = drafts});
  }
  const RealClock clock;
  engine::EngineOptions engine_options;
  engine_options.max_batch_tokens = std::min(engine_options.max_batch_tokens, model.rows_max);
  engine_options.max_logits_rows = model.rows_max;
  engine_options.prefill_chunk_tokens = engine_options.max_batch_tokens;
  engine_options.draft_memory_bytes = kDraftMemoryBytes;
  StatusOr<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::Create(engine_options, std::move(served), &model.tokenizer, clock);
  if (!engine.ok()) return engine.status();
  Server server(model, options, **engine, results);
  for (size_t i = 0; i < tasks->size(); ++i) {
    if (progress) progress(static_cast<int64_t>(i), std::ssize(*tasks));
    if (Status s = server.Answer((*tasks)[i]); !s.ok()) return s;
  }
  if (Status s = server.AnswerInCompany(*tasks); !s.ok()) return s;
  if (progress) progress(std::ssize(*tasks), std::ssize(*tasks));
  return results;
}

}  // namespace invar::eval
