#!/usr/bin/env bash
# weft-keep looks for a plan while ranks run: what happens meanwhile is seen and heeded, however long the search takes.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep
set -u
bin=${WEFT_BIN:?}
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
export OMPI_MCA_rmaps_base_oversubscribe=1

cat >two.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=1,hidden=48,heads=4,seq=16,dropout=0.1",
 "batch": 8, "stages": [{"mesh": "dp:2", "layout": {"dp": "batch"}, "zero": 1}]}
END

# Tools beside each other, of which weft-search takes 15 s before it begins, where "slow" says so; "late" says that
# somebody waited for that.
mkdir tools
for tool in weft-run weft-keep weft-predict; do ln -s "$bin/$tool" tools; done
cat >tools/weft-search <<END
#!/bin/bash
if [ -e slow ]; then
    echo \$\$ >searching
    for ((i = 0; i < 150; i++)); do sleep 0.1; done
    : >late
fi
exec "$bin/weft-search" "\$@"
END
chmod +x tools/weft-search

begin() { # begin FOLDER [OPTION...]: the supervisor in $pid
    : >lines
    : >said
    tools/weft-keep "${@:2}" -- tools/weft-run -q --threads 1 -n 1000000 --warmup 5 --decay-steps 900 --memory-every 1 \
        --save "$1" two.json >>lines 2>said </dev/null &
    pid=$!
}
await() { # await COMMAND...: until it succeeds, 20 s at most
    local tries=400
    until "$@" || [ $((tries--)) -le 0 ]; do sleep 0.05; done
}
lines_are() { [ "$(wc -l <lines)" -ge "$1" ]; }
further() { await lines_are $(($(wc -l <lines) + $1)); }
says() { # says PATTERN
    await grep -q "$1" said
    grep -q "$1" said
    ok $? "says: $(grep -m1 "$1" said)"
}
search_for() { # search_for N: ranks, for which there is no plan, with a search that is slow
    rm -f searching
    : >slow
    "$bin/weft-keep" --size "$1" -C ck
    await test -s searching
    rm -f slow # for the next one
}
# Nobody may be there to wait for what is dead, such as in a container.
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }

begin ck --hang 1s
further 5
search_for 3
want=$(($(wc -l <lines) + 10))
await lines_are $want
lines_are $want && [ ! -e late ]
ok $? 'steps go on while a plan is looked for'
kill -KILL "$(pgrep -P "$(pgrep -P $pid mpirun)" | head -n 1)"
searcher=$(cat searching)
says 'signal 9 .*starting again'
says 'a plan for 3 of 3 ranks'
[ ! -e late ]
ok $? 'a rank that dies meanwhile is seen dead before the search ends'
await gone "$searcher"
gone "$searcher"
ok $? 'which ends with the attempt that it was for'
further 5
search_for 1
kill -STOP "$(pgrep -P "$(pgrep -P $pid mpirun)" | head -n 1)"
says 'no progress: rank [0-2] .* is stopped'
says 'a plan for 1 of 1 ranks'
[ ! -e late ]
ok $? 'and so is one that is stopped'
further 5
"$bin/weft-keep" --size 2 -C ck # has a plan, so none is looked for
says 'going on with 2 ranks in place of 1'
further 5
search_for 4
searcher=$(cat searching)
kill -TERM $pid
wait $pid
is "$? $([ -e late ] && echo late)" '5 ' 'SIGTERM is heeded while a plan is looked for'
await gone "$searcher"
gone "$searcher"
ok $? 'no search is left behind'
is "$(find ck -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1)" "$(jq -s 'map(.step) | max' lines)" 'the last step is saved'

# The supervisor dies: nobody else holds the folder, and another one goes on at once.
begin ck
further 3
search_for 5
searcher=$(cat searching)
kill -KILL $pid
wait $pid 2>/dev/null
begin ck
says 'ended with its supervisor'
await gone "$searcher"
gone "$searcher"
ok $? 'the search of a supervisor that was killed dies with it'
further 3
kill -TERM $pid
wait $pid
is $? 5 'and the folder is free for another'

# While nothing runs a signal ends the search, too.
: >slow
rm -f searching
jq '.stages[0].mesh = "dp:4" | del(.stages[0].zero)' two.json >four.json
tools/weft-keep -n 3 -- tools/weft-run -q --threads 1 -n 10 --save other four.json >out 2>said </dev/null &
pid=$!
await test -s searching
kill -TERM $pid
wait $pid
is "$? $([ -e late ] && echo late)" '5 ' 'SIGTERM before the first attempt ends the search for its plan'

echo "1..$n"
[ "$failed" -eq 0 ]
