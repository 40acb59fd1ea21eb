#!/bin/bash
# Soak, run by hand: a daemon over a ram and a disk tier whose budgets are far too small, stopped and killed again and
# again; every answer is compared with a cold run, private memory and the disk are watched.
#   tests/soak/tiers.sh [SECONDS, default 180] [BUILD, default build/release]
# Exit 0: no answer differed, memory stayed flat, the disk within its budget. Prints what was served from where.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${2:-build/release}
INVAR_SOAK_SECONDS=${1:-180} exec "$build/bin/e2e_test" --gtest_filter='TierSoak.*' --gtest_brief=1
