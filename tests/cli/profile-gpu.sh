#!/usr/bin/env bash
# Algorithms of matrix products and convolutions: weft-profile-op keeps those that it found, weft-run takes
# them. On the fakes of CUDA, cuBLASLt and cuDNN (tests/mpi/gpu-profile-op.c, gpu-run.c).
# Prints TAP; the programs are in $WEFT_BIN and beside it.
# Needs: sqlite3
set -u
tests=$(cd "${WEFT_BIN:?}/../tests/mpi" 2>/dev/null && pwd)
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
: "${dir:?}"
n=0 failed=0

# ---- names of GPUs --------------------------------------------------------------------------
refuses() { # refuses PATTERN TEXT TOOL ARGS...
    local pattern=$1 text=$2 tool=$3
    shift 3
    "$WEFT_BIN/$tool" "$@" >out 2>err
    [ $? -eq 2 ] && grep -q "^$tool: error: .*$pattern" err && [ ! -e x.db ]
    ok $? "$text: $(head -1 err)"
}
refuses 'would time the CPU' 'the name of a GPU is none for the CPU' \
    weft-profile-op -m mlp -p x.db --device h100-80gb
grep -q '^hint: --device.*GPU.*cuda:h100-80gb.*name$' err
ok $? "with a hint: $(sed -n 2p err)"
refuses 'would time the CPU' 'nor for messages between hosts' \
    weft-profile-comm -p x.db --device h100-80gb
refuses '--tf32: only with --device cuda' 'TF32 of the CPU' weft-profile-op -m mlp -p x.db --tf32
refuses '--tf32: only with --device cuda' 'TF32 of a computed GPU' \
    weft-profile-op -m mlp -p x.db --tf32 --device cuda --roofline 1T:1T
"$WEFT_BIN/weft-profile-op" -q -m mlp -p a.db --device h100-80gb --roofline 1T:1T 2>err
is $? 0 'computed rows may have it'

[ -x "$tests/gpu-run" ] || skip_rest 'algorithms of products' 'built without CUDA'

# ---- found and kept -------------------------------------------------------------------------
cat >plan.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=2,hidden=16,heads=2,seq=8,vocab=256",
 "batch": 4, "micro_batch": 2, "stages": [{}]}
END
profile() { # profile ARGS...: leaves $status, out, err
    "$tests/gpu-profile-op" --plan plan.json --time 1ms --memory 32M "$@" >out 2>err
    status=$?
}
sql() { sqlite3 "$@" 2>&1; }
profile -p p.db --device cuda
is $status 0 'a GPU is timed'
is "$(sql p.db 'SELECT DISTINCT device FROM op')" fake-80gb 'rows are named after it'
products=$(sql p.db 'SELECT count(*) FROM algorithm')
[ "$products" -gt 4 ]
ok $? "algorithms of $products products are kept"
is "$(sql p.db "SELECT DISTINCT device, library, dtype FROM algorithm")" 'fake-80gb|130100|f32' \
    'of the GPU, the library and the type'
sql p.db 'SELECT * FROM algorithm ORDER BY shape, dtype_y' >before
sql p.db "DELETE FROM op WHERE instr = 'linear'"
profile -p p.db --device cuda
sql p.db 'SELECT * FROM algorithm ORDER BY shape, dtype_y' >after
[ $status -eq 0 ] && cmp -s before after && [ "$(sql p.db "SELECT count(*) FROM op WHERE instr = 'linear'")" -gt 0 ]
ok $? 'rows that are measured again take them'

# Products that round their operands are others, and so are their rows.
profile -p p.db --device cuda --tf32
is "$(sql p.db 'SELECT device, count(*) FROM op GROUP BY device' | sed 's/|.*//' | tr '\n' ' ')" \
    'fake-80gb fake-80gb-tf32 ' 'rows with TF32 have a kind of their own'
is "$(sql p.db 'SELECT DISTINCT dtype FROM algorithm ORDER BY dtype' | tr '\n' ' ')" 'f32 tf32 ' \
    'and products a type of theirs'
profile -p named.db --device cuda:mine --tf32
is "$(sql named.db 'SELECT DISTINCT device FROM op')" mine-tf32 'under another name too'
is "$(sql named.db 'SELECT DISTINCT device FROM algorithm')" fake-80gb 'but algorithms are the GPU'"'"'s'

# ---- taken ----------------------------------------------------------------------------------
train() { # train ARGS...: leaves $status, out, err
    "$tests/gpu-run" -q --threads 1 --device cuda -n 2 "$@" plan.json >out 2>err
    status=$?
}
counts() { sed -n 's/^# heuristics \([0-9]*\), algorithms \([0-9]*\) \([0-9]*\) \([0-9]*\)\(.*\)/\1 \2 \3 \4\5/p' err; }
losses() { sed 's/.*"loss": *\([0-9.e-]*\).*/\1/' out; }
train --deterministic
read -r heuristics first second third <<<"$(counts)"
[ $status -eq 0 ] && [ "$heuristics" -gt 4 ] && [ "$first" -gt 0 ] && [ "$second $third" = '0 0' ]
ok $? "without the profile the heuristic chooses: $(counts)"
losses >reference
epilogues() { sed -n 's/^# epilogues //p' err; }
use() { # use ALGORITHM WHICH
    sql p.db "UPDATE algorithm SET algorithm = '$1' WHERE $2"
}
epilogue="problem = 'product' AND json_extract('[' || shape || ']', '\$[6]')"
sums="$epilogue IN (2, 3)" forward="$epilogue = 7" backward="$epilogue = 8"
# Which was the fastest is as the machine was busy: now it is the second. What the library can do besides
# comes by passes of their own, which have the bits of no profile.
use apart "$epilogue >= 2"
sql p.db "UPDATE algorithm SET algorithm = '1' || substr(algorithm, 2) WHERE algorithm <> 'apart'"
train --deterministic --profile p.db
read -r heuristics first second third <<<"$(counts)"
[ $status -eq 0 ] && [ "$second" -gt 0 ] && [ "$first $third" = '0 0' ]
ok $? "with it its algorithms are taken: $(counts)"
cmp -s reference <(losses)
ok $? "the training is the same: $(paste -sd ' ' reference)"
train --profile p.db
[ $status -eq 0 ] && [ "$(counts | cut -d' ' -f1)" = 0 ]
ok $? "nothing is tried that is known: $(counts)"
"$tests/gpu-run" -v --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
grep -q '^weft-run: p.db: [0-9]* products.*says$' err
ok $? "and -v says so: $(grep 'p.db' err)"

# ---- epilogues ------------------------------------------------------------------------------
# Gradients of biases come with those of weights, and GELU and its gradient with the product before, where
# that was the faster way: here first nowhere, then everywhere, by an algorithm of the fake that promises
# little (tests/products/cublaslt.c).
kinds=$(for way in "$sums" "$forward" "$backward"; do
    sql p.db "SELECT count(*) > 0 FROM algorithm WHERE $way"
done)
is "$(paste -sd ' ' <<<"$kinds")" '1 1 1' 'kept is the way of gradients of biases, of GELU, of its gradient'
little='1,1000,400000004,400000004,100000001,0,0,0'
near() { paste reference <(losses) | awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 }'; }
train --deterministic --profile p.db
[ $status -eq 0 ] && [ "$(epilogues)" = 0 ] && cmp -s reference <(losses)
ok $? "apart: $(epilogues) epilogues, the training is the same"
for way in "$sums" "$forward" "$backward"; do
    use "$little" "$way"
    train --deterministic --profile p.db
    [ $status -eq 0 ] && [ "$(epilogues)" -gt 1 ] && ! grep -q wrong err && near
    ok $? "in one, $way: $(epilogues) epilogues, losses within 1e-5"
    use apart "$way"
done

# A row of GELU is what it adds to the product before it where the two are one call.
ours="instr LIKE 'gelu%' AND device = 'fake-80gb'"
gelus() { sql p.db "SELECT count(*) FROM op WHERE $ours"; }
before=$(gelus)
for way in apart "$little"; do
    use "$way" "$forward OR $backward"
    sql p.db "DELETE FROM op WHERE $ours"
    profile -p p.db --device cuda
    echo "$(epilogues) $(gelus)" >>counted
    [ $status -eq 0 ] && [ "$(gelus)" = "$before" ]
    ok $? "GELU is timed again: $before rows, $(epilogues) epilogues"
done
[ "$(sed -n '1s/ .*//p' counted)" = 0 ] && [ "$(sed -n '2s/ .*//p' counted)" -gt 20 ]
ok $? 'behind a product where it is in one with it'

# What is one launch: a clock by which each takes a millisecond tells. Of five norms four have the sum of a
# residual beside them, forward and backward, so a fifth of a launch is what a norm adds to the sums.
FAKE_CLOCK=1 profile -p clock.db --device cuda
sums() { sql clock.db "SELECT DISTINCT instr, round(median_us, 6) FROM op WHERE $1 ORDER BY instr" | paste -sd ' '; }
is "$status $(sums "instr LIKE '%norm%' OR instr = 'add'")" '0 add|1000.0 layernorm|200.0 layernorm_bwd|200.0' \
    'a norm and the sum of a residual are one launch'
is "$(sums "instr LIKE 'gelu%' OR instr = 'linear'")" 'gelu|0.0 gelu_dx|0.0 linear|1000.0' \
    'so are GELU and the product before it'
is "$(sql clock.db "SELECT count(*) FROM op WHERE median_us < 999 AND NOT (instr LIKE 'gelu%' OR instr LIKE '%norm%')")" 0 \
    'all others are launches of their own'

# The tests of a GPU themselves, for they have never seen one.
"$tests/gpu-epilogues" 8 >out 2>err
[ $? -eq 0 ] && [ "$(grep -c '^ok' out)" -gt 20 ] && ! grep -q '^not ok' out && [ "$(epilogues)" -gt 70 ]
ok $? "pairs launched and recorded, $(epilogues) in one: $(grep -m 1 -h 'not ok\|wrong' out err)"
"$tests/gpu-kernels" 1 >out 2>err
[ $? -eq 0 ] && [ "$(grep -c '^ok' out)" -gt 240 ] && ! grep -q '^not ok' out
ok $? "every instruction, launched, recorded and in place: $(grep -m 1 -h 'not ok\|wrong' out err)"
is "$(grep -c '^ok .* with a sum' out)" 12 'norms with the sums of residuals'

# ---- all of them ----------------------------------------------------------------------------
# What the plans of tests/golden ask cuBLASLt for, and their models' profiles have: matrices by strides
# (experts, products), ranks that add no bias (hidden, mlp), GELU in products (one).
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
misses() { # misses RANKS PLAN ARGS...: profiles with ARGS, runs the plan; prints how often a rank asked for algorithms
    local ranks=$1 plan=$WEFT_ROOT/tests/golden/$2.plan.json
    shift 2
    (
        cd "$WEFT_ROOT" || exit
        rm -f "$dir/all.db"
        "$tests/gpu-profile-op" -q -p "$dir/all.db" --device cuda --time 1ms --memory 32M "$@" >"$dir/out" 2>"$dir/err" &&
            timeout 120 mpirun -n "$ranks" "$tests/gpu-run" -q --threads 1 --device cuda -n 1 --data synthetic \
                --profile "$dir/all.db" "$plan" >"$dir/out" 2>"$dir/err" &&
            sed -n 's/^# heuristics \([0-9]*\),.*/\1/p' "$dir/err" | sort -u
    )
}
which=0
for plan in one:1 hidden:2 mlp:4 experts:2 products:2; do
    of_today $((which++)) 3 || continue
    is "$(misses "${plan#*:}" "${plan%:*}" --plan "$WEFT_ROOT/tests/golden/${plan%:*}.plan.json")" 0 \
        "${plan%:*}: the profile of the plan knows them all"
done
if of_today 0 2; then
    is "$(misses 2 tensor -m tests/models/block.json --max-devices 2 --micro-batch 4)" 0 \
        'tensor: that of the model, with GELU in shares of products'
else
    is "$(misses 2 products -m tests/models/products.json --max-devices 2 --micro-batch 4)" 0 \
        'products: that of the model, for all plans on 2 devices, too'
fi

# Each rank sees one GPU, its own: what others take is no part of what is beside.
(
    cd "$WEFT_ROOT" || exit
    mpirun -n 2 "$tests/gpu-run" --threads 1 --device cuda -n 1 --data synthetic tests/golden/tensor.plan.json
) >out 2>err
is "$? $(grep -c 'others take 0.000 GB beside, with 1 communicator of NCCL$' err)" '0 1' \
    'what is taken beside, with how many communicators'

# ---- seen -----------------------------------------------------------------------------------
# The first step is watched, and of every eight that follow the first.
mkdir seen
(
    cd "$WEFT_ROOT" || exit
    mpirun -n 2 "$tests/gpu-run" -q --threads 1 --device cuda -n 12 --data synthetic --timing \
        --trace "$dir/seen/run.json" tests/golden/tensor.plan.json &&
        "$WEFT_BIN/weft-predict" --cluster h100-8 --trace "$dir/seen/predicted.json" tests/golden/tensor.plan.json
) >out 2>err
is $? 0 "a trace and times: $(grep error err)"
jq -e '[.traceEvents[] | select(.ph == "X") | .args.step] | unique == [1, 2, 10]' seen/run.json >/dev/null
ok $? 'a trace has the steps that were watched'
jq -e '[.traceEvents[] | select(.ph == "X")] | (map(select(.args.captured)) | length) > length / 2 and
    all(.dur >= 0) and (map(.name) | any(startswith("linear_dx")))' seen/run.json >/dev/null
ok $? 'most of it in captured regions, instruction by instruction'
jq -e '[.traceEvents[] | select(.ph == "X" and .pid == 0)] | group_by(.args.step) |
    all((map(.dur) | add) <= (map(.ts + .dur) | max) - (map(.ts) | min) + 1)' seen/run.json >/dev/null
ok $? 'and nothing twice'
[ "$(awk '$1 == "norm" { print $4 }' err)" ] && awk '/ %$/ && $1 != "outside" { n++ } $1 == "linear" { linear = $4 }
    END { exit !(n > 5 && linear > 0) }' err
ok $? "not all of the time is the norm's: $(grep '^norm' err)"
"$WEFT_ROOT/scripts/trace-both.sh" seen/run.json seen/predicted.json >seen/both.json
jq -e '[.traceEvents[] | select(.name == "process_name") | [.pid, .args.name]] | map(.[0]) == [0, 1, 2] or
    map(.[0]) == [0, 1, 2, 3]' seen/both.json >/dev/null &&
    jq -e '[.traceEvents[] | select(.ph == "X") | .ts] | min == 0' seen/both.json >/dev/null
ok $? 'both in one file, the measured above'

# ---- refused --------------------------------------------------------------------------------
FAKE_VERSION=130200 "$tests/gpu-run" --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
status=$?
is "$status $(grep -c "algorithms of [0-9]* products are cuBLASLt 13.1.0's, and this is 13.2.0: they are chosen anew" err)" \
    '0 1' 'another version of the library: told in one line'
sql p.db "UPDATE algorithm SET algorithm = '9,0,0,0,0,0,0,0'"
"$tests/gpu-run" --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
status=$?
is "$status $(grep -c 'cuBLASLt 13.1.0 refuses the algorithms of [0-9]* products: they are chosen anew' err)" \
    '0 1' 'algorithms that it has not'
sql p.db "UPDATE algorithm SET device = 'other-80gb'"
train --deterministic --profile p.db
[ $status -eq 0 ] && [ "$(counts | cut -d' ' -f3)" = 0 ]
ok $? "those of another GPU are not looked at: $(counts)"
"$tests/gpu-run" --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
[ $? -eq 0 ] &&
    [ "$(grep -c 'has algorithms of kind "other-80gb", and this GPU is of kind "fake-80gb": they are chosen anew' err)" -eq 1 ]
ok $? "which is told of: $(grep 'this GPU is of kind' err)"
train --profile none.db
[ $status -eq 3 ] && grep -q '^weft-run: error: none.db: No.*file' err
ok $? "a profile that is not there: $(grep error err)"

# ---- convolutions -------------------------------------------------------------------------------
cudnn() { sed -n 's/^# cudnn: heuristics \([0-9]*\), plans \([0-9]*\)\(.*\)/\1 \2\3/p' err; }
if grep -q '^HAVE_CUDNN := yes' "$WEFT_BIN/../found.mk"; then
    cp plan.json gpt.json
    printf '{"format": "weft-plan/1", "model": "%s", "batch": 4, "micro_batch": 2, "stages": [{}]}\n' \
        "$WEFT_ROOT/tests/models/convnet.json" >plan.json
    profile -p c.db --device cuda
    is "$status $(sql c.db "SELECT DISTINCT library, dtype FROM algorithm WHERE problem LIKE 'conv2d%'")" \
        '0 91900|f32' "convolutions are kept, by cuDNN's version"
    is "$(sql c.db "SELECT problem, count(*) FROM algorithm WHERE problem != 'product' GROUP BY problem" | paste -sd ' ')" \
        'conv2d|2 conv2d_dw|2 conv2d_dx|1' 'of each shape and pass'
    train --deterministic
    [ $status -eq 0 ] && [ "$(cudnn | cut -d' ' -f1)" -gt 4 ]
    ok $? "without the profile heuristics choose: $(cudnn)"
    losses >reference
    # Own kernels, and engines of a fixed order.
    sql c.db "UPDATE algorithm SET algorithm = 'cudnn f32 105 2=12' WHERE problem LIKE 'conv2d%';
              UPDATE algorithm SET algorithm = 'own' WHERE problem = 'conv2d_dx'"
    train --deterministic --profile c.db
    is "$status $(cudnn)" '0 0 4' 'with it a plan is made of each engine that is known, and none is looked for'
    cmp -s reference <(losses)
    ok $? "the training is the same: $(paste -sd ' ' reference)"
    sql c.db "UPDATE algorithm SET algorithm = 'cudnn f32 101 2=8' WHERE problem LIKE 'conv2d%'"
    train --deterministic --profile c.db
    [ $status -eq 0 ] && [ "$(cudnn | cut -d' ' -f1)" -gt 4 ] && ! grep -q anew err
    ok $? "an engine that adds in any order is not taken with --deterministic: $(cudnn)"
    train -v --profile c.db
    is "$status $(cudnn) $(grep -c 'c.db: 5 convolutions are computed as it says' err)" '0 0 5 1' 'but without it'
    FAKE_CUDNN=92000 "$tests/gpu-run" --threads 1 --device cuda -n 1 --profile c.db plan.json >out 2>err
    is "$? $(grep -c "algorithms of 5 convolutions are cuDNN 9.19.0's, and this is 9.20.0: they are chosen anew" err)" \
        '0 1' 'another version of cuDNN: told in one line'
    mv gpt.json plan.json
else
    skip 'convolutions' 'built without cuDNN'
fi

# ---- files of earlier versions ------------------------------------------------------------------
cp p.db two.db
sql two.db "CREATE TABLE product AS SELECT device, library, shape, dtype, dtype_y, algorithm, workspace,
        least_us, machine, measured_at FROM algorithm;
    DROP TABLE algorithm; PRAGMA user_version = 2;
    UPDATE product SET device = 'fake-80gb',
        algorithm = CASE WHEN json_extract('[' || shape || ']', '\$[6]') >= 2 THEN 'apart' ELSE '1,0,0,0,0,0,0,0' END;
    UPDATE meta SET value = 'weft-profile/2' WHERE key = 'format'"
train --deterministic
losses >reference
train --deterministic --profile two.db
[ $status -eq 0 ] && cmp -s reference <(losses) && [ "$(counts | cut -d' ' -f1,2,4)" = '0 0 0' ]
ok $? "products of a profile of version 2 are taken: $(counts)"
sql p.db "DROP TABLE algorithm; PRAGMA user_version = 1;
          UPDATE meta SET value = 'weft-profile/1' WHERE key = 'format'"
cp p.db old.db
train --deterministic --profile old.db
[ $status -eq 0 ] && cmp -s reference <(losses)
ok $? 'a profile of version 1 knows no product, and trains'
cmp -s p.db old.db
ok $? 'and is left as it is'
sql old.db "DELETE FROM op WHERE instr = 'linear'"
profile -p old.db --device cuda
[ $status -eq 0 ] && [ "$(sql old.db 'SELECT count(*) FROM algorithm')" -gt 0 ] &&
    [ "$(sql old.db 'PRAGMA user_version; SELECT value FROM meta' | paste -sd' ')" = '3 weft-profile/3' ]
ok $? 'who writes to it makes it one of version 3'

echo "1..$n"
[ $failed -eq 0 ]
