#!/bin/bash
# Soak, run by hand: SIGTERM with 8 requests running and 8 queued, and at every moment of starting, until nothing hangs
# for long enough. Ten of the first and fifteen of the second a round.
#   tests/soak/stop_signals.sh [ROUNDS, default 5] [BUILD, default build/release]
# Exit 0: every request got an answer or a status, every process ended cleanly and in time.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
build=${2:-build/release}
exec "$build/bin/e2e_test" --gtest_repeat="$rounds" --gtest_break_on_failure --gtest_brief=1 \
  --gtest_filter='Process.EightRunningAndEightQueuedAllGetAnEndAfterATermSignal:Process.SurvivesTermSignalsAtAnyMomentOfStarting:Process.LeavesWithinASecondOfASecondSignal'
