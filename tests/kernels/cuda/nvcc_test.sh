#!/bin/bash
# The CUDA toolkit's compiler takes every kernel, for one architecture. Usage: nvcc_test.sh SOURCE_ROOT FLAGS FILE...
# Exit 77 (skipped) where there is no nvcc.
set -euo pipefail
root=$1 flags=$2
shift 2
nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || [ ! -x /usr/local/cuda/bin/nvcc ] || nvcc=/usr/local/cuda/bin/nvcc
[ -n "$nvcc" ] || { echo "skipped: nvcc is not installed, so nobody knows here whether it takes the kernels"; exit 77; }
echo "$("$nvcc" --version | tail -n 1), sm_90"
compiler=("$nvcc")
command -v ccache >/dev/null && compiler=(ccache "$nvcc")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for file in "$@"; do
  # shellcheck disable=SC2086
  "${compiler[@]}" -std=c++20 $flags -Werror all-warnings -arch=sm_90 -I"$root" -c "$file" -o "$out/$(basename "$file").o"
  echo "compiled $(basename "$file")"
done
