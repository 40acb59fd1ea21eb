#!/bin/bash
# From starting the daemon to the first token of its first answer, where the packed file of the weights lies beside the model:
# milliseconds until it serves, and until the token is there, a line a start. The first start of the folder is not one of them,
# since it packs the weights.
# Needs a built tree (./run.sh --build-only).
#   bench/warm_start.sh [--model DIR] [--shape SHAPE] [--starts N]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/release/bin
model=
shape=qwen3.5-0.8b
starts=5
while [ $# -gt 0 ]; do
  case "$1" in
    --model) model=$2; shift 2 ;;
    --shape) shape=$2; shift 2 ;;
    --starts) starts=$2; shift 2 ;;
    *) sed -n '6s/^# *\(.*\)/usage: \1/p' "$0" >&2; exit 2 ;;
  esac
done
. "$root/bench/daemon.sh"

if [ -z "$model" ]; then
  model=$work/model
  "$bin/invar" make-model --shape "$shape" --out "$model" >&2
fi
say "packing the weights"
start_daemon --model "$model"
stop_daemon
echo "serves_ms first_token_ms"
for _ in $(seq "$starts"); do
  begin=$(date +%s%N)
  start_daemon --model "$model"
  serves=$(date +%s%N)
  "$bin/invar" generate --server "$address" --text a --max-tokens 1 --temperature 0 >/dev/null
  answered=$(date +%s%N)
  stop_daemon
  echo "$(((serves - begin) / 1000000)) $(((answered - begin) / 1000000))"
done
