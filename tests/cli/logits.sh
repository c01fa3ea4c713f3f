#!/usr/bin/env bash
# Logits in pieces train to the same losses as whole ones, evaluate to the same loss, and take the memory
# that is predicted. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun
set -u
export PATH=$WEFT_BIN:$PATH
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

near() { # near FILE FILE SHARE TEXT: their losses
    paste <(jq '.loss // empty' "$1") <(jq '.loss // empty' "$2") >out
    awk -v most="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; if (!(d <= most * $1)) bad = 1 }
        END { if (NR < 3 || bad) exit 1 }' out
    ok $? "$4"
}

train() { # train RANKS PLAN OPTION...: its lines to PLAN.out
    ranks=$1 plan=$2
    shift 2
    mpirun -n "$ranks" weft-run -q -n 3 "$@" "$plan" >"$plan.out" 2>err </dev/null
}

i=0
while read -r share ranks options; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    weft-plan -m $options >whole-$i 2>err && jq '.logits = 3' whole-$i >cut-$i
    ok $? "a plan: $options"
    train "$ranks" whole-$i && train "$ranks" cut-$i
    ok $? 'both train'
    near whole-$i.out cut-$i.out "$share" 'to the same losses'
    bytes=$(weft-predict --memory cut-$i | jq .memory)
    jq -e -s --argjson bytes "$bytes" 'all(.[]; .bytes == $bytes)' cut-$i.out >out 2>err
    ok $? "and take the $bytes bytes that are predicted, $(jq -s '.[0].bytes' whole-$i.out) without pieces"
done <<END
1e-6 1 gpt:nano --set layers=2,hidden=64,heads=4,seq=64,vocab=512 -b 8 --micro-batch 4
1e-6 2 gpt:nano --set layers=2,hidden=64,heads=4,seq=64,vocab=512,tied=0 -b 8 --micro-batch 4 --tp 2 --sp
1e-6 2 gpt:nano --set layers=2,hidden=64,heads=4,seq=64,vocab=512 -b 8 --micro-batch 2 --pp 2
1e-6 2 llama:nano --set layers=2 -b 8 --dp 2 --zero 2 --overlap
2e-3 2 gpt:nano --set layers=2,hidden=64,heads=4,seq=64,vocab=512 -b 8 --dp 2 --dtype bf16
END

# ---- a model that is evaluated -----------------------------------------------------------------

whole=whole-1 cut=cut-1
train 1 $whole --save saved
ok $? 'a checkpoint'
for p in $whole $cut; do
    weft-run -q --eval --resume saved --valid-batches 2 $p >$p.eval 2>err
done
jq -e -s '.[0].valid_loss as $a | .[1].valid_loss as $b | ($a - $b | fabs) < 1e-6 * $a' $whole.eval $cut.eval >out 2>err
ok $? 'has the same loss under both plans'
cp $cut.out before
train 1 $cut --valid-every 1 --valid-batches 1
[ -s before ] && diff <(jq -c '.loss // empty' before) <(jq -c '.loss // empty' $cut.out) >out 2>err
ok $? 'and to evaluate it between steps does not change the training'

# ---- searches --------------------------------------------------------------------------------

job='-m gpt:1.3B --set seq=1024 -b 8 --micro-batch 8 --dtype bf16 --cluster h100:1 --no-offload'
find_plan() { # find_plan MEMORY FILE OPTION...
    memory=$1 file=$2
    shift 2
    # shellcheck disable=SC2086
    weft-search -q $job --memory "$memory" "$@" >"$file" 2>err
}

! find_plan 26000M none --no-pieces && find_plan 26000M found
ok $? 'what fits in no other way is found in pieces'
jq -e '.logits > 1 and .provenance.predicted.memory_bytes <= 26000 * 1048576' found >out 2>err
ok $? "in $(jq .logits found)"
# shellcheck disable=SC2086
weft-search $job --memory 26000M --verify found >out 2>err
ok $? 'and verified'
find_plan 32000M with && find_plan 32000M without --no-pieces
ok $? 'where plans recompute for lack of memory'
jq -e -s '.[0].logits > 1 and .[0].provenance.predicted.time_us < 0.99 * .[1].provenance.predicted.time_us' \
    with without >out 2>err
ok $? 'pieces are faster'
find_plan 60G wide && jq -e '.logits == null' wide >out 2>err
ok $? 'and where there is room logits are whole'
find_plan 32000M again --from with && jq -e -s '.[0].logits == .[1].logits' with again >out 2>err
ok $? 'a search that begins with pieces keeps them'

echo "1..$n"
[ $failed -eq 0 ]
