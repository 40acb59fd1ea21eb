# Sourced by benches that run a daemon: start_daemon, stop_daemon. Uses $bin (the built programs); sets `work` (a folder of the bench's
# own, gone at its end, as the daemon is), `daemon` (process id, empty when none runs) and `address` (of its gRPC port).
[ -x "$bin/invar" ] && [ -x "$bin/invard" ] || { echo "${0##*/}: build first: ./run.sh --build-only" >&2; exit 1; }
work=$(mktemp -d)
daemon=
address=
clean_up() {
  stop_daemon
  rm -rf "$work"
}
trap clean_up EXIT
say() { echo "$(basename "$0" .sh): $*" >&2; }

# start_daemon OPTION...: waits until it serves; where it ends before that, its log goes to stderr and the bench ends.
start_daemon() {
  : >"$work/out"
  "$bin/invard" --set server.listen=127.0.0.1:0 --set ops.listen=127.0.0.1:0 "$@" >"$work/out" 2>"$work/log" &
  daemon=$!
  until address=$(sed -n 's/^listening grpc=\([^ ]*\).*/\1/p' "$work/out") && [ -n "$address" ]; do
    kill -0 "$daemon" 2>/dev/null || { daemon=; cat "$work/log" >&2; exit 1; }
    sleep 0.01
  done
}

stop_daemon() {
  [ -n "$daemon" ] || return 0
  kill -TERM "$daemon" 2>/dev/null || true
  wait "$daemon" 2>/dev/null || true
  daemon=
}
