#!/usr/bin/env bash
# weft-keep with ranks on several hosts, where it depends on times: a host comes back; an agent dies, falls silent; the supervisor is
# killed; a host stands still; a copy in a peer's memory is damaged; a host is slow; a bad one is left out beforehand.
# Only where WEFT_LONG is set (make check-long), for on a busy machine other things happen first.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep pkill setsid
set -u
[ -n "${WEFT_LONG:-}" ] || { echo "1..0 # SKIP takes a quiet machine: make check-long"; exit; }
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
# shellcheck source=tests/cli/keep-hosts.bash
. "$(dirname "$0")/keep-hosts.bash"

: >lines
: >said
begin
further 8

# ---- a host dies, and comes back -----------------------------------------------------------------
touch down.127.0.0.3
of_host KILL 127.0.0.3
says 'host 127.0.0.3 is left out: it does not answer'
further 4
rm down.127.0.0.3
says 'host 127.0.0.3 is taken in'
says 'going on with 3 ranks in place of 2'
runs_on 127.0.0.3
touch down.127.0.0.3
of_host KILL 127.0.0.3
says 'host 127.0.0.3 is left out' 2
sleep 15 # is asked in vain often, and none the less seldom for that
rm down.127.0.0.3
at=$(date +%s%N)
says 'host 127.0.0.3 is taken in' 2
took=$((($(date +%s%N) - at) / 1000000))
[ "$took" -lt 6000 ]
ok $? "one that was away for long is taken in after $took ms"
says 'going on with 3 ranks in place of 2' 2
runs_on 127.0.0.3

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
[ "$(($(twice) - before))" -le $behind ]
ok $? "the supervisor is killed: $(($(twice) - before)) steps are done twice"
at=$(date +%s%N)
of_host STOP 127.0.0.4
says 'host 127.0.0.4 was lost'
took=$((($(date +%s%N) - at) / 1000000))
[ "$took" -lt 4000 ]
ok $? "a host that is silent is found lost after $took ms"
of_host KILL 127.0.0.4
further 5
own=$(shared)
kill -TERM $pid
wait $pid
is "$?" 5 'SIGTERM stops it'
tries=100 # an agent that was only just started removes what it has made a little later
while [ -e "$own" ] && [ $((tries--)) -gt 0 ]; do sleep 0.1; done
[ -n "$own" ] && [ ! -e "$own" ]
ok $? "nothing stays in shared memory"

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

# ---- a bad host is left out beforehand -----------------------------------------------------------------
rm -f down.*
"$bin/weft-keep" --checks -H 127.0.0.2:1,127.0.0.3:1,255.255.255.255:1 --plans two.json -- "${run[@]}" -n 3 --save new three.json >out 2>said
is "$? $(wc -l <out)" '0 3' "a run begins without the bad one: $(tail -n 1 said)"
says 'host 255.255.255.255 is left out: no link of it is good'

"${run[@]}" -n "$(jq -s 'map(.step) | max' lines)" one.json >whole 2>err
jq -es --slurpfile whole whole 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
ok $? "with the losses of one rank that nobody disturbed, in $(jq -s 'map(.step) | max' lines) steps"

echo "1..$n"
[ "$failed" -eq 0 ]
