#!/usr/bin/env bash
# How a person stops weft-keep, and what a disk that is full for a while does to it.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun pgrep unshare
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
run=("$bin/weft-run" --threads 1 -n 1000000 --warmup 5 --decay-steps 900 --memory-every 1)

begin() { # begin FOLDER [OPTION...]: the supervisor in $pid
    : >lines
    "$bin/weft-keep" "${@:2}" -- "${run[@]}" --save "$1" two.json >>lines 2>err </dev/null &
    pid=$!
}
further() { # further N: lines of metrics
    local want=$(($(wc -l <lines) + $1)) tries=400
    while [ "$(wc -l <lines)" -lt "$want" ] && [ $((tries--)) -gt 0 ]; do
        sleep 0.05
    done
}
finish() { # waits for the supervisor, and kills one that does not end: status 137
    local tries=400
    while kill -0 $pid 2>/dev/null && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
    kill -KILL $pid 2>/dev/null
    wait $pid
}
mpirun_of() { pgrep -P "$pid" mpirun; }
ranks_of() { pgrep -P "$(mpirun_of)"; }
last_saved() { find "$1" -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1; }
last_done() { jq -s 'map(.step) | max' lines; }
note_folder_of() { # note_folder_of RANK: in shared memory, as it is told
    tr '\0' '\n' <"/proc/$1/environ" | sed -n 's|^WEFT_BEATS=\(.*\)/beats$|\1|p' >>folders
}
note_folder() { note_folder_of "$(ranks_of | head -n 1)"; }
gone() { # gone PIDS: no process of them is left
    local p
    for p in $1; do
        [ ! -e "/proc/$p" ] || [ "$(sed 's/.*) //; s/ .*//' "/proc/$p/stat")" = Z ] || return 1
    done
}

# ---- stopping ----------------------------------------------------------------------------------------
for what in 'TERM rank' 'USR1 mpirun' 'TERM mpirun' 'TERM all' 'USR1 all'; do
    begin "ck-${what// /-}"
    further 4
    note_folder
    mapfile -t every < <(echo "$pid"; mpirun_of; ranks_of)
    case $what in
    *rank) kill -TERM "$(ranks_of | tail -n 1)" ;;
    *mpirun) kill -"${what% *}" "$(mpirun_of)" ;;
    *all) kill -"${what% *}" "${every[@]}" ;;
    esac
    finish
    status=$?
    lost=$(($(last_done) - $(last_saved "ck-${what// /-}")))
    [ $status -eq 5 ] && [ "$lost" -le 1 ] && gone "${every[*]}"
    ok $? "$what: status $status, $lost steps lost, no process is left"
done
# ---- a launcher that passes nothing on ----------------------------------------------------------------
# A script in mpirun's place, as sites have them, which is deaf to the signal or dies of it.
real=$(command -v mpirun) path=$PATH
for way in "trap '' USR1" 'true'; do
    mkdir -p launcher
    printf '#!/bin/sh\n%s\n"%s" "$@"\nexit $?\n' "$way" "$real" >launcher/mpirun
    chmod +x launcher/mpirun
    PATH=$PWD/launcher:$path
    begin "ck-launcher-${#way}"
    further 4
    note_folder_of "$(pgrep -P "$(pgrep -P "$(pgrep -P "$pid" mpirun)")" | head -n 1)"
    kill -USR1 $pid
    finish
    is "$? $(last_saved "ck-launcher-${#way}")" "5 $(last_done)" "SIGUSR1, and a launcher that does not pass it on ($way)"
    PATH=$path
done

begin twice
further 4
note_folder
all="$pid $(mpirun_of) $(ranks_of)"
kill -INT $pid
sleep 0.05
kill -INT $pid
finish
status=$?
[ $status -eq 5 ] && [ "$(($(last_done) - $(last_saved twice)))" -le 1 ] && gone "$all"
ok $? "two signals: status $status, saved step $(last_saved twice) of $(last_done)"
begin ck-TERM-all
further 2
note_folder
is "$(($(jq -s '.[0].step' lines) <= 1))" 0 'the same command line goes on'
kill -TERM $pid
finish

# ---- a full disk ---------------------------------------------------------------------------------------
if unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
    cat >full <<'END'
mount -t tmpfs -o size=8m none /mnt
: >lines
"${keep[@]}" >>lines 2>err &
pid=$!
await() { # await PATTERN FILE
    tries=400
    while ! grep -q "$1" "$2" && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
}
await '"step": *3[,}]' lines
dd if=/dev/zero of=/mnt/ballast bs=64k 2>/dev/null
await "$1" err
rm /mnt/ballast
at=$(jq -s 'map(.step) | max' lines)
tries=400
while [ "$(find /mnt -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1)0" -le "${at}0" ] && [ $((tries--)) -gt 0 ]; do
    sleep 0.05
done
saved=$(find /mnt -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1)
kill -TERM $pid
wait $pid
echo "$? $((saved > at))" >result
END
    for where in disk memory; do
        case $where in
        disk) keep="--disk-only -- ${run[*]} --save /mnt/ck --save-every 2 two.json" said='not saved: .*No space left' ;;
        memory) keep="--copy-every 0.2s -- ${run[*]} --save /mnt/ck two.json" said='not copied to disk: .*No space left' ;;
        esac
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 \
            unshare -rm bash -c "keep=($bin/weft-keep ${keep//--memory-every 1/}); . ./full" full "$said"
        is "$(cat result) $(($(grep -c "$said" err) > 0))" '5 1 1' "$where: a full disk warns, and a later checkpoint is written"
        is "$(jq -s 'map(.step) | length - (unique | length)' lines)" 0 'no step is done twice'
    done
else
    skip 'a full disk' 'no user namespaces'
fi
# ---- memory that is full --------------------------------------------------------------------------------
group=/sys/fs/cgroup/memory/weft-test-$$ limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/weft-test-$$ limit=memory.max
if mkdir "$group" 2>/dev/null && echo 150M >"$group/$limit" 2>/dev/null; then
    jq '.stages = [{}] | .set = "layers=8,hidden=512,heads=4,seq=16"' two.json >large.json
    # shellcheck disable=SC2016
    group=$group bash -c 'echo $$ >"$group/cgroup.procs"; exec "$@"' - \
        "$bin/weft-keep" --attempts 1 -- "${run[@]}" --save large large.json >out 2>err
    is "$? $(grep -c 'error: 1 attempts.*signal 9 (Killed), since memory was full' err)" '4 1' \
        "the kernel's kill for memory is told from others"
    rmdir "$group"
else
    rmdir "$group" 2>/dev/null
    skip 'memory that is full' 'no control group can be made'
fi
is "$(while read -r folder; do ls -d "$folder" 2>/dev/null; done <folders | wc -l) of $(wc -l <folders)" '0 of 9' \
    'nothing stays in shared memory'

echo "1..$n"
[ "$failed" -eq 0 ]
