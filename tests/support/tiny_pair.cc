// See tiny_pair.h.
#include "tests/support/tiny_pair.h"

#include <span>

#include "base/check.h"
#include "base/file.h"
#include "engine/transfer/scd_profile_file.h"
#include "models/text.h"
#include "tests/support/tiny_model.h"
#include "tools/calibrate/calibration.h"

namespace invar::testing {
namespace {

TinyModel Load(const std::string& name) {
  auto loaded = LoadTinyModel(
      AssetFolder(name),
      {.backend = "cpu", .isa = {}, .activations = kernels::DType::kBf16, .threads = 1, .mtp_head = false});
  Check(loaded.ok(), "a model of the tree loads", loaded.status().message());
  return *std::move(loaded);
}

}  // namespace

std::vector<TokenId> ProseTokens(const std::vector<std::string>& files) {
  const auto tokenizer = models::LoadTokenizer(AssetFolder("tiny-hybrid"));
  Check(tokenizer.ok(), "the tokenizer loads");
  std::string text;
  for (const std::string& name : files) {
    const StatusOr<std::string> file = ReadFile(std::string(INVAR_SOURCE_DIR) + "/" + name, 1 << 20);
    Check(file.ok(), "a document is there", name);
    text += *file;
  }
  const auto tokens = (*tokenizer)->Encode(text, models::ControlTokens::kStayText, false, {});
  Check(tokens.ok(), "text is tokenized");
  return *tokens;
}

const std::vector<TokenId>& PairTokens() {
  static const std::vector<TokenId> tokens = ProseTokens({"LICENSE", "docs/DETERMINISM.md", "docs/PREFIX_CACHE.md"});
  return tokens;
}

void CalibrateTinyPair(const std::string& path, const size_t first_token) {
  const TinyModel producer = Load("tiny-hybrid");
  const TinyModel consumer = Load("tiny-hybrid-ft");
  calibrate::CalibrateOptions options;
  options.out = path;
  options.prefix_tokens = 256;
  options.suffix_tokens = 16;
  options.fit_windows = 6;
  options.choose_windows = 1;
  options.judge_windows = 2;
  options.features = 32;
  options.tails = {0, 32};
  const auto made = CalibrateOn({.model = *producer.model, .folder = AssetFolder("tiny-hybrid"), .rows_max = 512},
                                {.model = *consumer.model, .folder = AssetFolder("tiny-hybrid-ft"), .rows_max = 512},
                                std::span(PairTokens()).subspan(first_token), options, {});
  Check(made.ok(), "the pair is calibrated", made.status().message());
  const Status saved = engine::SaveScd(made->profile, path);
  Check(saved.ok(), "the profile is written", saved.message());
}

}  // namespace invar::testing
