// What `invar calibrate` is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace invar::calibrate {

struct CalibrateOptions {
  std::vector<std::string> text_paths;
  std::string out;
  int32_t prefix_tokens = 0;  // 0: as many as a tenth of the text holds beside a suffix, at most kReportedTokens.
  int32_t suffix_tokens = 64;
  int32_t fit_windows = 48;
  int32_t choose_windows = 4;
  int32_t judge_windows = 12;
  int32_t rank_k = 0;                                // Of reuse_kv's keys; 0: half their columns.
  int32_t rank_v = 0;                                // Of its values; 0: 7 tenths of their columns.
  int32_t patch_layers = -1;                         // At most; -1: as many as pay.
  int32_t features = 256;                            // Of nonlinear decoders; 0: linear ones only.
  std::vector<int32_t> tails = {0, 64, 128, 256};    // Those above a quarter of the prefix are left out.
  std::vector<double> budgets = {0.125, 0.25, 0.5};  // Shares of the raw bytes.
  double recompute_share_max = 0.05;                 // Of a prefill's operations, by the consumer's own weights.
  bool by_mass = true;                               // Tokens weigh by the attention they get.
  int32_t save_seconds = 10;                         // A killed run loses at most so much of its fitting.
};

// Tokens that payloads are reported for: bytes a token include states and tails, spread over so many.
inline constexpr int64_t kReportedTokens = 1024;

}  // namespace invar::calibrate
