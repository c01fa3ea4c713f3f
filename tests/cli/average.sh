#!/usr/bin/env bash
# Replicas that train apart, from the command line: plans that say so, what they are refused for, memory
# as predicted, a killed run that goes on, and checkpoints that any plan reads. Prints TAP; the programs
# are in $WEFT_BIN.
# Needs: jq mpirun pgrep
set -u
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
bin=${WEFT_BIN:?}
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

plan() { # plan ARGS...: of a small GPT
    "$bin/weft-plan" -q -m gpt:nano --set layers=2,hidden=48,heads=4,seq=32,vocab=256 -b 8 --micro-batch 4 "$@"
}
refused() { # refused STATUS PATTERN TEXT COMMAND...
    local want=$1 pattern=$2 text=$3
    shift 3
    "$@" >out 2>err
    [ $? -eq "$want" ] && grep -Eq "$pattern" err
    ok $? "$text"
}

# ---- words ---------------------------------------------------------------------------------------------
plan --dp 2 --average pairs --average-every 4 -o pairs.json 2>err
ok $? 'a plan in pairs'
is "$(jq -c '[.average, .average_every, .average_axes]' pairs.json)" '["pairs",4,null]' 'its keys'
plan --mesh node:2,tp:2 --layout 'batch:node,heads:tp,ffn:tp' --average all --average-axes node -o node.json 2>err
ok $? 'one of a mesh of its own'
is "$(jq -c '[.average, .average_every, .average_axes]' node.json)" '["all",null,["node"]]' 'its keys'
"$bin/weft-plan" --show pairs.json >out 2>err
grep -Eq '^average +pairs, every 4 steps' out
ok $? 'it is shown'
refused 2 'average: expected none, all or pairs, got "some"' 'an average that is none' \
    plan --dp 2 --average some
refused 2 'average_axes\[0\]: no mesh has an axis "nodes"' 'an axis that is none' \
    plan --dp 2 --average all --average-axes nodes
refused 2 'average: .* aggregate median' 'beside a rule' \
    plan --dp 3 --micro-batch 6 -b 6 --average all --aggregate median
for form in aceso megatron torchtitan deepspeed; do
    refused 3 'average: ' "$form has no word for it" "$bin/weft-plan" --to $form pairs.json
done

# ---- memory and the order -------------------------------------------------------------------------------
is "$("$bin/weft-predict" --schedule pairs.json 2>err)" 'stage 0: F0 B0 F1 L1 R N U P' 'pairs in the schedule'
plan --dp 2 --average all --average-every 3 -o all.json 2>err
plan --dp 2 --average all --average-every 3 --dtype bf16 -o half.json 2>err
plan --dp 2 -o sums.json 2>err
plan -o one.json 2>err
for p in all pairs half; do
    mpirun -n 2 "$bin/weft-run" -q --threads 1 -n 5 $p.json >out 2>err
    ok $? "$p: five steps"
    is "$(jq -s '.[0].bytes' out)" \
        "$("$bin/weft-predict" --memory $p.json | jq '.stages[0].memory.total')" \
        "$p: bytes as predicted"
done

# ---- checkpoints ----------------------------------------------------------------------------------------
steps=24
train() { # train PLAN RANKS ARGS...
    local p=$1 ranks=$2
    shift 2
    timeout 300 mpirun -n "$ranks" "$bin/weft-run" -q --threads 1 -n $steps "$@" "$p.json"
}
losses() { # losses FILE STEP: lines behind STEP, without what depends on time
    jq -c "select(.step_ms and .step > $2) | [.step, .loss, .grad_norm, .lr]" "$1"
}
sums() { # sums DIR: checksums of the data of the last checkpoint
    jq -cS '[.files[] | del(.name)]' "$1/step-$(printf %08d $steps)/index.json"
}
for p in all pairs; do
    # Every fifth step: no multiple of three or four, so replicas are averaged for it.
    train $p 2 --save "whole-$p" --save-every 5 >"whole-$p.out" 2>err
    ok $? "$p: uninterrupted"
    rm -rf ck
    : >out
    mpirun -n 2 "$bin/weft-run" -q --threads 1 -n $steps --save ck --save-every 5 $p.json >out 2>err &
    pid=$!
    for _ in $(seq 2000); do
        [ -e ck/step-00000010/index.json ] && break
        sleep 0.01
    done
    pkill -KILL -P $pid 2>/dev/null
    wait $pid 2>/dev/null
    from=$(find ck -name index.json | sed 's/.*step-0*//; s,/.*,,' | sort -n | tail -1)
    train $p 2 --save ck --save-every 5 --auto-resume >out 2>err
    [ $? -eq 0 ] && [ "$from" -ge 10 ] && [ "$(losses out "$from")" = "$(losses "whole-$p.out" "$from")" ] &&
        [ "$(sums ck)" = "$(sums "whole-$p")" ]
    ok $? "$p: killed, goes on from step $from, the same bits"
    for other in 'sums 2' 'one 1'; do
        # shellcheck disable=SC2086
        steps=26 train $other --resume "whole-$p" >"out-${other% *}" 2>err
        ok $? "$p: what it saved goes on as $other"
    done
    jq -es --slurpfile b out-one 'map(.loss) as $a | ($b | map(.loss)) as $b |
        ($a | length) == 2 and ([range(2)] | all(($a[.] / $b[.] - 1 | fabs) < 1e-5))' out-sums >/dev/null
    ok $? "$p: which have the same losses"
done

# Where validations are due replicas are one model: its loss is that of the checkpoint.
train pairs 2 --save valid --valid-every $steps >out 2>err
train one 1 --resume valid --eval --valid-batches 8 >again 2>err
jq -en --slurpfile a out --slurpfile b again \
    '(($a | map(.valid_loss // empty))[-1] / ($b | map(.valid_loss // empty))[-1] - 1 | fabs) < 1e-5' >/dev/null
ok $? 'the loss of a validation is that of the model that is saved'

echo "1..$n"
[ $failed -eq 0 ]
