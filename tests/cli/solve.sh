#!/usr/bin/env bash
# weft-solve as a user runs it: the four problems from files and pipes, JSON and table, time
# budget and interrupt, and what wrong usage and wrong documents get. Prints TAP; the
# programs are in $WEFT_BIN.
# Needs: jq
set -u
tool=${WEFT_BIN:?}/weft-solve
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
    [ "$status" -eq "$want" ] && [ ! -s out ] &&
        grep -q "^weft-solve: error: .*$pattern" err &&
        [ "$(grep -c '^weft-solve: error' err)" -eq 1 ]
    ok $? "$text: $(head -1 err) (exit $status)"
}
solves() { # solves PROBLEM FILE VALUE TEXT
    run "$1" "$2"
    is "$(jq -c '[.value, .bound, .gap, .optimal, .problem]' out)" \
        "[$3,$3,0,true,\"$1\"]" "$4"
}

# ---- one small document of each ------------------------------------------------------

cat >layout.json <<'END'
{"problem": {"name": "two", "nodes": {"intervals": [[0, 2], [0, 2]],
 "costs": [[1, 5], [2, 3]], "usages": [[10, 1], [10, 1]]},
 "edges": {"nodes": [[0, 1]], "costs": [[0, 4, 4, 0]]}, "usage_limit": 11}}
END
cat >partition.json <<'END'
{"maxSizePerFPGA": 10, "maxFPGAs": 2, "maxCPUs": 0, "nodes": [
 {"id": 0, "supportedOnFpga": true, "cpuLatency": 9, "fpgaLatency": 3,
  "isBackwardNode": false, "colorClass": 0, "size": 1},
 {"id": 1, "supportedOnFpga": true, "cpuLatency": 9, "fpgaLatency": 4,
  "isBackwardNode": false, "colorClass": 1, "size": 1}],
 "edges": [{"sourceId": 0, "destId": 1, "cost": 0.5}]}
END
cat >stages.json <<'END'
{"format": "weft-problem/1", "problem": "stages", "num_layers": 4, "num_devices": 2,
 "num_micro_batches": 8, "submeshes": [{"size": 1}, {"size": 2}],
 "layers": {"time": [1, 2, 2, 1], "state": [4, 4, 4, 4], "activation": [1, 1, 1, 1]},
 "configs": [{"submesh": 0, "capacity": 16}, {"submesh": 1, "time_scale": 0.6}]}
END
cat >joint.json <<'END'
{"maxDevices": 2, "maxMemoryPerDevice": 10, "bandwidth": 1, "mbsInBatch": 4, "edges": [
 {"sourceId": 0, "destId": 1, "communicationCost": 0.25}], "nodes": [
 {"id": 0, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 2, "parameterSize": 1,
  "memoryUsageA": 1, "memoryUsageB": 1, "syncTimeFw": {}, "syncTimeBw": {"1": 0}}]}},
 {"id": 1, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 3, "parameterSize": 1,
  "memoryUsageA": 1, "memoryUsageB": 1, "syncTimeFw": {"0": 0}, "syncTimeBw": {}}]}}]}
END
solves layout layout.json 8 "layout, with memory that binds"
solves partition partition.json 4.5 "partition, with communication"
solves stages stages.json 27 "stages"
solves joint joint.json 3.5 "joint"

jq '.edges[0].cost = 1e14' partition.json >never.json
run partition never.json
is "$status$(jq .value out)" 07 "partition: an edge that costs too much to be cut"

# ---- ways in and out ------------------------------------------------------

"$tool" stages <stages.json >out2 2>err
is "$(jq .value out2)" 27 "standard input without a file"
"$tool" stages - -o out3 <stages.json >out 2>err
is "$(jq .value out3)$(cat out)" 27 "standard input as -, answer to a file"
run stages --text stages.json
is "$(awk '/^(value|bound)/ {print $2}' out | tr '\n' ' ')" "27 27 " "a table"
run stages --seed 7 --threads 2 --gap 0.1 --time-budget 10s stages.json
is "$status$(jq '.value >= .bound and .gap <= 0.1 and .peak_bytes > 0' out)" 0true \
    "all options, and the memory it took"
for p in layout partition stages joint; do
    run "$p" "$p.json"
    jq -S 'del(.time_s, .peak_bytes)' out >first
    run "$p" "$p.json"
    jq -S 'del(.time_s, .peak_bytes)' out | cmp -s - first
    ok $? "$p: the same answer twice"
done
run --help
is "$status$(grep -c 'time-budget' out)" 01 "--help"
run --version
is "$status" 0 "--version"

# ---- answers, verified ------------------------------------------------------

# falsified PROBLEM JQ PATTERN: what is changed in an answer is found.
falsified() {
    "$tool" "$1" "$1.json" 2>err | jq "$2" >false.json
    refuses 1 "false.json: .*$3" "$1: not true: $2" -- "$1" --verify false.json "$1.json"
}
for p in layout partition stages joint; do
    run "$p" "$p.json"
    cp out answer.json
    run "$p" --verify answer.json "$p.json"
    is "$status$(grep -c "value is $(jq .value answer.json), as it says" out)" 01 \
        "$p: an answer is verified: $(head -1 out)"
    falsified "$p" '.value -= 0.5 | .bound = .value' "value"
    falsified "$p" '.bound = .value + 1' "bound"
done
falsified layout '.choice = [0, 0]' "usage 20 at time 0 is above the limit 11"
falsified layout '.choice[0] = 2' "node 0: strategy 2 does not exist"
falsified layout '.choice |= .[1:]' "choice: expected 2 entries, got 1"
falsified layout '.peak_usage = 1' "peak_usage: it is 2"
falsified partition '.devices[1].nodes = [0]' "devices.1..nodes.0.: node 0 is on two devices"
falsified partition '.devices |= reverse' "edges.0.: leads back"
falsified stages '.stages |= .[1:]' "stages.0. does not follow"
falsified joint '.stages |= (.[0] | .data_degree = 1 | .choices = ["vanilla"] |
    [(.nodes = [1]), (.nodes = [0])])' "edge 0 to 1 goes back"
falsified joint '.stages[0].nodes = []' "node 0 is in 0 stages"
run stages stages.json
cp out answer.json
refuses 3 "answer.json: problem:.*stages" "an answer of another kind" \
    -- joint --verify answer.json joint.json
refuses 3 "joint.json: format" "an answer that is none" -- joint --verify joint.json joint.json
refuses 2 "only one of the two" "both from standard input" -- joint --verify -

# ---- wrong usage ------------------------------------------------------

refuses 2 "expected a problem" "no problem given" --
refuses 2 "expected a problem.*knapsack" "an unknown problem" -- knapsack stages.json
refuses 2 "3 operands" "too many files" -- stages stages.json joint.json
refuses 2 "gap" "a negative gap" -- stages --gap=-1 stages.json
refuses 2 "time-budget" "a time that is none" -- stages --time-budget soon stages.json

# ---- wrong documents ------------------------------------------------------

refuses 3 "absent.json" "no such file" -- stages absent.json
for p in layout partition stages joint; do
    head -c 150 "$p.json" >cut.json
    refuses 3 "cut.json:[0-9]*:[0-9]*:" "$p: truncated JSON" -- "$p" cut.json
    echo '[1, 2]' >list.json
    refuses 3 "list.json: .*expected an object" "$p: not an object" -- "$p" list.json
    echo '{}' >empty.json
    refuses 3 "empty.json: ..*" "$p: an empty object" -- "$p" empty.json
done
refuses 3 "stages.json: problem:.*stages" "another solver's document" -- \
    joint stages.json
edit() { jq "$2" "$1.json" >bad.json; }
edit stages '.configs[1].submesh = 7'
refuses 3 "bad.json: configs.1..submesh" "a submesh that is not there" -- stages bad.json
edit stages '.layers.time[2] = -1'
refuses 3 "bad.json: layers.time.2.:.*finite" "a negative time" -- \
    stages bad.json
edit stages '.num_layer = 4'
refuses 3 'unknown key "num_layer"' "a misspelt key" -- stages bad.json
edit joint '.edges[0].destId = 9'
refuses 3 "edges.0..destId:.*9" "an unknown node" -- joint bad.json
edit joint '.edges += [{sourceId: 1, destId: 0, communicationCost: 0}]'
refuses 3 "cycle" "a cycle" -- joint bad.json
edit joint '{format: "weft-problem/1", problem: 7, instance: .}'
refuses 3 "problem: expected a string" "a problem that is a number" -- joint bad.json
edit joint '.nodes[1].TMPCs["1"][0].memoryUsageA = -3'
refuses 3 "nodes.1..TMPCs.1.0..memoryUsageA" "negative memory" -- joint bad.json
edit partition '.edges[0].destId = 9'
refuses 3 "bad.json: edges" "partition: an unknown node" -- partition bad.json
edit layout '.problem.edges.costs[0] = [0, 4, 4]'
refuses 3 "bad.json: .*costs" "layout: a matrix of the wrong size" -- layout bad.json
jq -c . layout.json | sed 's/{"/{"memory_budget":9,"memory_budget":9,"/' >bad.json
refuses 3 "memory_budget:" "layout: a key given twice" \
    -- layout bad.json

# ---- no answer within the limits ------------------------------------------------------

edit layout '.problem.usage_limit = 1'
refuses 1 "bad.json: ..*" "layout: memory" -- layout bad.json
edit partition '.maxSizePerFPGA = 0.5'
refuses 1 "bad.json: ..*" "partition: memory" -- partition bad.json
edit stages '.configs[].capacity = 3'
refuses 1 "memory: layer 0" "stages: a layer that fits nowhere" -- stages bad.json
edit stages '.submeshes[0].size = 2 | .num_devices = 3'
refuses 1 "devices" "stages: sizes that do not add up" -- stages bad.json
edit joint '.maxMemoryPerDevice = 1.5'
refuses 1 "memory:.*0.*2.*1.5" "joint: a node too large" \
    -- joint bad.json

# ---- time ------------------------------------------------------

# 1,000 layers on 64 devices whose memory is tight: the most work per layer. The generator
# is that of scripts/repro-solvers.sh.
awk 'BEGIN {
    srand(7); L = 1000
    printf "{\"format\":\"weft-problem/1\",\"problem\":\"stages\",\"num_layers\":%d,", L
    printf "\"num_devices\":64,\"num_micro_batches\":128,\"layers\":{"
    for (k = 0; k < 3; k++) {
        printf "%s\"%s\":[", k ? "," : "", k == 0 ? "time" : k == 1 ? "state" : "activation"
        for (l = 0; l < L; l++)
            printf "%s%.4f", (l ? "," : ""), (k < 2 ? 1 : 0.1) * (0.5 + rand())
        printf "]"
    }
    printf "},\"submeshes\":["
    for (i = 0; i < 11; i++) { s[i] = i < 4 ? 2 ^ i : 8 * (i - 2)
        printf "%s{\"size\":%d}", i ? "," : "", s[i] }
    printf "],\"configs\":["
    for (i = 0; i < 22; i++) { z = s[int(i / 2)]; r = i % 2
        printf "%s{\"submesh\":%d,\"time_scale\":%.6f,\"state_scale\":%.6f,", i ? "," : "",
            int(i / 2), (r ? 1.33 : 1) / z ^ 0.95, 1 / z
        printf "\"activation_scale\":%.6f,\"fixed_time\":0.01,\"capacity\":21.5}",
            (r ? 0.1 : 1) / z }
    print "]}"
}' >large.json
run stages --time-budget 600ms large.json
is "$status$(jq --argjson most "$(within 1.5)" '.time_s < $most and .bound <= .value' out 2>/dev/null)" 0true \
    "a time budget is kept, with a bound"
# A document whose end never comes: an interrupt ends the reading.
mkfifo endless
for p in layout partition stages joint; do
    "$tool" "$p" endless >out 2>err &
    pid=$!
    exec 9>endless
    echo '{"name": [1, 2,' >&9
    sleep 0.3
    kill -INT $pid
    wait $pid
    is "$?$(cat out err)" "1weft-solve: error: endless: interrupted before all of it was read" \
        "$p: an interrupt ends the reading of a problem"
    exec 9>&-
done
"$tool" stages large.json >out 2>err &
pid=$!
sleep 0.6
kill -INT $pid
wait $pid
is "$?$(jq '.bound <= .value and (.stages | length) > 0' out 2>/dev/null)" 0true \
    "an interrupt gives the incumbent"

# 24 nodes without edges: too many sets of them to list, and a bound that nothing reaches.
jq -n '{maxDevices: 4, maxMemoryPerDevice: 7, bandwidth: 1, mbsInBatch: 4, edges: [],
    nodes: [range(24) | {id: ., TMPCs: {"1": [{id: "vanilla", timePerSample: (1 + 7 / (2 + .)),
        parameterSize: 0, memoryUsageA: 0, memoryUsageB: 1, syncTimeFw: {},
        syncTimeBw: {}}]}}]}' >wide.json
run joint wide.json
is "$status$(jq '.bound < .value and (.proof | contains("too many"))' out 2>/dev/null)" 0true \
    "joint: with too many sets the answer is along one order, with a bound"
"$tool" joint --time-budget 60s wide.json >out 2>err &
pid=$!
sleep 0.6
kill -INT $pid
wait $pid
is "$?$(jq --argjson most "$(within 1.5)" '.time_s < $most and .bound <= .value' out 2>/dev/null)" \
    0true "joint: an interrupt gives the incumbent"

echo "1..$n"
[ "$failed" -eq 0 ]
