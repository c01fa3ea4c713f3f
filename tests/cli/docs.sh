#!/usr/bin/env bash
# README.md and doc/*.md against the programs: the commands that they show run (tests/cli/examples.bash
# says which those are), one after the other in a folder per file, in which the files of the checkout
# stand too, and print what is shown below them, but for the numbers; where a page says that output is
# computed, numbers too, to three digits. Of those that are marked as not to be run, what they name
# must be there. Prints TAP; the programs are in $WEFT_BIN, the sources in
# $WEFT_ROOT.
# Needs: perl jq sqlite3 mpirun
set -u
here=${WEFT_ROOT:?}/tests/cli
# shellcheck source=tests/cli/tap.bash
. "$here/tap.bash"
: "${dir:?}"
# shellcheck source=tests/cli/examples.bash
. "$here/examples.bash"
n=0 failed=0

names_what_is_there() { # names_what_is_there FILE: goals of make, scripts, programs of ours
    local word path
    for word in $(grep -oE 'make [a-z-]+' "$1" | sed 's/make //'); do
        make -n O="$dir/o" "$word" >out 2>err
        ! grep 'No rule to make' err || return 1
    done
    for word in $(grep -oE '(scripts|build/gcc/tests)/[^ ]+' "$1"); do
        path=${word#build/gcc/}
        [ -e "$path" ] || [ -e "$path.c" ] || { echo "no $word" >err && return 1; }
    done
}

grep -v '^@' "$WEFT_ROOT/doc/figures.in" | grep -vxFf "$WEFT_ROOT/doc/figures.md" >err
[ $? -eq 1 ]
ok $? "doc/figures.md has what doc/figures.in says (make figures)"

for page in "$WEFT_ROOT"/README.md "$WEFT_ROOT"/doc/*.md; do
    grep -qE '^ +\$ ' "$page" || continue
    name=${page#"$WEFT_ROOT"/}
    commands=$dir/${name//\//-}.commands
    split_examples "$commands" <"$page"
    ok $? "$name: its commands can be read"
    mkdir -p "$dir/$name.run"
    cd "$dir/$name.run" || exit 1
    ln -s "$WEFT_ROOT"/* .
    rm -f bin build # those under test, whatever compiler they are of
    mkdir build
    ln -s "$WEFT_BIN" bin
    ln -s "$WEFT_BUILD" build/gcc
    for command in "$commands"/*.sh; do
        text="$name: $(head -1 "$command")"
        # make would configure anew, for itself, a build of other settings or of another checkout.
        if grep -q '^make ' "$command" && [ ! "$WEFT_BUILD" -ef "$WEFT_ROOT/build/gcc" ]; then
            echo "another build is tested" >"${command%.sh}.not"
        fi
        if [ -f "${command%.sh}.not" ]; then
            names_what_is_there "$command"
            ok $? "$text: not run ($(cat "${command%.sh}.not")), but it is there"
            continue
        fi
        run_example "$command" >out 2>err
        ok $? "$text"
        [ -f "${command%.sh}.shown" ] || continue
        same_shape "${command%.sh}.shown" out "${command%.sh}.computed"
        ok $? "$text: prints what is shown"
    done
    cd "$dir" || exit 1
done

echo "1..$n"
[ $failed -eq 0 ]
