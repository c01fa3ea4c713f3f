# tap.bash - what the tests from outside share: a folder of their own, and TAP. Source it first; it
# goes to a fresh $dir, removed at the end. The test counts in $n and $failed.
# shellcheck shell=bash
dir=$(mktemp -d)
# Not by a child that is interrupted between its fork and the program that it is to become. There the
# interrupt makes any test fail, so what removes the folder must be one that succeeds.
trap '[ "$BASHPID" -eq $$ ] && rm -rf "$dir"' EXIT
# shellcheck source=tests/today.sh
. "$(dirname "${BASH_SOURCE[0]}")/../today.sh"
cd "$dir" || exit 1

ok() { # ok STATUS TEXT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' err out 2>/dev/null | head -20
        failed=$((failed + 1))
    fi
}
is() { # is GOT WANT TEXT
    [ "$1" = "$2" ]
    ok $? "$3: $1"
}
within() { # within SECONDS: the bound, ten times that under sanitizers, which make all slow
    case ${WEFT_BUILD:-} in *address*) jq -n "$1 * 10" ;; *) echo "$1" ;; esac
}
skip() { # skip TEXT REASON
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
skip_rest() { # skip_rest TEXT REASON: nothing more can be tried; ends the test
    skip "$1" "$2"
    echo "1..$n"
    exit $((failed > 0))
}
