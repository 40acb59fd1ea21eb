// What runs: version and model, in labels.
#include "server/metrics/parts.h"
#include "server/version.h"

namespace invar::server {

MetricsPart InfoMetrics() {
  using S = MetricsSnapshot;
  using Labels = InfoRow::Labels;
  return {.title = "What runs",
          .infos = {
              {.name = "invar_build_info",
               .labels = "version",
               .help = "Always 1; the version is a label.",
               .read =
                   [](const S&) {
                     return Labels{{"version", kVersion}};
                   }},
              {.name = "invar_model_info",
               .labels = "model, architecture, fingerprint, numerics_id",
               .help = "Always 1, once a model is loaded; what is served stands in the labels.",
               .read =
                   [](const S& s) {
                     if (!s.spec) return Labels{};
                     return Labels{{"model", s.model},
                                   {"architecture", s.spec->architecture},
                                   {"fingerprint", s.spec->fingerprint},
                                   {"numerics_id", s.spec->numerics_id}};
                   }},
              {.name = "vllm:cache_config_info",
               .labels = "model_name, engine, block_size, num_gpu_blocks",
               .help = "Always 1: the shape of the KV memory (alias set).",
               .is_alias = true,
               .read =
                   [](const S& s) {
                     return Labels{{"model_name", s.model},
                                   {"engine", "0"},
                                   {"block_size", std::to_string(kernels::kPageTokens)},
                                   {"num_gpu_blocks", std::to_string(s.engine.pages_total)}};
                   }},
          }};
}

}  // namespace invar::server
