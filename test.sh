#!/bin/bash
# Everything CI runs: installs what is missing, builds, runs all tests through ctest. Arguments go to ctest (`./test.sh -R engine`).
#   ./test.sh [--cuda] [ctest args]
# With --cuda, as the first argument, the preset `cuda` in build/cuda takes the place of `release`: the same tests, with the CUDA module built
# too (nvcc is needed), and tests of it. Those that need a device say so and are skipped where there is none.
# Prints ctest's closing lines and, last, "N passed, N failed, N skipped". Exits non-zero when a step or a test failed.
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)
# The image build compiles the same files in another folder and without a locale; its compiler cache should still hit.
export CCACHE_BASEDIR=$root CCACHE_SLOPPINESS=locale
preset=release
cd "$root"
if [ "${1:-}" = --cuda ]; then
  preset=cuda
  shift
fi
case "${1:-}" in -h | --help) sed -n '2,6s/^# \{0,1\}//p' test.sh; exit 0 ;; esac

fail() { echo "test.sh: $*" >&2; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

tools/deps/install.sh --test || fail "installing failed"
mkdir -p build
echo "test.sh: configuring ($preset)"
cmake --preset "$preset" -DINVAR_TESTS=ON >build/configure.log 2>&1 || { tail -n 40 build/configure.log; fail "cmake failed"; }
echo "test.sh: building"
cmake --build --preset "$preset" -j"${INVAR_JOBS:-2}" >build/build.log 2>&1 || { grep -E -A12 'FAILED|error' build/build.log | head -n 60; fail "the build failed, see build/build.log"; }
echo "test.sh: testing"
status=0
junit=$root/build/$preset/tests.xml
rm -f "$junit"
ctest --test-dir "build/$preset" -j"${INVAR_JOBS:-2}" --output-on-failure --no-tests=error --output-junit "$junit" "$@" || status=$?
[ -f "$junit" ] || fail "ctest ran no test"
tests=$(sed -n 's/.*tests="\([0-9]*\)".*/\1/p' "$junit" | head -n 1)
failures=$(sed -n 's/.*failures="\([0-9]*\)".*/\1/p' "$junit" | head -n 1)
skipped=$(sed -n 's/.*skipped="\([0-9]*\)".*/\1/p' "$junit" | head -n 1)
echo "$((tests - failures - skipped)) passed, $failures failed, $skipped skipped"
exit "$status"
