#!/bin/sh
# Installs what is missing of what a target uses (Debian packages), and says so before.
#   scripts/deps.sh TARGET [PACKAGE...]
# PACKAGEs are the libraries that make did not find (scripts/probe.sh); the programs that TARGET
# runs are looked for here. With DEPS=no in the environment it only says what is missing.
set -eu
target=$1
shift
missing=$*

program() { # program PACKAGE COMMAND...: the package is missing when the command fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
tools() {
    program openmpi-bin command -v mpirun
    program jq command -v jq
    program sqlite3 command -v sqlite3
}
case "$target" in
demo) tools ;;
check)
    tools
    program g++ command -v g++
    program gnuplot-nox command -v gnuplot
    program less command -v less
    program mandoc command -v mandoc
    program perl perl -e 1
    program procps command -v pgrep
    program python3-jsonschema python3 -c 'import jsonschema; jsonschema.Draft202012Validator'
    ;;
plots)
    tools
    program gnuplot-nox command -v gnuplot
    ;;
fuzz)
    program clang command -v clang
    program libclang-rt-14-dev sh -c 'echo "int LLVMFuzzerTestOneInput(void) { return 0; }" |
        clang -fsanitize=fuzzer,address -x c - -o /dev/null'
    program libomp-dev sh -c 'echo "int main(void) { return 0; }" |
        clang -fopenmp -x c - -o /dev/null'
    ;;
lint)
    program clang-format command -v clang-format
    program clang-tidy command -v clang-tidy
    program mandoc command -v mandoc
    program shellcheck command -v shellcheck
    ;;
*)
    echo "deps.sh: no such target: $target (demo, check, plots, fuzz, lint)" >&2
    exit 2
    ;;
esac
missing=$(echo "$missing" | tr ' ' '\n' | sed '/^$/d' | sort -u | tr '\n' ' ')
[ -n "$missing" ] || exit 0
if [ "${DEPS:-}" = no ]; then
    echo "deps: not here: $missing(make deps-$target brings them)" >&2
    exit 0
fi

sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
echo "deps: installing with ${sudo:+$sudo }apt-get (DEPS=no does without): $missing" >&2
for command in apt-get $sudo; do
    command -v "$command" >/dev/null && continue
    echo "deps: $command is not here; install them in your own way, then say DEPS=no" >&2
    exit 1
done
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
