#!/bin/bash
# All benches of this machine in one go: kernels and model against the machine's limits, then the daemon under load.
# Writes bench/results/DATE-NAME.json (everything) and .md (a table to read) with machine, commit and commands, since a number without
# them says nothing. Needs a built tree (./run.sh --build-only).
#   bench/run_all.sh [--name NAME] [--model DIR] [--shape SHAPE] [--quick]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/release/bin
name=$(hostname)
model=$root/assets/tiny-hybrid
shape=qwen3.5-0.8b
quick=0
while [ $# -gt 0 ]; do
  case "$1" in
    --name) name=$2; shift 2 ;;
    --model) model=$2; shift 2 ;;
    --shape) shape=$2; shift 2 ;;
    --quick) quick=1; shift ;;
    *) sed -n '5s/^# *\(.*\)/usage: \1/p' "$0" >&2; exit 2 ;;
  esac
done
. "$root/bench/daemon.sh"

say "kernels"
"$bin/invar" bench kernels --json >"$work/kernels.json"
say "model $shape"
"$bin/invar" bench model --shape "$shape" --json >"$work/model.json"

say "daemon on $(basename "$model")"
start_daemon --model "$model"
for workload in single chat open; do
  say "workload $workload"
  requests=()
  [ "$quick" = 0 ] || requests=(--requests 20)
  "$bin/invar" bench serve --server "$address" --workload "$root/bench/workloads/$workload.yaml" "${requests[@]}" --json >"$work/serve-$workload.json"
done

out=$root/bench/results/$(date +%F)-$name
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
python3 "$root/bench/report.py" --work "$work" --out "$out" --commit "$commit" --model "$(basename "$model")"
say "wrote ${out#"$root"/}.json and .md"
