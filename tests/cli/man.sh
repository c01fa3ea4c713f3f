#!/usr/bin/env bash
# The manual against the programs: mandoc finds nothing to complain about, every option that
# `-h` lists stands in the page and the reverse, and the examples run.
#
# What stands below a command shows its output and is not compared (tests/cli/examples.bash).
#
# Needs: mandoc perl jq sqlite3 mpirun less python3
# Prints TAP; the programs are in $WEFT_BIN, the sources in $WEFT_ROOT.
set -u
cd "${WEFT_ROOT:?}" || exit 1
bin=${WEFT_BIN:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/cli/examples.bash
. tests/cli/examples.bash
n=0 failed=0

ok() { # ok STATUS TEXT [FILE]: FILE is shown when it failed
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        [ $# -lt 3 ] || sed 's/^/# /' "$3" | head -20
        failed=$((failed + 1))
    fi
}

# ---- mandoc ---------------------------------------------------------------------------------
# It looks for other pages where the system has its own: ours are looked for here.
for page in man/*; do
    mandoc -T lint "$page" 2>&1 | grep -Ev 'outdated mandoc.db|referenced manual not found' \
        >"$work/lint"
    grep -E '^\.Xr weft' "$page" | sort -u | while read -r _ name section _; do
        [ -f "man/$name.$section" ] || echo "no page $name($section)"
    done >>"$work/lint"
    [ ! -s "$work/lint" ]
    ok $? "${page#man/}: mandoc -T lint" "$work/lint"
done

# A page as text without line breaks inside paragraphs and without emphasis.
text() {
    mandoc -T ascii -O width=1000 "$1" | sed 's/.\x08//g'
}

# ---- options --------------------------------------------------------------------------------
# Tags of a list: "-d, --data SOURCE", "--beta1 X, --beta2 X".
page_options() {
    text "$1" | sed '/^EXAMPLES/,/^[A-DF-Z]/d' | grep -E '^ +-' | grep -oE '(^ +|, )--?[A-Za-z][a-z0-9-]*' | sed 's/^[ ,]*//' | sort -u
}
help_options() {
    "$1" -h 2>/dev/null | grep -E '^ +-' | grep -oE '^ +(-[A-Za-z], +)?--[a-z0-9-]+' |
        grep -oE -- '--?[A-Za-z][a-z0-9-]*' | sort -u
}
for source in tools/*/weft-*.c; do
    tool=$(basename "$source" .c)
    [ -f "man/$tool.1" ]
    ok $? "$tool: has a page"
    [ -f "man/$tool.1" ] || continue
    help_options "$bin/$tool" >"$work/help"
    page_options "man/$tool.1" >"$work/page"
    diff "$work/help" "$work/page" >"$work/diff" && [ -s "$work/help" ]
    ok $? "$tool: -h and the page list the same options" "$work/diff"
done

# ---- examples ---------------------------------------------------------------------------------
for page in man/*; do
    name=${page#man/}
    text "$page" | grep -qE '^ +\$ ' || continue
    folder=$work/$name
    text "$page" | split_examples "$folder/commands"
    ok $? "$name: its examples can be read"
    mkdir "$folder/run"
    for command in "$folder"/commands/*.sh; do
        (cd "$folder/run" && run_example "$command") >"$work/out" 2>&1
        ok $? "$name: $(head -1 "$command")" "$work/out"
    done
done

echo "1..$n"
[ "$failed" -eq 0 ]
