#!/usr/bin/env bash
# scripts/netns.sh: two hosts, the rate of the link between them, and that nothing is left behind.
# Needs root and network namespaces; where there are none one line says so. Prints TAP.
set -u
script=$(cd "$(dirname "$0")/../.." && pwd)/scripts/netns.sh
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
n=0 failed=0
done_testing() {
    echo "1..$n"
    exit $((failed > 0))
}
left() { # the namespaces of a run with this process id
    ip netns list | grep -c "^weft-$1-"
}

"$script" >out 2>err
is $? 2 'a missing command is a usage error'
"$script" -r 1gbit true >out 2>err
status=$?
if grep -q '^# SKIP' out; then
    is $status 0 'where it cannot run it is skipped'
    cat out
    done_testing
fi
is $status 0 'a job of two hosts'
"$script" -n 2 sh -c 'exit 3' >out 2>err
is $? 3 "the job's status"
# shellcheck disable=SC2016
"$script" -r 1gbit sh -c 'ip -4 -o addr show dev weft0 | cut -d" " -f7; tc qdisc show dev weft0' >out 2>err
ok "$(grep -q '^10.77.0.1/24' out && grep -q '^10.77.0.2/24' out; echo $?)" 'each rank is on a host of its own'
is "$(grep -c 'tbf.*rate 1Gbit' out)" 2 'both ends of the link are limited'

sleep_on_hosts() { # in $job, once its hosts are there
    "$script" sleep 60 >out 2>err &
    job=$!
    for _ in $(seq 100); do
        [ "$(left $job)" -eq 2 ] && break
        sleep 0.1
    done
}
sleep_on_hosts
is "$(left $job)" 2 'its namespaces carry its number'
sleep 1
kill -TERM $job
wait $job
is $? 143 'a signal ends it'
is "$(left $job)" 0 'and leaves no namespace'

sleep_on_hosts
kill -KILL $job
wait $job 2>/dev/null
"$script" true >out 2>err
is "$(left $job)" 0 'what a killed run left behind the next one removes'
done_testing
