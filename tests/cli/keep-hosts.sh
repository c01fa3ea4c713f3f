#!/usr/bin/env bash
# weft-keep with ranks on several hosts, each with its own memory and an agent: a host dies with all that was in its
# memory, falls silent, loses its agent alone; a copy in a peer's memory is damaged; the supervisor is killed. Hosts are
# addresses of this machine, reached by a program in place of ssh.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep pkill setsid
set -u
bin=${WEFT_BIN:?}
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_rmaps_base_oversubscribe=1

cat >three.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=4,seq=16,dropout=0.1",
 "batch": 12, "stages": [{"mesh": "dp:3", "layout": {"dp": "batch"}, "zero": 1}]}
END
jq '.stages[0].mesh = "dp:2"' three.json >two.json
jq '.stages = [{}]' three.json >one.json
cat >agent <<'END'
#!/bin/sh
[ ! -e "down.$1" ] || exit 255
host=$1
shift
exec setsid sh -c "echo \$\$ >>sessions.$host; $*"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$PWD/agent
run=("$bin/weft-run" -q --threads 1 --warmup 15 --decay-steps 900)

begin() { # begin [OPTION...]: the supervisor in $pid
    "$bin/weft-keep" --peers 1 --retry 0.5s -H 127.0.0.2:1,127.0.0.3:1,127.0.0.4:1 --plans two.json "$@" -- \
        "${run[@]}" -n 1000000 --memory-every 1 --save ck three.json >>lines 2>>said </dev/null &
    pid=$!
}
await() { # await LINES: of metrics
    local tries=400
    while [ "$(wc -l <lines)" -lt "$1" ] && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
}
further() { await $(($(wc -l <lines) + $1)); }
says() { # says PATTERN [TIMES]
    local tries=600 times=${2:-1}
    while [ "$(grep -c "$1" said)" -lt "$times" ] && [ $((tries--)) -gt 0 ]; do sleep 0.02; done
    [ "$(grep -c "$1" said)" -ge "$times" ]
    ok $? "says: $(grep "$1" said | tail -n 1)"
}
of_host() { # of_host SIGNAL HOST: to all processes of it
    local s
    while read -r s; do pkill "-$1" -s "$s"; done <"sessions.$2"
}
agent_of() { # agent_of HOST: of one that is up
    local s
    while read -r s; do pgrep -s "$s" weft-keep; done <"sessions.$1" | tail -n 1
}
memory() { # memory NUMBER: of a host
    find /dev/shm -maxdepth 2 -path "*/weft-keep-$(id -u)-*/host-$1" -newer three.json
}
twice() { jq -s 'map(.step) | length - (unique | length)' lines; }

# ---- a host dies, and comes back -----------------------------------------------------------------
: >lines
: >said
begin
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
[ "$first" -le 2 ]
ok $? "$first steps are done twice"
rm down.127.0.0.3
says 'host 127.0.0.3 is taken in'
says 'going on with 3 ranks in place of 2'
further 4

# ---- an agent, the supervisor, a host that is silent -----------------------------------------------
attempts=$(grep -c 'starting again' said)
kill -KILL "$(agent_of 127.0.0.3)"
says 'the agent of host 127.0.0.3 died; it is started again'
further 6
quiet=$(agent_of 127.0.0.4)
kill -STOP "$quiet"
sleep 2
kill -CONT "$quiet"
further 4
is "$(grep -c 'starting again' said)" "$attempts" 'the loss of an agent, or its silence, interrupts no steps'
kill -KILL $pid
wait $pid 2>/dev/null
before=$(twice)
begin
says 'ended with its supervisor'
further 5
[ "$(($(twice) - before))" -le 2 ]
ok $? "the supervisor is killed: $(($(twice) - before)) steps are done twice"
at=$(date +%s%N)
of_host STOP 127.0.0.4
says 'host 127.0.0.4 was lost'
took=$((($(date +%s%N) - at) / 1000000))
[ "$took" -lt 4000 ]
ok $? "a host that is silent is found lost after $took ms"
of_host KILL 127.0.0.4
further 5
kill -TERM $pid
wait $pid
is "$?" 5 'SIGTERM stops it'
left() { find /dev/shm -maxdepth 1 -newer three.json -name 'weft-keep-*' -user "$(id -u)"; }
tries=100 # an agent that was only just started removes what it has made a little later
while [ -n "$(left)" ] && [ $((tries--)) -gt 0 ]; do sleep 0.1; done
is "$(left)" '' 'nothing stays in shared memory'

# ---- copies that are worth nothing -------------------------------------------------------------------
on_disk() { find ck -name 'step-*' | sort | tail -n 1; }
begin --copy-every 5s # what is in memory is newer for most of the time
further 4
was=$(on_disk) tries=400
while [ "$(on_disk)" = "$was" ] && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
further 6
kill -STOP $pid
folder=$(memory 1)
touch down.127.0.0.3
of_host KILL 127.0.0.3
rm -rf "$folder"
for f in "$(memory 2)"/memory/step-*/rank-0001.safetensors; do
    printf damage | dd of="$f" bs=1 seek=3000 conv=notrunc 2>/dev/null
done
kill -CONT $pid
says 'rank-0001.safetensors: is not what was written'
says 'in memory lacks rank-0001.safetensors, which no host has; going on from step [0-9]* on disk'
further 5
kill -TERM $pid
wait $pid
is "$?" 5 'damaged copies in memory are passed over'

# ---- a slow host ---------------------------------------------------------------------------------------
rm -f down.*
cat >eight.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=8,hidden=64,heads=4,seq=32,dropout=0.1",
 "batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}
END
slow=("$bin/weft-run" -q --threads 1 --warmup 15 --decay-steps 900)
mv lines lines.three
: >lines
: >said
"$bin/weft-keep" --peers 1 -H 127.0.0.2:1,127.0.0.3:1 -- "${slow[@]}" -n 1000000 --save slow eight.json >>lines 2>>said </dev/null &
pid=$!
further 2
rank=$(while read -r s; do pgrep -s "$s" weft-run; done <sessions.127.0.0.3 | tail -n 1)
tries=500 # it stands still for three quarters of the time
while ! grep -q 'hosts differ: going on' said && [ $((tries--)) -gt 0 ] && kill -STOP "$rank"; do
    sleep 0.06
    kill -CONT "$rank"
    sleep 0.02
done
says 'rank 1 on 127.0.0.3 took [0-9.]* times as long as its peers'
says 'hosts differ: going on with slow/plan-2-.*.json'
further 5
kill -TERM $pid
wait $pid
is "$?" 5 'a slow host gets less to do'
jq -e '.cluster.groups | length == 2 and (.[0].speed // 1) > .[1].speed' slow/plan-2-*.json >/dev/null
ok $? "the plan is for hosts with speeds $(jq -c '[.cluster.groups[].speed]' slow/plan-2-*.json)"
jq '.stages = [{}]' eight.json >one-eight.json
"${slow[@]}" -n "$(jq -s 'map(.step) | max' lines)" one-eight.json >whole 2>err
jq -es --slurpfile whole whole 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
ok $? "with the losses of one rank in $(jq -s 'map(.step) | max' lines) steps"
mv lines.three lines

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
"$bin/weft-keep" --checks -H 127.0.0.2:1,127.0.0.3:1,255.255.255.255:1 --plans two.json -- "${run[@]}" -n 3 --save new three.json >out 2>said
is "$? $(wc -l <out)" '0 3' 'a run begins without the bad one'
says 'host 255.255.255.255 is left out: no link of it is good'

"${run[@]}" -n "$(jq -s 'map(.step) | max' lines)" one.json >whole 2>err
jq -es --slurpfile whole whole 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
ok $? "with the losses of one rank that nobody disturbed, in $(jq -s 'map(.step) | max' lines) steps"

echo "1..$n"
[ "$failed" -eq 0 ]
