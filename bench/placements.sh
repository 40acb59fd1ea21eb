#!/bin/bash
# Placements of checkpoints side by side: one daemon after another that differ in cache.placement alone, same budget of bytes,
# same requests; mean time to first token. Rounds are interleaved, so that a moving neighbour hits all alike.
# Writes bench/results/DATE-placements-SHAPE.json, .md (a table) and .svg. Needs a built tree (./run.sh --build-only).
#   bench/placements.sh [--shape SHAPE] [--budget BYTES] [--documents N] [--rounds N] [--length TOKENS]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/release/bin
shape=qwen3.5-100m
budget=192MiB
documents=10
rounds=2
length=2048
placements=(optimal-dp balanced block none)
while [ $# -gt 0 ]; do
  case "$1" in
    --shape) shape=$2; shift 2 ;;
    --budget) budget=$2; shift 2 ;;
    --documents) documents=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --length) length=$2; shift 2 ;;
    *) sed -n '5s/^# *\(.*\)/usage: \1/p' "$0" >&2; exit 2 ;;
  esac
done
. "$root/bench/daemon.sh"

"$bin/invar" make-model --shape "$shape" --out "$work/model" >&2
: >"$work/runs"
for round in $(seq "$rounds"); do
  for workload in quality narrative system-prompts; do
    for placement in "${placements[@]}"; do
      start_daemon --model "$work/model" --set engine.kv_budget="$budget" --set cache.placement="$placement" --set cache.planned_checkpoints_max=4
      say "round $round, $workload, $placement"
      result=$("$bin/invar" bench placement --server "$address" --workload "$workload" \
        --documents "$documents" --length "$length" --vocabulary 250 --seed "$round" --json)
      echo "{\"round\": $round, \"placement\": \"$placement\", \"result\": $result}" >>"$work/runs"
      stop_daemon
    done
  done
done
out=$root/bench/results/$(date +%F)-placements-$shape
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
python3 "$root/bench/placements_report.py" --runs "$work/runs" --out "$out" --commit "$commit" --shape "$shape" --budget "$budget" --documents "$documents" --length "$length"
say "wrote ${out#"$root"/}.json, .md and .svg"
