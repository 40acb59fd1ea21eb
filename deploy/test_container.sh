#!/bin/bash
# Builds the image of deploy/Containerfile from source and starts it, without a container daemon and without pulling an image:
# mmdebstrap makes the Debian base, buildah builds and runs with chroot isolation (host network, no namespaces, so it works inside most
# sandboxes). Then: what the image promises (user, entry point, health check, ports), an answer over loopback, a clean SIGTERM.
# Everything lies in build/container; the Debian bases are kept there, so a second run is short. Needs root.
#   deploy/test_container.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/build/container
log=$work/build.log
base=localhost/invar-test-base
build_base=localhost/invar-test-build-base
image=localhost/invar-test
ccache_dir=${CCACHE_DIR:-$HOME/.cache/ccache}

fail() {
  echo "test_container: $*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || { echo "test_container: skipped, needs root (mmdebstrap and chroot isolation)"; exit 77; }
mkdir -p "$work" "$ccache_dir"
cat >"$work/storage.conf" <<CONF
[storage]
driver = "vfs"
graphroot = "$work/storage"
runroot = "$work/run"
CONF
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >"$work/policy.json"
export CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot
mkdir -p /etc/containers

quietly() { "$@" >>"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "failed: $* (whole output in $log)"; }; }
has_image() { buildah inspect --type image "$1" >/dev/null 2>&1; }

# The bases are named after what they hold, so that a changed package list makes new ones.
build_tag=$(sha256sum "$root/tools/deps/build.txt" | cut -c1-12)

make_bases() {
  if ! has_image "$base"; then
    echo "test_container: making a Debian base"
    quietly mmdebstrap --variant=minbase --quiet bookworm "$work/base.tar"
    local container
    container=$(buildah from scratch)
    quietly buildah add --quiet "$container" "$work/base.tar" /
    quietly buildah commit --quiet --rm "$container" "$base"
    rm -f "$work/base.tar"
  fi
  if ! has_image "$build_base:$build_tag"; then
    echo "test_container: making a base with the build packages"
    local container
    container=$(buildah from --pull-never "$base")
    quietly buildah run "$container" -- apt-get update -qq
    quietly buildah run "$container" -- env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      $(grep -hv '^#' "$root/tools/deps/build.txt")
    quietly buildah commit --quiet --rm "$container" "$build_base:$build_tag"
  fi
}

build_image() {
  echo "test_container: building the image from source"
  # The compiler cache of this machine makes the second compilation short; the commands are those that ship.
  quietly buildah bud --isolation chroot --pull-never --format docker --signature-policy "$work/policy.json" \
    --build-arg BUILD_BASE="$build_base:$build_tag" --build-arg RUNTIME_BASE="$base" \
    --volume "$ccache_dir:/root/.cache/ccache" -f "$root/deploy/Containerfile" -t "$image" "$root"
}

expect_in_image() {
  local description
  description=$(buildah inspect --type image --format "$1" "$image")
  [[ $description == *"$2"* ]] || fail "the image should say $2 for $1, it says: $description"
}

check_promises() {
  expect_in_image '{{.Docker.Config.User}}' 10001:10001
  expect_in_image '{{.Docker.Config.Entrypoint}}' '[/usr/local/bin/invard]'
  expect_in_image '{{.Docker.Config.Healthcheck.Test}}' readyz
  expect_in_image '{{.Docker.Config.ExposedPorts}}' 50051/tcp
  expect_in_image '{{.Docker.Config.ExposedPorts}}' 9464/tcp
  expect_in_image '{{.Docker.Config.Labels}}' org.opencontainers.image.licenses:Apache-2.0
}

# The daemon runs below `buildah run`; signals must reach it, not its wrapper.
descendant_named() {
  local child
  for child in $(pgrep -P "$1"); do
    if [ "$(cat "/proc/$child/comm" 2>/dev/null)" = "$2" ]; then
      echo "$child"
      return 0
    fi
    descendant_named "$child" "$2" && return 0
  done
  return 1
}

container=
runner=
clean_up() {
  local daemon
  if [ -n "$runner" ] && daemon=$(descendant_named "$runner" invard); then kill -TERM "$daemon" 2>/dev/null || true; fi
  [ -z "$container" ] || buildah rm "$container" >/dev/null 2>&1 || true
}

# The command of the image's HEALTHCHECK, at the port this daemon chose.
healthcheck() {
  local port=${1##*:}
  buildah inspect --type image --format '{{index .Docker.Config.Healthcheck.Test 3}}' "$image" | sed "s,/127.0.0.1/9464,/127.0.0.1/$port,"
}

in_container() { buildah run --isolation chroot --user 10001:10001 "$container" -- "$@"; }

start_daemon() {
  container=$(buildah from --pull-never "$image")
  in_container /usr/local/bin/invard --config /etc/invar/invard.yaml --set server.listen=127.0.0.1:0 \
    --set ops.listen=127.0.0.1:0 >"$work/daemon.out" 2>"$work/daemon.log" &
  runner=$!
  local tries=0
  grpc= ops=
  until [ -n "$ops" ] && in_container /bin/bash -c "$(healthcheck "$ops")" 2>/dev/null; do
    kill -0 "$runner" 2>/dev/null && [ "$tries" -lt 300 ] || { cat "$work/daemon.out" "$work/daemon.log" >&2; fail "invard did not start in the image"; }
    sleep 0.2
    tries=$((tries + 1))
    # One look for both: the line may come between two.
    read -r grpc ops < <(sed -n 's/^listening grpc=\([^ ]*\) ops=\([^ ]*\)$/\1 \2/p' "$work/daemon.out") || true
  done
  echo "test_container: invard answers on $grpc, ops on $ops, and is healthy"
}

smoke_test() {
  local answer daemon status=0
  answer=$(in_container /usr/local/bin/invar generate --server "$grpc" --text "The function returns" --max-tokens 8 --temperature 0)
  [ -n "$answer" ] || fail "the daemon in the image gave an empty answer"
  daemon=$(descendant_named "$runner" invard) || fail "cannot find the process of invard"
  [ "$(awk '/^Uid:/ {print $2}' "/proc/$daemon/status")" = 10001 ] || fail "invard does not run as uid 10001"
  kill -TERM "$daemon"
  wait "$runner" || status=$?
  runner=
  [ "$status" = 0 ] || { tail -n 20 "$work/daemon.log" >&2; fail "invard ended with $status after SIGTERM, not 0"; }
}

: >"$log"
make_bases
build_image
check_promises
trap clean_up EXIT
start_daemon
smoke_test
echo "test_container: passed"
