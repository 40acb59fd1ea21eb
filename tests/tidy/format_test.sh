#!/bin/bash
# Every C++ file is formatted as .clang-format says. Usage: format_test.sh ROOT. Exit 77 (skipped) where clang-format is missing.
set -euo pipefail
cd "$1"
formatter=build/venv/bin/clang-format
[ -x "$formatter" ] || formatter=$(command -v clang-format-14 || command -v clang-format || true)
[ -n "$formatter" ] || { echo "clang-format is not installed"; exit 77; }
find base config kernels models cache engine server tools bench tests \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -print0 |
  xargs -0 -n 16 -P 2 "$formatter" --dry-run -Werror --style=file 2>&1 | grep -E 'error:' | head -n 40 >"${TMPDIR:-/tmp}/invar-format.$$" || true
trap 'rm -f "${TMPDIR:-/tmp}/invar-format.$$"' EXIT
if [ -s "${TMPDIR:-/tmp}/invar-format.$$" ]; then
  cat "${TMPDIR:-/tmp}/invar-format.$$"
  echo "run: $formatter -i FILE"
  exit 1
fi
