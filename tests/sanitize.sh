#!/bin/bash
# Builds and runs the suites under a sanitizer, by hand: a build of its own takes most of an hour on two cores.
#   tests/sanitize.sh asan   addresses, leaks and undefined behaviour: every suite but the container's
#   tests/sanitize.sh tsan   data races: every suite in which threads of ours meet, the daemon end to end last
# More arguments go to ctest. INVAR_JOBS: compile jobs, default 2. Exit 0: no report, all passed.
# gRPC, protobuf and what else comes from the distribution is not instrumented: proto/grpc_order.cc tells the thread
# sanitizer what it orders, tests/tsan_suppressions.txt says which reports that costs.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-}
case "$preset" in
  asan) suites=all; tests=() ;;
  tsan)
    suites="base_test config_test kernels_test models_test cache_test cache_checkpoint_test cache_tiers_test"
    suites+=" engine_test engine_law_test tier_law_test server_test e2e_test"
    tests=(-R "^(${suites// /|})$")
    ;;
  *)
    sed -n '2,5s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
shift
# Without detect_stack_use_after_return: GCC 12 misaligns 64-byte vectors on that stack (GCC bug 110027), a crash in
# code for AVX-512.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=0:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=0:second_deadlock_stack=1:suppressions=$PWD/tests/tsan_suppressions.txt}
cmake --preset "$preset" -DINVAR_TESTS=ON
# shellcheck disable=SC2086
cmake --build "build/$preset" -j"${INVAR_JOBS:-2}" --target $suites
ctest --test-dir "build/$preset" -j1 --output-on-failure --no-tests=error -E '^container_test$' "${tests[@]}" "$@"
