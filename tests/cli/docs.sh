#!/usr/bin/env bash
# README.md and doc/*.md against the programs: the commands that they show run (tests/cli/examples.bash
# says which those are), one after the other in a folder per file, in which the files of the checkout
# stand too, and print what is shown below them, but for the numbers. Prints TAP; the programs are in
# $WEFT_BIN, the sources in $WEFT_ROOT.
# Needs: perl jq sqlite3 mpirun
set -u
here=$(dirname "$0")
# shellcheck source=tests/cli/tap.bash
. "$here/tap.bash"
# shellcheck source=tests/cli/examples.bash
. "$here/examples.bash"
n=0 failed=0

for page in "${WEFT_ROOT:?}"/README.md "$WEFT_ROOT"/doc/*.md; do
    grep -qE '^ +\$ ' "$page" || continue
    name=${page#"$WEFT_ROOT"/}
    commands=$dir/${name//\//-}.commands
    split_examples "$commands" <"$page"
    ok $? "$name: its commands can be read"
    mkdir -p "$dir/$name.run"
    cd "$dir/$name.run" || exit 1
    ln -s "$WEFT_ROOT"/* .
    for command in "$commands"/*.sh; do
        text="$name: $(head -1 "$command")"
        if [ -f "${command%.sh}.not" ]; then
            skip "$text" "$(cat "${command%.sh}.not")"
            continue
        fi
        run_example "$command" >out 2>err
        ok $? "$text"
        [ -f "${command%.sh}.shown" ] || continue
        same_shape "${command%.sh}.shown" out
        ok $? "$text: prints what is shown"
    done
    cd "$dir" || exit 1
done

echo "1..$n"
[ $failed -eq 0 ]
