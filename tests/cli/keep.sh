#!/usr/bin/env bash
# weft-keep: ranks, mpirun and the supervisor itself are killed, a rank is stopped, and the run comes to its end
# with the losses of one that nobody disturbed; what only a person can mend ends it with one line.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep pkill setsid
set -u
bin=${WEFT_BIN:?}
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

cat >two.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=4,seq=16,dropout=0.1",
 "batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}, "zero": 1}]}
END
jq '.stages = [{}]' two.json >one.json
steps=150
command=("$bin/weft-keep" --hang 1s --
    "$bin/weft-run" -q --threads 1 -n "$steps" --save ck --memory-every 1 --metrics kept)

keep() { # keep ARGS...: leaves $status, out, err
    timeout 120 "$bin/weft-keep" "$@" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT ARGS...: one line, and nothing trained
    local want=$1 pattern=$2 text=$3
    shift 3
    keep "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-keep: error: $pattern" err
    ok $? "$text: $(grep -m1 '^weft-keep: error' err) (exit $status)"
}
begin() { # begin PLAN: the supervisor in $pid
    "${command[@]}" "$1" >>lines 2>>said </dev/null &
    pid=$!
}
mpirun_of() { pgrep -P "$pid" mpirun; }
rank_of() { pgrep -P "$(mpirun_of)" | head -n 1; }
await() { # await LINES: of metrics
    local tries=900
    while [ "$(wc -l <lines)" -lt "$1" ] && [ $((tries--)) -gt 0 ]; do
        sleep 0.02
    done
}
further() { await $(($(wc -l <lines) + $1)); }

# ---- kills ---------------------------------------------------------------------------------------
"$bin/weft-run" -q --threads 1 -n $steps one.json >whole 2>err
: >lines
begin two.json
further 5 && kill -KILL "$(rank_of)"
further 6 && kill -KILL "$(mpirun_of)"
further 6 && kill -KILL $pid
wait $pid 2>/dev/null
begin two.json
further 1
refuses 4 '.*another weft-keep is at work' 'a second supervisor' "${command[@]:1}" two.json
refuses 4 'ck: another weft-keep is at work' 'one with another journal' -C elsewhere "${command[@]:1}" two.json
further 3 && kill -STOP "$(rank_of)"
wait $pid
is $? 0 'a rank, mpirun and the supervisor killed, a rank stopped: the run is done'
jq -es --slurpfile whole whole --argjson n $steps 'map(.step) as $s |
    ($s | unique) == [range(1; $n + 1)] and ($s | length) <= $n + 4 and
    all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' kept >/dev/null
ok $? "with the losses of one rank that nobody disturbed, and $(($(wc -l <kept) - steps)) steps done twice"
! grep -qvxFf kept lines
ok $? "of standard output $(($(wc -l <kept) - $(wc -l <lines))) lines died on their way, the others are whole"
for text in 'signal 9' 'mpirun was killed by signal 9' 'ended with its supervisor' 'no progress: rank [01] .* is stopped'; do
    grep -q "^weft-keep: attempt .*$text" said
    ok $? "says: $(grep -m1 "^weft-keep: .*$text" said)"
done
keep --report -C ck
grep -q '^attempts 5, failures 4' out && grep -q '^goodput' out && grep -q ' launcher: ' out
ok $? "$(head -1 out): $(grep goodput out)"
"${command[@]}" two.json >out 2>err
is "$? $(wc -l <out)" '0 0' 'started again there is nothing to do'

# ---- people --------------------------------------------------------------------------------------
rm -r ck
: >lines
begin two.json
further 5 && kill -TERM $pid
wait $pid
is $? 5 'SIGTERM stops it with a status of its own'
is "$(jq -s 'map(.step) | max' lines)" "$(find ck -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1)" \
    'after a checkpoint of its last step'
begin two.json
further 5 && kill -USR1 "$(rank_of)"
wait $pid
is $? 5 'and SIGUSR1 to one rank alone'
is "$(jq -s 'map(.step) | length - (unique | length)' lines)" 0 'no step is done twice'
command=("$bin/weft-keep" --plans one.json "${command[@]:1}")
begin two.json
further 5 && "$bin/weft-keep" --size 1 -C ck
wait $pid
is "$?" 0 'asked for one rank it goes on with another plan'
is "$(jq -s 'map(.step) | length - (unique | length)' lines)" 0 'and still no step is done twice'
keep --report -C ck
awk '/^  [0-9]+ ranks: / { n[$1] = $3; bad += $5 <= 0 || ($5 * $1 / $7 - 1) ^ 2 > 1e-5 }
    END { exit !(n[1] > 0 && n[2] > 0 && n[1] + n[2] == '"$steps"' && !bad) }' out
ok $? "the report knows steps on each number of ranks: $(grep ' ranks: ' out | paste -sd ';')"
jq -es --slurpfile whole whole 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
ok $? 'with the same losses'

# ---- plans that nobody has prepared --------------------------------------------------------------
# As long as it takes: the rates are those of the run above.
long=("$bin/weft-run" -q --threads 1 --warmup 15 --decay-steps "$steps")
forever=("${long[@]}" -n 1000000 --memory-every 1)
says() { # says PATTERN: waits until standard error has it
    local tries=400
    while ! grep -q "$1" there && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
    grep -q "$1" there
    ok $? "says: $(grep -m1 "$1" there)"
}
same_losses() {
    "${long[@]}" -n "$(jq -s 'map(.step) | max' lines)" one.json >long 2>err
    jq -es --slurpfile whole long 'all(. as $m | $whole[$m.step - 1].loss / $m.loss - 1 | fabs < 1e-5)' lines >/dev/null
    ok $? "with the losses of one rank in $(jq -s 'map(.step) | max' lines) steps"
}
: >lines
jq '.stages[0].mesh = "dp:4"' two.json >four.json
"$bin/weft-keep" -- "${forever[@]}" --ledger ledger --save three four.json >>lines 2>there </dev/null &
pid=$!
further 5 && "$bin/weft-keep" --size 3 -C three
says 'going on with 3 ranks in place of 4'
further 5 && "$bin/weft-keep" --size 2 -C three
says 'going on with 2 ranks in place of 3'
further 5 && "$bin/weft-keep" --size 4 -C three
says 'going on with 4 ranks in place of 2'
further 5 && kill -TERM $pid
wait $pid
is "$?" 5 'four ranks, three, two and four again, without plans for three and two'
is "$(jq -cs 'reduce (.[].ranks) as $r ([]; if .[-1] == $r then . else . + [$r] end)' ledger)" \
    '[4,3,2,4]' 'the ledger says so'
is "$(jq -cs 'map(.sample) == [range(0; 8 * length; 8)]' ledger)" true 'and has each sample once'
is "$(jq -c '[.provenance.tool[:11], .batch, .set]' three/plan-3.json)" \
    "$(jq -c '["weft-search", .batch, (.set | split(",") | sort | join(","))]' two.json)" \
    'weft-search has made one of the same model and batch'
is "$(jq -s 'map(.step) | length - (unique | length)' lines)" 0 'no step is done twice'
same_losses

# Another host, as far as one machine can have it: by a program in place of ssh.
cat >agent <<'END'
#!/bin/sh
case $1 in
nowhere) echo away; exit 255 ;;
127.0.0.3) [ ! -e down ] || exit 255 ;;
older) echo 'weft-run (weft) 0.0.9'; exit ;;
esac
host=$1
shift
exec setsid sh -c "echo \$\$ >session.$host; $*"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$PWD/agent
# Daemons of one machine would put what they know of it to one place of its memory, both at once.
export OMPI_MCA_rtc_hwloc_vmhole=none

# ---- a host that is lost, and comes back -------------------------------------------------------------
: >lines
export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_rmaps_base_oversubscribe=1
"$bin/weft-keep" --retry 0.5s -H 127.0.0.2:1,127.0.0.3:1 -- "${forever[@]}" --save hosts two.json >>lines 2>there </dev/null &
pid=$!
further 5 && touch down && pkill -KILL -s "$(cat session.127.0.0.3)"
says 'host 127.0.0.3 was lost'
says 'host 127.0.0.3 is left out: it does not answer'
says 'a plan for 1 of 1 ranks'
further 5 && rm down
says 'host 127.0.0.3 is taken in'
says 'going on with 2 ranks in place of 1'
further 5 && kill -TERM $pid
wait $pid
is "$?" 5 'a host is lost and comes back'
same_losses

# ---- what only a person can mend -------------------------------------------------------------------
run=("$bin/weft-run" -q --threads 1 -n 30)
refuses 2 'weft-run: expected --save' 'no folder' -- "${run[@]}" one.json
refuses 2 'expected --' 'no command' -C ck
refuses 2 'weft-run:.*--resume' 'always the same step' -- "${run[@]}" --save new --resume ck one.json
refuses 3 'gone.json: No such' 'no plan' -- "${run[@]}" --save new gone.json
refuses 3 'missing: No such' 'no data' -- "${run[@]}" --save new --data missing one.json
refuses 2 '--lr' 'a wrong option' -- "${run[@]}" --save new --lr -1 one.json
refuses 1 'there is room for 1 rank' 'no plan for so few' --no-search -n 1 -- "${run[@]}" --save new two.json
refuses 4 'host nowhere does not answer: away' 'a host that does not answer' -H nowhere:2 -- "${run[@]}" --save new two.json
refuses 3 'host older has weft-run (weft) 0.0.9, this one' 'a host with another weft' -H older:2 -- "${run[@]}" --save new two.json
# A host whose file of the same name is another.
seq 20000 >here
seq 20001 40000 >there
printf '#!/bin/sh\nhost=$1\nshift\n[ $host = 127.0.0.2 ] || exec setsid unshare -rm sh -c "mount --bind %s/there %s/here; $*"\nexec setsid sh -c "$*"\n' \
    "$PWD" "$PWD" >elsewhere.sh
chmod +x elsewhere.sh
if unshare -rm mount --bind there here 2>/dev/null; then
    OMPI_MCA_plm_rsh_agent=$PWD/elsewhere.sh \
        refuses 3 '.*rank 1: --data is text, .* hash' 'a host with other files' -H 127.0.0.2:1,127.0.0.3:1 -- "${run[@]}" --data "$PWD/here" --save new two.json
    is "$(grep -c 'starting again' err)" 0 'which is tried once'
else
    skip 'a host with other files' 'no user namespaces'
fi
keep -- "${run[@]}" --save dead --lr 1e30 --clip 0 one.json
[ "$status" -eq 1 ] && grep -q '^weft-keep: error: .*not finite' err && [ "$(grep -c 'error:' err)" -le 2 ]
ok $? "a run that diverges is not started again: $(grep -m1 'weft-keep: error' err)"
"$bin/weft-run" -q --threads 1 -n 2 --save other one.json >out 2>err
cp ck/keep.db other
refuses 3 '.*keep.db: is the journal of run' 'a journal of another run' -- "${run[@]}" --save other one.json
echo text >other/keep.db
refuses 4 'other/keep.db:' 'no journal' -- "${run[@]}" --save other one.json
left() { # folders whose supervisor is gone; other tests may have theirs, and kill one of these for a moment
    find /dev/shm -maxdepth 1 -newer two.json -name 'weft-keep-*' -user "$(id -u)" | while read -r folder; do
        owner=$(od -An -t d8 -j 24 -N 8 "$folder/beats" 2>/dev/null)
        [ -e "/proc/${owner//[^0-9]/}" ] && [ -n "${owner//[^0-9]/}" ] || echo "$folder"
    done
}
tries=200
while [ -n "$(left)" ] && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
is "$(left)" '' 'nothing stays in shared memory'

# ---- a plan that is too large --------------------------------------------------------------------
# Twice the memory of this machine, for activations; stopped before what fits has touched its own.
memory=$(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE)))
jq -n --argjson batch $((2 ** $(jq -n "$memory / 5e7 | log2 | ceil"))) '{"format": "weft-plan/1", "model": "gpt:nano", batch: $batch,
    "set": "layers=1,hidden=8,heads=1,seq=1024,vocab=50000", "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}}]}' >large.json
"$bin/weft-keep" -- "$bin/weft-run" -q --threads 1 -n 1 --save large large.json >out 2>err &
pid=$!
tries=600
while ! grep -q 'what fits' err && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
kill -TERM $pid
wait $pid
grep -q 'most of it .* for activations, .* what fits: micro-batches of [0-9]* in place of [0-9]*' err
ok $? "a plan that is too large: $(grep 'what fits' err)"
jq -es '(.[1].micro_batch | . * 2 <= $b) and .[1].batch == $b' --argjson b "$(jq .batch large.json)" large.json large/fits-2.json >/dev/null
ok $? 'has a smaller one in its place, with the same batch'

echo "1..$n"
[ "$failed" -eq 0 ]
