#!/usr/bin/env bash
# weft-predict as a user runs it: files and pipes, JSON, table and timeline, what the profile
# lacks, and what wrong usage and wrong files get. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq sqlite3
set -u
tool=${WEFT_BIN:?}/weft-predict
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

run() { # run ARGS...: leaves $status, out, err
    "$tool" "$@" >out 2>err </dev/null
    status=$?
}
holds() { # holds FILE EXPRESSION TEXT: jq says true
    jq -e "$2" "$1" >/dev/null 2>err
    ok $? "$3"
}
refuses() { # refuses STATUS PATTERN TEXT -- ARGS...
    local want=$1 pattern=$2 text=$3
    shift 4
    run "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-predict: error: .*$pattern" err &&
        [ "$(grep -c '^weft-predict: error' err)" -eq 1 ]
    ok $? "$text: $(head -1 err) (exit $status)"
}

hinted() { # runs what the last hint names, if it computes
    sed -n 's/.*measure with: //p' err | sed 's/; mpirun.*//; s|^weft|"$WEFT_BIN"/weft|' >hint
    bash hint >out 2>err
}

cat >plan.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=4,hidden=96,heads=4,seq=64",
 "batch": 16, "micro_batch": 4,
 "stages": [
   {"ops": ["wte", "wpe", "layer.0-1"], "mesh": "dp:2", "layout": {"dp": "batch"}},
   {"mesh": "tp:2", "layout": {"tp": ["heads", "ffn", "vocab"]}}]}
END
roof=(--roofline 312T:1.5T:5us --links 'node:200G:5us cross:25G:10us' --device a100)
"$WEFT_BIN/weft-profile-op" -q -m gpt:nano --set layers=4,hidden=96,heads=4,seq=64 -p a.db \
    --max-devices 4 --micro-batch 4 "${roof[@]}" >out 2>err
ok $? 'a profile from a roofline'

# ---- what it says -----------------------------------------------------------------------------
run -p a.db plan.json
is $status 0 'a prediction'
cp out first.json
holds out '.format == "weft-prediction/1" and .time > 0 and (.time * 1e6 - .time_us | fabs) < 0.01' \
    'time in seconds and microseconds'
holds out '.time_us as $t | .stages | all((.compute_us + .collective_us + .p2p_us + .update_us +
    .bubble_us - $t | fabs) < 0.01)' 'the parts of each stage add up to the step'
holds out '.stages | all(.memory | .total == (del(.total, .workspace) | add))' 'and memory by class to the total'
holds out '.stages | all(.memory.workspace | . > 4e6 and . < 100e6)' 'beside it the workspace, bounded'
holds out '.memory == ([.stages[].memory.total] | max) and .bound.memory == 0' \
    'the fullest stage is named'
holds out '(.estimate_us / .time_us - 1 | fabs) < 0.05' 'the closed form is near'
holds out '.devices == 4 and .micro_batches == 4 and (.stages | map(.in_flight)) == [2, 1]' \
    'micro-batches in flight'
run -p a.db plan.json
cmp -s out first.json
ok $? 'the same again'
"$tool" -p a.db <plan.json >out 2>err
cmp -s out first.json
ok $? 'the plan from standard input'
jq . plan.json | "$tool" -p a.db - 2>err | cmp -s - first.json
ok $? 'and from a pipe, as -'
run -p a.db -o x.json plan.json
[ $status -eq 0 ] && [ ! -s out ] && cmp -s x.json first.json
ok $? '-o writes a file'
run -p a.db --text plan.json
[ $status -eq 0 ] && grep -q '^step .* samples/s' out && grep -q 'dp:2$' out && grep -q '^stage' out
ok $? "--text is a table: $(head -1 out)"
"$tool" -p a.db plan.json 2>err | head -c 1 >/dev/null
is "${PIPESTATUS[1]}" 0 'a reader may close the pipe'

# ---- what follows from the plan ----------------------------------------------------------------
jq '.schedule = "gpipe"' plan.json | "$tool" -p a.db >out 2>err
holds out '.schedule == "gpipe" and (.stages | map(.in_flight)) == [4, 4]' 'gpipe holds all'
run -p a.db --cluster 'node:2 gpu:2' plan.json
holds out "(.stages[1].p2p_us > $(jq '.stages[1].p2p_us' first.json)) and
    .stages[1].collective_us == $(jq '.stages[1].collective_us' first.json)" \
    'between nodes messages take longer, collectives inside a stage do not'
run -p a.db --cluster 'node:4 gpu:1' plan.json
holds out ".stages[1].collective_us > $(jq '.stages[1].collective_us' first.json)" \
    'a group over two nodes is slower'
cat >small.json <<'END'
{"format": "weft-cluster/1", "nodes": 1, "devices_per_node": 4, "memory": "1M", "flops": 1e12}
END
run -p a.db --cluster small.json plan.json
holds out '.fits == false and .memory_limit == 1048576 and .utilization > 0' \
    'a cluster file says what a device has'
run -p a.db --cluster v100-4x8 plan.json
holds out '.fits == true and .cluster.nodes == 4' 'a shipped cluster'

# ---- the timeline ------------------------------------------------------------------------------
run -p a.db --chakra traces plan.json
cmp -s out first.json
ok $? 'traces of Chakra change nothing in it either'
is "$status $(ls traces | tr '\n' ' ')" '0 comm_groups.json weft.0.et weft.1.et weft.2.et weft.3.et ' \
    'a trace of every rank'
is "$(sed 's/.*: 4 ranks, [0-9]* nodes, [0-9]* collectives, \([0-9]*\) messages of \([0-9]*\) bytes/\1 \2/' err)" \
    "30 $((4 * (4 + 2) * 2 * 64 * 96 * 4 + 3 * 256 * 96 * 4))" \
    'each half of four micro-batches to either rank, one back, and what the embedding ties'
refuses 4 '--chakra: .*nowhere' 'a folder that cannot be made' -- -p a.db --chakra nowhere/traces plan.json
run -p a.db --trace t.json plan.json
cmp -s out first.json
ok $? 'a trace changes nothing in the prediction'
holds t.json '.displayTimeUnit == "ms" and (.traceEvents | length) > 100' 'it is valid JSON'
holds t.json '[.traceEvents[] | select(.ph == "X") | .pid] | unique == [0, 2]' \
    'one rank of each stage'
holds t.json '[.traceEvents[] | select(.ph == "M") | .args.name] ==
    ["rank 0, stage 0", "rank 2, stage 1"]' 'with their names'
holds t.json "([.traceEvents[] | select(.ph == \"X\") | .ts + .dur] | max) -
    $(jq .time_us first.json) | fabs < 0.01" 'the last event ends with the step'
holds t.json '[.traceEvents[] | select(.ph == "X")] | group_by(.pid) | all(sort_by(.ts, .dur) |
    [., .[1:]] | transpose | all(.[1] == null or .[0].ts + .[0].dur <= .[1].ts + 0.01))' \
    'no two events of a rank overlap'
holds t.json '[.traceEvents[] | select(.ph == "X") | .cat] | unique ==
    ["comm", "compute", "p2p", "update"]' 'categories'
holds t.json '[.traceEvents[] | select(.name == "linear layer.0.qkv") | .args | {mb, seg}] ==
    [{"mb": 0, "seg": "F"}, {"mb": 1, "seg": "F"}, {"mb": 2, "seg": "F"}, {"mb": 3, "seg": "F"}]' \
    'events name instruction, op, micro-batch and segment'
holds t.json '[.traceEvents[] | select(.ph == "X" and .cat == "compute" and .name[:6] != "input ")] |
    all(.args.bytes > 0 and .args.flops >= 0)' 'what computes says how much'
# Two samples of 64 tokens on each rank, 96 columns in and three times as many out
holds t.json '[.traceEvents[] | select(.name == "linear layer.0.qkv") | .args |
    [.flops, .bytes]] | unique == [[2 * 128 * 96 * 288, 4 * (128 * (96 + 288) + 96 * 288 + 288)]]' \
    'flops and bytes of a product'
run -p a.db --trace t.json --trace-ranks all plan.json
holds t.json '[.traceEvents[] | select(.ph == "X") | .pid] | unique == [0, 1, 2, 3]' 'all ranks'
run -p a.db -o x.json --trace - plan.json
jq -e .traceEvents out >/dev/null
ok $? 'the timeline on standard output'

# ---- chunks ------------------------------------------------------------------------------------
jq '.schedule = "interleaved" | .stages = [range(4) | {group: (. % 2),
    ops: ["layer.\(.)", (if . == 0 then "wte", "wpe" else empty end),
          (if . == 3 then "ln", "head", "loss" else empty end)]}] | .set = "layers=4"' \
    plan.json >chunks.json
run --schedule chunks.json
is "$(sed 's/ R.*//' out)" "$(printf '%s\n' \
    'stages 0, 2: F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 L3.2 B2.0 L3.0' \
    'stages 1, 3: F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 L3.3 B2.1 L3.1')" \
    'the order of two stages on each of two groups'
run --cluster v100-4x8 --trace t.json chunks.json
holds out '[.stages[] | [.group, .first_rank]] == [[0, 0], [1, 1], [0, 0], [1, 1]]' \
    'stages say their group'
holds out '.time_us as $t | .stages[0].bubble_us as $b | .stages[0].memory == .stages[2].memory and
    ([.stages[0, 2] | .compute_us + .collective_us + .p2p_us + .update_us] | add + $b - $t | fabs < 0.01)' \
    'memory and bubble are those of the group'
holds t.json '[.traceEvents[] | select(.ph == "M") | .args.name] ==
    ["rank 0, stages 0, 2", "rank 1, stages 1, 3"]' 'one timeline for each group'

# ---- what the profile lacks ----------------------------------------------------------------------
jq '.micro_batch = 8' plan.json >other.json
refuses 1 'a.db lacks [0-9]* shapes on device a100: .*[a-z_]* [0-9,]*; ' \
    'shapes that were never measured' -- -p a.db other.json
grep -q 'hint:.*with: weft-profile-op --plan other.json.*--roofline 312T' err
ok $? "and how to compute them: $(tail -1 err)"
run -v -p a.db other.json
missing=$(sed -n 's/.*lacks \([0-9]*\) shapes.*/\1/p' err)
is "$(grep -c '^missing: ' err)" "$missing" '-v lists all of them'
hinted # runs the commands of the hint
run -p a.db other.json
is $status 0 'after that command there is a prediction'
sqlite3 a.db 'DELETE FROM comm WHERE group_size = 4' 2>err
refuses 1 'lacks 1 shape.*a100: all_reduce size=4 stride=1.*40' \
    'a group that was never measured' -- -p a.db plan.json
grep -q -- '--links "node:200G:5us cross:25G:10us"' err
ok $? "and how: $(tail -1 err)"
hinted
run -p a.db plan.json
cmp -s out first.json
ok $? 'the row made again, the prediction is the first'

# Whatever a plan splits, the command of the hint measures all that is missing.
for shape in '"dp:3" "batch" "" "batch"' '"" "batch" "tp:8" "heads ffn vocab"' \
    '"dp:2" "batch" "dp:2 tp:2" "batch"' '"tp:1" "heads ffn vocab" "tp:4" "vocab"'; do
    eval "set -- $shape"
    jq -n --arg a "$1" --arg la "$2" --arg b "$3" --arg lb "$4" '
        def layout(mesh; dims): {mesh: mesh, layout: ((mesh | split(" ")) - [""] |
            map({(split(":")[0]): (dims | split(" "))}) | add // {})};
        {format: "weft-plan/1", model: "gpt:nano", batch: 24, micro_batch: 12,
         set: "layers=2,hidden=96,heads=8,seq=64,vocab=256",
         stages: [{ops: ["wte", "wpe", "layer.0"]} + layout($a; $la), layout($b; $lb)]}' >odd.json
    rm -f odd.db
    "$WEFT_BIN/weft-profile-op" -q -m mlp -p odd.db --max-devices 1 --micro-batch 1 \
        "${roof[@]}" >out 2>err
    run -p odd.db odd.json
    before=$status hint=$(tail -1 err)
    hinted
    run -p odd.db odd.json
    [ "$before" -eq 1 ] && [ $status -eq 0 ]
    ok $? "a stage on \"$1\" before one on \"$3\": $hint, then $(tail -1 err)"
done

# ---- no profile: datasheets, or memory alone ----------------------------------------------------
run --memory -p a.db plan.json
holds out 'has("time") == false and .memory > 0 and (.stages | all(has("compute_us") == false))' \
    '--memory: memory alone'
is "$(jq .memory out)" "$(jq .memory first.json)" 'the same as with times'
run plan.json
[ $status -eq 0 ] && [ "$(jq .memory out)" = "$(jq .memory first.json)" ] && grep -q 'memory alone' err
ok $? "no profile and no datasheets: $(head -1 err)"
run --memory --text plan.json
[ $status -eq 0 ] && grep -q 'parameters' out && ! grep -q '^step' out
ok $? 'the table of memory'
run --cluster v100-4x8 plan.json
holds out '.time > 0 and .rests_on == {"datasheet": 1} and .device == "v100-32gb" and
    .low_us <= .time_us and .time_us <= .high_us' 'a cluster with datasheets is enough for a time'
cp out sheets.json
run --cluster v100-4x8 --text plan.json
grep -q 'rests on datasheet times for 100.0 %' out
ok $? "and says what it rests on: $(sed -n 2p out)"
grep -q '^devices 4 of kind v100-32gb on 1 node$' out
ok $? "nodes are those of its devices: $(grep '^devices' out)"
jq -e '.rests_on == {"datasheet": 1}' first.json >/dev/null
ok $? 'computed rows are datasheets too'
sqlite3 a.db "UPDATE op SET source = 'measured' WHERE instr LIKE 'linear%'"
run -p a.db plan.json
holds out '.rests_on | .measured > 0 and .datasheet > 0 and (.measured + .datasheet - 1 | fabs) < 1e-9' \
    'a mixture is told apart'
cp a.db half.db
sqlite3 half.db "DELETE FROM op WHERE instr LIKE 'layernorm%'; DELETE FROM comm"
refuses 1 'lacks' 'a profile with holes' -- -p half.db --cluster v100-4x8 --device a100 plan.json
run -p half.db --cluster v100-4x8 --device a100 --datasheets plan.json
holds out '.time > 0 and .rests_on.measured > 0 and .rests_on.datasheet > 0' \
    '--datasheets fills them'
refuses 2 'does not give its devices' 'datasheets that are not there' -- --datasheets plan.json
jq '.dtype = "bf16"' plan.json >bf16.json
refuses 2 'datasheet.*v100-32gb.*flops.*bf16' 'a type that the datasheet lacks' \
    -- --datasheets --cluster v100-4x8 bf16.json
grep -q '^hint: .*(fp32, fp16)' err
ok $? "and those that it has: $(grep hint err)"
run --cluster v100-4x8 bf16.json
[ $status -eq 0 ] && jq -e 'has("time") | not' out >jq.out && grep -q 'memory alone: .*bf16' err
ok $? "its memory is predicted: $(head -1 err)"
: >empty.json
refuses 3 'expected JSON, got nothing' 'a cluster file that is empty' -- --cluster ./empty.json plan.json

# ---- clusters -----------------------------------------------------------------------------------
jq '.cluster = "node:2 gpu:2"' plan.json >carried.json
run -p a.db carried.json
holds out '.cluster == {"nodes": 2, "devices": 4}' 'a plan carries its cluster'
cp out carried
run -p a.db --cluster 'node:2 gpu:2' plan.json
cmp -s out carried
ok $? 'which is as if it were named'
run -p a.db --cluster gpu:4 carried.json
holds out '.cluster.nodes == 1' 'another one may be named'
jq '.cluster = "gpu:2"' plan.json >bad.json
refuses 3 'bad.json: cluster:.*4 devices.*2' \
    'a plan whose cluster is too small' -- -p a.db bad.json
jq '.cluster = {"format": "weft-cluster/1", "nodes": 4}' plan.json >bad.json
refuses 3 'bad.json: cluster.devices_per_node' 'a plan with half a cluster' -- -p a.db bad.json
cat >unlike.json <<'END'
{"format": "weft-cluster/1",
 "groups": [
  {"nodes": 1, "devices": 2, "device": "fast", "memory": "16G", "flops": 20e12, "bandwidth": 1e12},
  {"nodes": 2, "devices": 1, "device": "slow", "memory": "1M", "flops": 2e12, "bandwidth": 1e11}],
 "links": [{"level": "node", "bandwidth": 10e9}, {"level": "between", "bandwidth": 50e9}]}
END
run --cluster ./unlike.json plan.json
holds out '.cluster == {"nodes": 3, "devices": 4} and .stages[1].compute_us > 5 * .stages[0].compute_us' \
    'nodes of different kinds: the stage on slow devices is slow'
holds out '.fits == false and .memory_limit == 1048576' 'and each stage has the memory of its devices'

# ---- several plans ------------------------------------------------------------------------------
cat plan.json carried.json | "$tool" -p a.db >out 2>err
is "$(jq -s -c 'map(.cluster.nodes)' out)" '[1,2]' 'plans one after the other get a prediction each'
{ jq -c . plan.json; echo '{"format": "weft-plan/1"'; } | "$tool" -p a.db >out 2>err
[ $? -eq 3 ] && grep -q 'standard input:[23]:' err
ok $? "the second one is cut: $(head -1 err)"

# ---- wrong usage ----------------------------------------------------------------------------------
refuses 2 'expected one plan' 'two plans' -- -p a.db plan.json plan.json
refuses 2 'trace-ranks' 'a strange set of ranks' -- -p a.db --trace t --trace-ranks some plan.json
refuses 2 'trace' 'two things on standard output' -- -p a.db --trace - plan.json
refuses 2 'frobnicate' 'an unknown option' -- -p a.db --frobnicate plan.json

# ---- wrong input ----------------------------------------------------------------------------------
refuses 3 'standard input' 'an empty standard input' -- -p a.db
refuses 3 'nowhere.json' 'a missing plan' -- -p a.db nowhere.json
head -c 100 plan.json >cut.json
refuses 3 'cut.json:[0-9]*:[0-9]*' 'a truncated plan' -- -p a.db cut.json
jq '.colour = 1' plan.json >bad.json
refuses 3 'bad.json: .*colour' 'an unknown key' -- -p a.db bad.json
jq '.stages[0].mesh = "dp:3"' plan.json >bad.json
refuses 3 'bad.json: stages\[0\].*dp' 'a layout that does not divide' -- -p a.db bad.json
refuses 3 'none.db' 'a missing profile' -- -p none.db plan.json
[ ! -e none.db ]
ok $? 'which is not made'
refuses 3 'plan.json' 'a profile that is none' -- -p plan.json plan.json
sqlite3 foreign.db 'CREATE TABLE t(x)'
refuses 3 'foreign.db' 'a foreign database' -- -p foreign.db plan.json
head -c 5000 a.db >torn.db
refuses 3 'torn.db' 'a torn database' -- -p torn.db plan.json
refuses 3 'no rows of device kind "tpu"' 'an unknown device kind' -- -p a.db --device tpu plan.json
refuses 3 'needs 4 devices, the cluster has 2' 'a cluster too small' -- -p a.db --cluster gpu:2 plan.json
refuses 3 'cluster' 'a strange cluster' -- -p a.db --cluster 'rack:2' plan.json
refuses 3 'not among the shipped' 'an unknown cluster' -- -p a.db --cluster nowhere plan.json
head -c 30 small.json >cut.json
refuses 3 'cut.json:' 'a truncated cluster file' -- -p a.db --cluster cut.json plan.json
echo '{"format":"weft-cluster/1","nodes":0,"devices_per_node":4}' >bad.json
refuses 3 'bad.json: nodes' 'no nodes' -- -p a.db --cluster bad.json plan.json
echo '{"format":"weft-cluster/1","nodes":1,"devices_per_node":4,"memory":"-3"}' >bad.json
refuses 3 'bad.json: memory' 'negative memory' -- -p a.db --cluster bad.json plan.json

# ---- failing output -------------------------------------------------------------------------------
refuses 4 'no/such' 'an output that cannot be made' -- -p a.db -o no/such/x.json other.json
refuses 4 'no/such' 'a trace that cannot be made' -- -p a.db --trace no/such/t.json other.json
if [ -e /dev/full ]; then
    "$tool" -p a.db other.json >/dev/full 2>err
    is $? 4 'a full disk'
fi

# ---- device models and runtimes ---------------------------------------------------------------
h100=(--cluster h100:2x2)
run "${h100[@]}" plan.json
holds out '.rests_on == {model: 1} and .device == "h100"' 'a cluster by kind: times of its device model'
jq .time_us out >weft.us
run --text "${h100[@]}" plan.json
grep -q 'rests on model times for 100.0 %' out
ok $? 'the table says so'
run --runtime megatron "${h100[@]}" plan.json
holds out '.runtime == "megatron" and .stages[0].memory.runtime >= 2147483648' 'under Megatron: its memory too'
jq -e --slurpfile weft weft.us '.time_us > 2 * $weft[0]' out >err
ok $? 'a small model takes more than twice as long there: its host launches every kernel'
run --runtime weft "${h100[@]}" plan.json
jq -e --slurpfile weft weft.us '.time_us == $weft[0] and (has("runtime") | not)' out >err
ok $? 'weft is no other runtime'
run -p a.db --device a100 --cluster h100:4 plan.json
jq .time_us out >rows.us
run -p a.db --device a100 --cluster h100:4 --datasheets plan.json
jq -e --slurpfile rows rows.us '.time_us == $rows[0]' out >err
ok $? 'a profile that has all rows: the same with and without curves behind it'
refuses 3 'there are: weft megatron megatron-core torch-compile torch-eager' 'a runtime that is not shipped' -- \
    --runtime megatorn "${h100[@]}" plan.json
# Korthikanti et al. 2022, figure 1, as Calculon's validation has it: GPT of 175B parameters in eight stages of
# three chunks each, GiB of activations of the first device, without recomputation and with selective.
gpt175=(-m gpt:1.3B --set "layers=96,hidden=12288,heads=96,seq=2048,vocab=51200" --set "dropout=0.1,tied=1"
    --dtype fp16 --tp 8 --pp 8 -b 64 --micro-batch 1 --schedule interleaved --chunks 3 --cluster a100-80gb:8x8)
for want in 'none 66.84375' 'selective 12.3515625 --sp'; do
    read -r how published sp <<<"$want"
    # shellcheck disable=SC2086
    "$WEFT_BIN/weft-plan" "${gpt175[@]}" --recompute "$how" $sp -o 175.json 2>err
    "$WEFT_BIN/weft-predict" --memory --runtime megatron 175.json >out 2>err
    jq -e --argjson want "$published" '.stages[0].memory |
        (.activations + .runtime - 2147483648) / 1073741824 / $want - 1 | fabs < 0.05' out >got
    ok $? "chunks share what they hold: within 5 % of $published GiB ($how)"
done
jq 'del(.ops.layernorm)' "$WEFT_ROOT/share/runtimes/megatron.json" >less.json
refuses 3 'ops: does not know layernorm, which layer.0.ln1 needs' 'a runtime that lacks an op' -- \
    --runtime ./less.json "${h100[@]}" plan.json
refuses 3 'no such kind of device is shipped' 'a kind that is not shipped' -- --cluster h101:8 plan.json

# ---- scenarios --------------------------------------------------------------------------------
scenario() { # scenario MEMBERS: leaves scenario.json
    printf '{"format": "weft-scenario/1"%s}\n' "${1:+, $1}" >scenario.json
}
run "${h100[@]}" plan.json
jq .time_us out >plain.us
scenario ''
run --scenario scenario.json "${h100[@]}" plan.json
jq -e --slurpfile plain plain.us '.samples_per_second as $speed | .time_us == $plain[0] and
    (.scenario | (.slower - 1 | fabs) < 1e-12 and .most_us == .least_us and
     (.runs | length == 1 and .[0].goodput == 1 and .[0].devices == 4 and
      (.[0].samples_per_second / $speed - 1 | fabs) < 1e-9))' out >err
ok $? 'a scenario in which nothing happens changes nothing'
scenario '"stragglers": {"share": 1, "slower": 2}, "slow_links": [{"links": "node", "speed": 0.5},
    {"links": "cross", "speed": 0.5}]'
run --scenario scenario.json "${h100[@]}" plan.json
jq -e --slurpfile plain plain.us '.time_us == $plain[0] and (.scenario.slower - 2 | fabs) < 1e-9' out >err
ok $? 'all devices and links at half their speed: twice as long, the step itself as before'
scenario '"steps": 400, "slow_links": [{"links": "cross", "speed": 0.1, "from_s": 900, "every_s": 3600},
    {"links": "node", "speed": 0.1, "from_s": 900, "every_s": 3600}]'
run --scenario scenario.json "${h100[@]}" plan.json
jq .scenario out >three.json
scenario '"slow_links": [{"links": "cross", "speed": 0.1}, {"links": "node", "speed": 0.1}]'
run --scenario scenario.json "${h100[@]}" plan.json
jq -e --slurpfile three three.json '.scenario.slower as $s | ($three[0].least_us - .time_us | fabs) < 0.01 and $s > 1.05 and
    ((($three[0].slower - 1) / ($s - 1) - 0.75) | fabs) < 0.08' out >err
ok $? 'links that are slow three quarters of every hour lose three quarters of what slow links lose'
scenario '"jitter": 0.05, "steps": 300'
run --scenario scenario.json "${h100[@]}" plan.json
cp out once && run --scenario scenario.json "${h100[@]}" plan.json && cmp -s once out
ok $? 'the same seed, the same answer'
jq -e '.scenario | .slower > 1.01 and .slower < 1.07 and .most_us > 1.03 * .least_us' out >err
ok $? "a stage waits for the slowest of its devices: $(jq .scenario.slower out)"
scenario '"failures": {"mtbf_hours": 50000, "restart_s": 300, "checkpoint_s": 30}, "hours": 20000,
    "devices": [10, 100, 1000, 10000, 100000]'
run --scenario scenario.json "${h100[@]}" plan.json
jq -e '[.scenario.runs[] | (.goodput / .expected - 1 | fabs) < 0.01] == [range(6) | true] and
    ([.scenario.runs[1:][].goodput] | . == (sort | reverse) and .[4] < 0.75 and .[1] > 0.98)' out >err
ok $? "goodput of 10 to 100,000 devices, by Daly's formula within 1 %: $(jq -c '[.scenario.runs[].goodput]' out)"
run --scenario scenario.json --text "${h100[@]}" plan.json
grep -q '^ *100000 ' out && grep -q '^scenario: a step takes' out
ok $? 'as a table'
scenario '"stragglers": {"share": 1.5, "slower": 2}'
refuses 3 'scenario.json: stragglers.share: ' 'a share above one' -- --scenario scenario.json "${h100[@]}" plan.json
scenario '"slow_links": [{"links": "rail", "speed": 0.5}]'
refuses 3 'scenario.json: slow_links\[0\].links: ' 'links of no kind' -- \
    --scenario scenario.json "${h100[@]}" plan.json
scenario '"failures": {"mtbf_hours": 100, "restart_s": 1, "checkpoint_s": 0}'
refuses 3 'scenario.json: failures.every_s: ' 'checkpoints that cost nothing, as often as is best' -- \
    --scenario scenario.json "${h100[@]}" plan.json
scenario '"devices": [10, 0]'
refuses 3 'scenario.json: devices\[1\]: ' 'no device' -- --scenario scenario.json "${h100[@]}" plan.json
scenario '"falures": {}'
refuses 3 'scenario.json: falures' 'a key that is none' -- --scenario scenario.json "${h100[@]}" plan.json
refuses 2 'no --scenario' 'memory alone does not go wrong' -- --memory --scenario scenario.json plan.json

echo "1..$n"
[ "$failed" -eq 0 ]
