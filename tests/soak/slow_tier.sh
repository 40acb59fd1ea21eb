#!/bin/bash
# Soak, run by hand: full KV in the slow tier, six compressors x drafts of 1, 4, 16, 64 x greedy, T 0.7, T 1, top-p x
# 1, 3, 17 together, each on prompts of its own (2,016 a model), through the page cache and around it, out for want of
# pages and all at once, with cancellations and preemptions: every bit as plain decoding has it.
#   tests/soak/slow_tier.sh [BUILD, default build/release]
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${1:-build/release}/bin/slow_tier_law_test" --gtest_also_run_disabled_tests --gtest_break_on_failure \
  --gtest_filter='*SlowTierLaw.DISABLED_AllOfIt*'
