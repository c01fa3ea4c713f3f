#!/usr/bin/env bash
# weft-keep with ranks on several hosts, each with its own memory and an agent: a host dies with all that was in its
# memory; hosts are checked. tests/cli/keep-hosts-long.sh has what takes a quiet machine.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep pkill setsid
set -u
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
# shellcheck source=tests/cli/keep-hosts.bash
. "$(dirname "$0")/keep-hosts.bash"

# ---- a host dies -----------------------------------------------------------------
: >lines
: >said
touch fails.127.0.0.3
# shellcheck disable=SC2119  # without options
begin
says 'mpirun started no rank: a daemon of it could not begin'
further 8
find "$(memory 2)" -name 'rank-0001.*' | grep -q .
ok $? 'a host has a copy of what the rank of another has in memory'
folder=$(memory 1)
touch down.127.0.0.3
of_host KILL 127.0.0.3
rm -rf "$folder"
says 'host 127.0.0.3 was lost'
says 'host 127.0.0.3 is left out: it does not answer'
says 'step [0-9]* is in memory: [0-9]* files came from peers'
is "$(find ck -name 'step-*' | wc -l)" 0 'and none from the disk, where nothing is'
further 4
first=$(twice)
[ "$first" -le $behind ]
ok $? "$first steps are done twice"
kill -TERM $pid
wait $pid
is "$?" 5 'SIGTERM stops it'
"${run[@]}" -n "$(jq -s 'map(.step) | max' lines)" one.json >whole 2>err
jq -es --slurpfile whole whole 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
ok $? "with the losses of one rank that nobody disturbed, in $(jq -s 'map(.step) | max' lines) steps"

# ---- hosts are checked ---------------------------------------------------------------------------------
# To the last nobody can connect; all answer to the remote shell.
rm -f down.*
odd=127.0.0.2:1,127.0.0.3:1,127.0.0.4:1,255.255.255.255:1
"$bin/weft-keep" --check -H $odd >checked 2>err
is "$? $(jq -c '[.format, (.hosts | length), (.links | length > 3)]' checked)" '1 ["weft-check/1",4,true]' 'four hosts are checked'
jq -e '.hosts[3] | .state == "bad" and .host == "255.255.255.255" and (.why | test("no link of it is good"))' checked >/dev/null
ok $? "one is bad: $(jq -r '.hosts[3].why' checked)"
jq -e 'all(.hosts[]; .products_flops_per_s > 0 and .memory_bytes_per_s > 0 and .disk_bytes_per_s > 0) and
    all(.hosts[:3][]; .why // "" | test("no link") | not)' checked >/dev/null
ok $? 'all are measured, and no other is blamed for its links'
"$bin/weft-keep" --check --text >out 2>err
is "$? $(grep -c 'this machine .* good' out)" '0 1' "this machine alone: $(tail -n 1 out)"

echo "1..$n"
[ "$failed" -eq 0 ]
