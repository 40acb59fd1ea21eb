// invar bench speculation: what lossless speculation saves. The same prompts are asked EXACT and LOSSLESS in turn, a
// few at a time, of two kinds: answers that repeat their prompt or themselves, and answers that do not. Rates are
// tokens after the first over decode time as the daemon says it, so the prompt's share and its caching are out of them;
// that the tokens are equal is checked on the way.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tools/invar/client.h"
#include "tools/invar/command.h"
#include "tools/invar/median.h"
#include "tools/invar/parse.h"

namespace invar::tools {
namespace {

struct Options {
  ClientOptions client;
  std::string drafter = "ngram";
  std::string compressor;
  std::optional<float> kv_budget;
  std::optional<int32_t> draft_tokens;
  int32_t max_tokens = 160;
  int32_t repeats = 3;
  int32_t together = 1;
  std::optional<int32_t> allow_token;
  bool plain = false;
  bool json = false;
};

constexpr const char* kNotes =
    "The harbour master keeps three ledgers. The first ledger lists the ships by name, the day they came in and the "
    "berth they were given. The second ledger lists the cargo by weight, the warehouse it went to and the merchant who "
    "signed for it. The third ledger lists the dues, the day they were paid and the clerk who counted them.";
constexpr const char* kCode =
    "def total_price(items, tax_rate):\n    total = 0\n    for item in items:\n        total = total + item.price * "
    "item.count\n    total = total + total * tax_rate\n    return total\n";
constexpr const char* kTable =
    "Oslo, 12 degrees, rain\nBergen, 10 degrees, rain\nParis, 17 degrees, sun\nMadrid, 24 degrees, sun\n"
    "Rome, 22 degrees, clouds\nVienna, 16 degrees, clouds\nPrague, 15 degrees, sun\n";

struct Kind {
  const char* name;
  float temperature;
  std::vector<std::string> prompts;
};
std::vector<Kind> Kinds() {
  const std::string repeat = "Repeat the following text word for word.\n\n";
  return {{"repetitive", 0.0F, {repeat + kNotes, repeat + kCode, repeat + kTable}},
          {"other",
           1.0F,
           {"Tell a story about a lighthouse keeper who finds a letter in a bottle.",
            "Why do leaves change their colour in autumn? Explain it to a child.",
            "Describe a market in a town by the sea, its smells, sounds and people."}}};
}

struct Answer {
  grpc::Status status;
  std::vector<int32_t> tokens;
  v1::Finished finished;
};

v1::GenerateRequest RequestOf(const Options& options, const Kind& kind, const size_t prompt, const int32_t repeat,
                              const bool lossless) {
  v1::GenerateRequest request;
  if (options.plain) {
    request.set_text(kind.prompts[prompt]);
  } else {
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content(kind.prompts[prompt]);
  }
  request.mutable_sampling()->set_temperature(kind.temperature);
  request.mutable_sampling()->set_seed(100 * repeat + static_cast<int64_t>(prompt));
  if (options.allow_token) request.mutable_sampling()->add_allowed_token_ids(*options.allow_token);
  request.mutable_stopping()->set_max_tokens(options.max_tokens);
  request.mutable_output()->set_token_ids(true);
  request.set_stream(true);
  if (lossless) {
    request.mutable_kv_policy()->set_exactness(v1::KvPolicy::LOSSLESS);
    request.mutable_kv_policy()->set_drafter(options.drafter);
    request.mutable_kv_policy()->set_compressor(options.compressor);
    if (options.kv_budget) request.mutable_kv_policy()->set_kv_budget(*options.kv_budget);
    if (options.draft_tokens) request.mutable_kv_policy()->set_draft_tokens(*options.draft_tokens);
  }
  return request;
}

Answer Ask(v1::GenerationService::Stub& stub, const ClientOptions& client, const v1::GenerateRequest& request) {
  Answer answer;
  answer.status = Stream(stub, client, request, [&](const v1::GenerateResponse& message) {
    const auto& ids = message.delta().token_ids();
    answer.tokens.insert(answer.tokens.end(), ids.begin(), ids.end());
    if (message.has_finished()) answer.finished = message.finished();
    return true;
  });
  return answer;
}

// A wave of requests at once: one prompt with seeds apart.
std::vector<Answer> AskTogether(v1::GenerationService::Stub& stub, const Options& options, const Kind& kind,
                                const size_t prompt, const int32_t repeat, const bool lossless) {
  std::vector<Answer> answers(static_cast<size_t>(options.together));
  std::vector<std::thread> callers;
  for (int32_t i = 0; i < options.together; ++i) {
    callers.emplace_back([&, i] {
      const int32_t seed = repeat * options.together + i;
      answers[static_cast<size_t>(i)] = Ask(stub, options.client, RequestOf(options, kind, prompt, seed, lossless));
    });
  }
  for (std::thread& caller : callers) caller.join();
  return answers;
}

struct Side {
  double seconds = 0.0;
  int64_t tokens = 0;  // After the first of each answer.
  double rate() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0; }

  void Add(const Side& side) {
    seconds += side.seconds;
    tokens += side.tokens;
  }
  void Add(const Answer& answer) {
    seconds += answer.finished.timing().decode_seconds();
    tokens += std::max<int64_t>(0, answer.finished.usage().completion_tokens() - 1);
  }
};

struct Result {
  Side exact, lossless;
  int64_t rounds = 0, drafted = 0, accepted = 0;
  int32_t answers = 0, differing = 0, fell_back = 0;
  std::vector<double> ratios;  // Of rates, a wave each.
};

// One wave, exact and lossless.
grpc::Status MeasureWave(v1::GenerationService::Stub& stub, const Options& options, const Kind& kind,
                         const size_t prompt, const int32_t repeat, Result& result) {
  // Who goes first changes, so that a machine that slows down favours nobody.
  const bool exact_first = (static_cast<int32_t>(prompt) + repeat) % 2 == 0;
  std::vector<Answer> plain, drafted;
  for (const bool exact : {exact_first, !exact_first}) {
    (exact ? plain : drafted) = AskTogether(stub, options, kind, prompt, repeat, !exact);
  }
  Side exact, lossless;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (!plain[i].status.ok()) return plain[i].status;
    if (!drafted[i].status.ok()) return drafted[i].status;
    exact.Add(plain[i]);
    lossless.Add(drafted[i]);
    const v1::SpeculationReport& report = drafted[i].finished.speculation();
    result.rounds += report.rounds();
    result.drafted += report.drafted_tokens();
    result.accepted += report.accepted_tokens();
    result.fell_back += report.fallback_reason() == "unprofitable" ? 1 : 0;
    result.differing += plain[i].tokens == drafted[i].tokens ? 0 : 1;
    ++result.answers;
  }
  result.exact.Add(exact);
  result.lossless.Add(lossless);
  if (exact.rate() > 0) result.ratios.push_back(lossless.rate() / exact.rate());
  return grpc::Status::OK;
}

grpc::Status Measure(v1::GenerationService::Stub& stub, const Options& options, const Kind& kind, Result& result) {
  for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
    for (size_t prompt = 0; prompt < kind.prompts.size(); ++prompt) {
      if (grpc::Status s = MeasureWave(stub, options, kind, prompt, repeat, result); !s.ok()) return s;
    }
  }
  return grpc::Status::OK;
}

void Print(const Options& options, const Kind& kind, const Result& r) {
  const double ratio = Median(r.ratios);
  if (options.json) {
    const nlohmann::ordered_json out = {{"kind", kind.name},
                                        {"together", options.together},
                                        {"exact_tokens_per_s", r.exact.rate()},
                                        {"lossless_tokens_per_s", r.lossless.rate()},
                                        {"ratio_median", ratio},
                                        {"ratios", r.ratios},
                                        {"answers", r.answers},
                                        {"differing", r.differing},
                                        {"rounds", r.rounds},
                                        {"drafted_tokens", r.drafted},
                                        {"accepted_tokens", r.accepted},
                                        {"fell_back", r.fell_back}};
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  std::printf(
      "%-10s %d together: exact %6.1f tokens/s, lossless %6.1f, all together %.2f times, median of waves %.2f (",
      kind.name, options.together, r.exact.rate(), r.lossless.rate(), r.lossless.rate() / r.exact.rate(), ratio);
  for (size_t i = 0; i < r.ratios.size(); ++i) std::printf("%s%.2f", i == 0 ? "" : " ", r.ratios[i]);
  std::printf("); %lld of %lld drafted tokens right in %lld rounds; %d of %d answers fell back, %d differ\n",
              static_cast<long long>(r.accepted), static_cast<long long>(r.drafted), static_cast<long long>(r.rounds),
              r.fell_back, r.answers, r.differing);
}

int Run(const Options& options) {
  const auto stub = Connect(options.client);
  if (stub == nullptr) return kExitFailure;
  int32_t differing = 0;
  for (const Kind& kind : Kinds()) {
    Result result;
    if (const grpc::Status s = Measure(*stub, options, kind, result); !s.ok()) {
      PrintError("bench speculation", s);
      return kExitFailure;
    }
    Print(options, kind, result);
    differing += result.differing;
  }
  return differing == 0 ? kExitOk : kExitFailure;
}

}  // namespace

int RunBenchSpeculation(const int argc, char** argv) {
  CLI::App app("What lossless speculation saves, on text that repeats and on text that does not",
               "invar bench speculation");
  Options options;
  AddClientOptions(app, options.client);
  app.add_option("--drafter", options.drafter, "Who drafts")->capture_default_str();
  app.add_option("--compressor", options.compressor,
                 "What compressed_kv and ngram+compressed_kv draft on; the daemon's where not given");
  app.add_option("--kv-budget", options.kv_budget, "Share of the full KV's bytes that it may keep, (0, 1]");
  app.add_option("--draft-tokens", options.draft_tokens, "Draft so many; absent: as many as pay");
  app.add_option("--max-tokens", options.max_tokens, "Of one answer")->check(CLI::Range(2, 100'000));
  app.add_option("--repeats", options.repeats, "Waves a prompt, with other seeds each")->check(CLI::Range(1, 1000));
  app.add_option("--together", options.together, "Requests at once")->check(CLI::Range(1, 256));
  app.add_option("--allow-token", options.allow_token,
                 "Allow this id alone: every draft is right, for the most a model can gain; the text means nothing");
  app.add_flag("--plain", options.plain, "Send the prompts as text instead of a chat");
  app.add_flag("--json", options.json, "One JSON object a kind of text");
  if (const std::optional<int> code = Parse(app, argc, argv)) return *code;
  return Run(options);
}

}  // namespace invar::tools
