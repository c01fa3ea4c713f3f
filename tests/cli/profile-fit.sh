#!/usr/bin/env bash
# weft-profile-fit as a user runs it: a model out of rows that a known device made, what it says of too
# few rows and of wrong files. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq sqlite3
set -u
tool=${WEFT_BIN:?}/weft-profile-fit
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run ARGS...: leaves $status, out, err
    "$tool" "$@" >out 2>err </dev/null
    status=$?
}
refuses() { # refuses STATUS PATTERN TEXT -- ARGS...
    local want=$1 pattern=$2 text=$3
    shift 4
    run "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-profile-fit: error: .*$pattern" err
    ok $? "$text: $(head -1 err) (exit $status)"
}

# Rows of a device: a thing of 100 Tflop/s in products and 1 TB/s elsewhere, which takes 4 us to begin.
"$WEFT_BIN/weft-profile-op" -q -m gpt:nano -p toy.db --max-devices 4 --micro-batch 1,4,16 --dtype bf16 \
    --device toy --roofline 100T:1T:4us >out 2>err
ok $? 'rows of a device'
refuses 3 '0 measured rows of instructions, 4 too few' 'computed rows are no measurements' -- \
    -p toy.db --like h100
grep -q '^hint: measure more with: weft-profile-op -m MODEL -p toy.db' err
ok $? 'it says which command measures them'
sqlite3 toy.db "UPDATE op SET source = 'measured'" # as if they were
# Its datasheet, and the H100's curves as guesses.
jq '.flops = {f32: 1e14, bf16: 1e14, f16: 1e14} | .bandwidth = 1e12 | .cache.bandwidth = 1e12 |
    .curves |= map_values(.within = 1)' "$WEFT_ROOT/share/devices/h100.json" >like.json
run -p toy.db --like ./like.json -o toy.json
is $status 0 'a model'
jq -e '.format == "weft-device/1" and .name == "toy" and .curves["linear.bf16"].rows > 20 and
       .curves["linear.bf16"].from == "fitted"' toy.json >out
ok $? 'with a curve of its own for what was measured'
jq -e '.curves.adamw | (.cache - 1 | fabs) < 0.1 and (.launch_us - 4 | fabs) < 0.4' toy.json >out
ok $? 'the optimizer takes 4 us and then runs at 1 TB/s, a fraction of what it began with'
run -p toy.db --like ./like.json --text
off() { awk -v name="$1" '$1 == name { print $2, $3, $4, ($3 < 10 ? "near" : "far") }' out; }
for op in adamw linear.bf16 linear_dx.bf16 linear_dw.bf16; do
    [[ "$(off $op)" = *near ]]
    ok $? "$op: rows that it was not fitted to are off by less than 10 % in the median: $(off $op)"
done
run -p toy.db --like h100 --text
[[ "$(off linear.bf16)" = *near ]]
ok $? "and where it begins with ten times the peak and five times the cache: $(off linear.bf16)"
run -p toy.db --like ./like.json --check toy.db
jq -e '.rows > 200 and .inside / .rows > 0.8' out >err
ok $? "most rows lie within its bounds: $(cat out)"
cp out before
run -p toy.db --cluster h100:4 --check toy.db
jq -e '.rows > 200 and .inside / .rows > 0.8' out >err
ok $? "as weft-predict answers on a cluster: $(cat out)"
"$WEFT_BIN/weft-profile-op" -q -m gpt:nano -p links.db --max-devices 4 --micro-batch 1 --dtype bf16 --device toy \
    --roofline 100T:1T:4us --links 'node:100G:9us' >out 2>err
sqlite3 links.db "DELETE FROM op; UPDATE comm SET source = 'measured'; DELETE FROM comm WHERE group_size = 2"
run -p links.db --cluster h100:4 --check links.db --text
awk 'NR == 1 { next } { n++; far += $2 / $1 > 1.05 || $1 / $2 > 1.05 } /all_reduce size=4 stride=1 node/ { seen = 1 }
    END { exit !(n > 10 && !far && seen) }' out
ok $? "collectives, each a line: $(sed -n 2p out)"
refuses 2 'only with --check' 'a cluster to be asked about without questions' -- -p toy.db --cluster h100:4
refuses 2 'expected --cluster' 'rows one by one, on no cluster' -- -p toy.db --check toy.db --text
run -p toy.db --like ./toy.json --name other
jq -e '.name == "other"' out >err
ok $? 'it begins with its own file, and takes a name'
refuses 3 'not among the shipped devices' 'a kind of which nothing is known' -- -p toy.db
grep -q '^hint: --like DEVICE' err
ok $? 'it says what helps'
jq '.flops.bf16 = 989' toy.json >bad.json
refuses 3 'bad.json: flops: bf16: expected a number per second\|bad.json: flops.bf16: expected a number per second' \
    'units that contradict each other' -- -p toy.db --like ./bad.json
wrong_unit() { # wrong_unit PLACE FILTER: the digits of a datasheet, without its unit
    jq "$2" toy.json >bad.json
    refuses 3 "bad.json: $1: " "$1 in another unit" -- -p toy.db --like ./bad.json
}
wrong_unit bandwidth '.bandwidth = 3350'
wrong_unit cache.bytes '.cache.bytes = 50'
wrong_unit node.memory '.node.memory = 80'
wrong_unit node.host_bandwidth '.node.host_bandwidth = 64'
wrong_unit 'node.links.1..bandwidth' '.node.links[1].bandwidth = 400'
wrong_unit links.node.reached '.links.node.reached = 80'
jq '.cache.bandwidth = 1e11' toy.json >bad.json
refuses 3 "bad.json: cache.bandwidth: .* is less than the memory's" 'a cache slower than the memory' -- \
    -p toy.db --like ./bad.json
jq '.curves.move.cache = -1' toy.json >bad.json
refuses 3 'bad.json: curves.move.cache: -1' 'a curve that falls' -- -p toy.db --like ./bad.json
head -c 300 toy.json >bad.json
refuses 3 'bad.json' 'half a file' -- -p toy.db --like ./bad.json
refuses 2 'FILE' 'no profile' -- --like h100
refuses 3 'no rows of device kind' 'a kind that the profile lacks' -- -p toy.db --like ./like.json --device a100
run -p toy.db --like ./like.json -o /dev/full
is $status 4 'a disk that is full'

echo "1..$n"
[ "$failed" -eq 0 ]
