#!/usr/bin/env bash
# Wide-ResNet as a user runs it: split over height and width, over batch and over channels it trains to
# the same losses; validation, by running statistics, agrees; a checkpoint of one plan goes on under
# another; and what cannot be split is refused by name. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun
set -u
tool=${WEFT_BIN:?}/weft-run
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

rows='["height1", "height2", "height3", "height4", "height5"]'
columns='["width1", "width2", "width3", "width4", "width5"]'
channels='["narrow1", "wide1", "out1", "wide2", "out3", "wide4", "classes"]'
cat >one.json <<'END'
{"format": "weft-plan/1", "model": "wide-resnet:nano", "set": "image=16", "batch": 16,
 "micro_batch": 8, "optimizer": "sgd", "stages": [{}]}
END
plan() { # plan NAME STAGE
    jq ".stages = [$2]" one.json >"$1.json"
}
plan space "{mesh: \"h:2 w:2\", layout: {h: $rows, w: $columns}}"
plan data '{mesh: "dp:4", layout: {dp: "batch"}, zero: 1}'
plan channels "{mesh: \"tp:2\", layout: {tp: $channels}}"
plan mixed "{mesh: \"dp:2 h:2\", layout: {dp: \"batch\", h: $rows}, recompute: \"all\"}"

run() { # run RANKS ARGS...: leaves $status, out, err
    local ranks=$1
    shift
    timeout 120 mpirun -n "$ranks" "$tool" -q --threads 1 --data synthetic --lr 0.01 --warmup 2 "$@" \
        >out 2>err </dev/null
    status=$?
}
numbers() { # numbers FILE: what the plan must not change, line by line
    jq -c 'if .valid_loss then [.step, .valid_loss] else [.step, .loss, .grad_norm] end' "$1"
}
close() { # close FILE FILE LIMIT: the same lines, numbers to a relative limit
    paste -d' ' <(numbers "$1") <(numbers "$2") | jq -se "
        length > 0 and (length % 2 == 0) and
        ([range(0; length; 2) as \$i | .[\$i] as \$a | .[\$i + 1] as \$b |
          range(\$a | length) | (\$a[.] - \$b[.]) | fabs] as \$apart |
         [range(0; length; 2) as \$i | .[\$i] | .[]] as \$all |
         all(range(\$all | length); \$apart[.] <= $3 * (\$all[.] | fabs)))" >/dev/null
}

run 1 -n 4 --valid-every 2 --save one --save-every 2 --keep 0 one.json
is "$status" 0 'one rank'
cp out want
for name in space data channels mixed; do
    ranks=4
    [ "$name" = channels ] && ranks=2
    run "$ranks" -n 4 --valid-every 2 --save "$name" --save-every 2 --keep 0 "$name.json"
    is "$status" 0 "$name: ends well"
    close want out 2e-4
    ok $? "$name: losses, norms and validation losses as of one rank"
done

# Weights and running statistics of step 2 go on under other plans.
jq -c 'select(.step > 2)' want >rest
run 4 -n 4 --valid-every 2 --resume one/step-00000002 space.json
close rest out 2e-4
ok $? 'one rank, then height and width split: the same losses'
run 1 -n 4 --valid-every 2 --resume space/step-00000002 one.json
close rest out 2e-4
ok $? 'height and width split, then one rank: the same losses'

# Reading is no part of a step: an image that one rank holds is read in one piece, not pixel by pixel,
# which took a third of this step's time, and by a thread that reads ahead. --timing has no row for what
# takes less than a two-thousandth.
{
    printf '\0\0\10\4\0\0\0\10\0\0\0\340\0\0\0\340\0\0\0\3'
    head -c $((8 * 224 * 224 * 3)) /dev/zero
} >images
printf '\0\0\10\1\0\0\0\10\0\1\2\3\4\5\6\7' >labels
jq '.set = "image=224" | .batch = 4 | .micro_batch = 4' one.json >large.json
"$tool" -v --threads 1 --data images,labels -n 2 --timing large.json >out 2>err </dev/null
is $? 0 'images of 224 x 224 from a file'
grep -qE '^weft-run: drawing the parameters took [0-9.]+ s$' err
ok $? '-v says how long drawing the parameters took'
awk '$1 == "conv2d" { seen = 1 } $1 == "input" { share = $4 } END { exit !(seen && share < 5) }' err
ok $? "input takes less than 5 % of a step, or too little for a row"

refuses() { # refuses PATTERN TEXT ARGS...
    local pattern=$1 text=$2
    shift 2
    timeout 60 "$tool" --dry-run "$@" >out 2>err
    [ $? -eq 3 ] && grep -q "^weft-run: error: .*$pattern" err && [ "$(grep -c error err)" -eq 1 ]
    ok $? "$text: $(grep -m1 '^weft-run' err)"
}
jq '.set = "image=18"' space.json >bad.json
refuses 'bad.json: stages\[0\].layout: axis.*(2).*divide height3 (9).*stage.1.first.0.conv2' \
    'a height that cannot be split' bad.json
jq '.micro_batch = 2' one.json >bad.json
refuses 'bad.json: stages\[0\].layout:.*micro-batch (2) cuts.*group (4).*bn' \
    'a micro-batch without whole groups' bad.json
echo "1..$n"
[ "$failed" -eq 0 ]
