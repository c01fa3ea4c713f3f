# What the tests of several hosts share: hosts are addresses of this machine, reached by a program in place of ssh, and
# each has ranks, an agent and a memory of its own. The caller has `set -u` and tap.bash.
# shellcheck shell=bash
# shellcheck disable=SC2034 # The tests that include this use what it sets.
bin=${WEFT_BIN:?}
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
case "$*" in # a daemon of mpirun that gives up at once, with a status that nobody gets
*orted*) ! rm "fails.$1" 2>/dev/null || { echo 'ORTE_ERROR_LOG: Error in file ess_base_std_orted.c at line 264' >&2; exit 0; } ;;
esac
host=$1
shift
exec setsid sh -c "echo \$\$ >>sessions.$host; $*"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$PWD/agent
# Daemons of one machine would put what they know of it to one place of its memory, both at once.
export OMPI_MCA_rtc_hwloc_vmhole=none
run=("$bin/weft-run" -q --threads 1 --warmup 15 --decay-steps 900)

# The plans are given, and no other is looked for: on a busy machine one of these hosts is often slower than the others,
# which is a reason for another plan.
begin() { # begin [OPTION...]: the supervisor in $pid
    "$bin/weft-keep" --no-search --peers 1 --retry 0.5s -H 127.0.0.2:1,127.0.0.3:1,127.0.0.4:1 --plans two.json "$@" -- \
        "${run[@]}" -n 1000000 --memory-every 1 --save ck three.json >>lines 2>>said </dev/null &
    pid=$!
}
await() { # await LINES: of metrics
    local tries=400
    while [ "$(wc -l <lines)" -lt "$1" ] && [ $((tries--)) -gt 0 ]; do sleep 0.05; done
}
further() { await $(($(wc -l <lines) + $1)); }
runs_on() { # runs_on HOST: waits for steps with a rank there; those of the attempt before, without one, do not count
    local tries=400
    until pgrep -r RSDT -s "$(paste -sd, "sessions.$1")" weft-run >/dev/null || [ $((tries--)) -le 0 ]; do sleep 0.05; done
    further 4
}
says() { # says PATTERN [TIMES]
    local tries=600 times=${2:-1}
    while [ "$(grep -c "$1" said)" -lt "$times" ] && [ $((tries--)) -gt 0 ]; do sleep 0.02; done
    [ "$(grep -c "$1" said)" -ge "$times" ]
    ok $? "says: $(grep "$1" said | tail -n 1)"
}
of_host() { # of_host SIGNAL HOST: to all processes of it
    pkill "-$1" -s "$(paste -sd, "sessions.$2")"
}
agent_of() { # agent_of HOST: of one that is up; what it has started for a while has its name, too
    local p
    for p in $(pgrep -r RSDT -s "$(paste -sd, "sessions.$1")" weft-keep); do
        grep -qs weft-keep "/proc/$(ps -o ppid= -p "$p" | tr -d ' ')/comm" || echo "$p"
    done | tail -n 1
}
shared() { grep -o '/dev/shm/weft-keep-[^/]*' "/proc/$pid/maps" | head -n 1; } # the folder of this run, not of another on this machine
memory() { echo "$(shared)/host-$1"; } # memory NUMBER: of a host
# Steps take milliseconds here, and none waits for a copy: so many may pass until one has arrived, on a busy machine.
behind=20
twice() { jq -s 'map(.step) | length - (unique | length)' lines; }
