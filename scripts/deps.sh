#!/bin/sh
# Installs what weft builds with and is not there yet (Debian packages).
#   scripts/deps.sh          what `make` needs and `make check` uses
set -eu
packages="gcc make pkg-config libjansson-dev libsqlite3-dev sqlite3 jq
libopenmpi-dev openmpi-bin libdnnl-dev liblpsolve55-dev libsuitesparse-dev mandoc perl clang libclang-rt-14-dev"
missing=""
for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing" >&2
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq $missing >/dev/null
