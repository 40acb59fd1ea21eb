#!/bin/bash
# From a clean clone to a first answer: installs what is missing, builds, starts invard on the embedded model and streams a chat.
#   ./run.sh                     chat in the terminal (one answer when stdin is no terminal)
#   ./run.sh --once "prompt"     one answer, then the daemon stops
#   ./run.sh --build-only        only binaries in build/release/bin
#   ./run.sh --model DIR         another model folder
set -euo pipefail
root=$(cd "$(dirname "$0")" && pwd)
# The image build compiles the same files in another folder and without a locale; its compiler cache should still hit.
export CCACHE_BASEDIR=$root CCACHE_SLOPPINESS=locale
bin=$root/build/release/bin
model=$root/assets/tiny-hybrid
prompt="Hello, my name is Clara."
once=0
build_only=0

usage() { sed -n '2,6s/^# \{0,1\}//p' "$root/run.sh"; }
fail() { echo "run.sh: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case "$1" in
    --once) [ $# -ge 2 ] || { usage >&2; exit 2; }; once=1; prompt=$2; shift 2 ;;
    --model) [ $# -ge 2 ] || { usage >&2; exit 2; }; model=$2; shift 2 ;;
    --build-only) build_only=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done
# Said before a build of minutes, and taken from the caller's folder: the build moves to its own.
[ -f "$model/config.json" ] || fail "$model is no model folder: it has no config.json"
model=$(cd "$model" && pwd)

build() {
  local log=$root/build/build.log
  "$root/tools/deps/install.sh"
  cd "$root"
  # Tests are built by test.sh. A configured tree keeps its choice, so that the two scripts do not undo each other.
  if [ ! -f build/release/build.ninja ]; then
    echo "run.sh: configuring" >&2
    cmake --preset release -DINVAR_TESTS=OFF >"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "cmake failed, see $log"; }
  fi
  echo "run.sh: building (the first time takes minutes)" >&2
  if [ -t 2 ]; then
    cmake --build --preset release -j"${INVAR_JOBS:-2}" --target invard invar >&2 || fail "the build failed"
  else
    cmake --build --preset release -j"${INVAR_JOBS:-2}" --target invard invar >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "the build failed, see $log"; }
  fi
}

daemon=
work=
stop() {
  if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
    kill -TERM "$daemon"
    wait "$daemon" 2>/dev/null || true
  fi
  [ -z "$work" ] || rm -rf "$work"
}

# The ops port says when the model is loaded; bash opens the socket, so that no HTTP client is needed.
ready() {
  (exec 3<>"/dev/tcp/${1%:*}/${1##*:}" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && grep -q '^HTTP/1.. 200' <&3) 2>/dev/null
}

# Sets `address` once the daemon serves; the ports are its own choice.
start() {
  work=$(mktemp -d)
  trap stop EXIT
  trap 'exit 130' INT TERM
  : >"$work/out"  # Read below, maybe before the daemon's process opens it.
  "$bin/invard" --model "$model" --set server.listen=127.0.0.1:0 --set ops.listen=127.0.0.1:0 >"$work/out" 2>"$work/log" &
  daemon=$!
  local waited=0 ops=
  address=
  until [ -n "$ops" ] && ready "$ops"; do
    if ! kill -0 "$daemon" 2>/dev/null; then
      daemon=
      cat "$work/log" >&2
      fail "invard did not start"
    fi
    # One look for both: the line may come between two.
    read -r address ops < <(sed -n 's/^listening grpc=\([^ ]*\) ops=\([^ ]*\)$/\1 \2/p' "$work/out") || true
    # Large models take a while to pack the first time; a tenth of a second is not noticed.
    sleep 0.1
    waited=$((waited + 1))
    [ "$waited" -lt 6000 ] || fail "invard was not ready within ten minutes"
  done
}

# The prompt as a chat of one message, in JSON: bash knows no zero byte, every other control character is escaped.
chat_file() {
  local escaped=${1//\\/\\\\} code character
  escaped=${escaped//\"/\\\"}
  for code in {1..31}; do
    printf -v character "\\x$(printf %x "$code")"
    escaped=${escaped//"$character"/$(printf '\\u%04x' "$code")}
  done
  printf '{"messages": [{"role": "user", "content": "%s"}]}' "$escaped" >"$work/chat.json"
}

build
[ "$build_only" = 0 ] || exit 0
start
if [ "$once" = 1 ] || [ ! -t 0 ]; then
  chat_file "$prompt"
  "$bin/invar" generate --server "$address" --chat "$work/chat.json" --max-tokens 128 || fail "the daemon gave no answer: $(tail -n 3 "$work/log")"
else
  echo "run.sh: invard serves $(basename "$model") on $address; end the chat with Ctrl-D" >&2
  "$bin/invar" chat --server "$address"
fi
