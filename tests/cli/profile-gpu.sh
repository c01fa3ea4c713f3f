#!/usr/bin/env bash
# Algorithms of matrix products: weft-profile-op keeps those that it found, weft-run takes them. On the
# fakes of CUDA and cuBLASLt (tests/mpi/gpu-profile-op.c, gpu-run.c).
# Prints TAP; the programs are in $WEFT_BIN and beside it.
# Needs: sqlite3
set -u
tests=$(cd "${WEFT_BIN:?}/../tests/mpi" 2>/dev/null && pwd)
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
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
grep -q '^hint: --device cuda times the GPU, cuda:h100-80gb under this name$' err
ok $? "with a hint: $(sed -n 2p err)"
refuses 'would time the CPU' 'nor for messages between hosts' \
    weft-profile-comm -p x.db --device h100-80gb
refuses '--tf32: only with --device cuda' 'TF32 of the CPU' weft-profile-op -m mlp -p x.db --tf32
refuses '--tf32: only with --device cuda' 'TF32 of a computed GPU' \
    weft-profile-op -m mlp -p x.db --tf32 --device cuda --roofline 1T:1T
"$WEFT_BIN/weft-profile-op" -q -m mlp -p a.db --device h100-80gb --roofline 1T:1T 2>err
is $? 0 'computed rows may have it'

if [ ! -x "$tests/gpu-run" ]; then
    skip 'algorithms of products' 'built without CUDA'
    echo "1..$n"
    [ $failed -eq 0 ]
    exit
fi

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
products=$(sql p.db 'SELECT count(*) FROM product')
[ "$products" -gt 4 ]
ok $? "algorithms of $products products are kept"
is "$(sql p.db "SELECT DISTINCT device, library, dtype FROM product")" 'fake-80gb|130100|f32' \
    'of the GPU, the library and the type'
sql p.db 'SELECT * FROM product ORDER BY shape, dtype_y' >before
sql p.db "DELETE FROM op WHERE instr = 'linear'"
profile -p p.db --device cuda
sql p.db 'SELECT * FROM product ORDER BY shape, dtype_y' >after
[ $status -eq 0 ] && cmp -s before after && [ "$(sql p.db "SELECT count(*) FROM op WHERE instr = 'linear'")" -gt 0 ]
ok $? 'rows that are measured again take them'

# Products that round their operands are others, and so are their rows.
profile -p p.db --device cuda --tf32
is "$(sql p.db 'SELECT device, count(*) FROM op GROUP BY device' | sed 's/|.*//' | tr '\n' ' ')" \
    'fake-80gb fake-80gb-tf32 ' 'rows with TF32 have a kind of their own'
is "$(sql p.db 'SELECT DISTINCT dtype FROM product ORDER BY dtype' | tr '\n' ' ')" 'f32 tf32 ' \
    'and products a type of theirs'
profile -p named.db --device cuda:mine --tf32
is "$(sql named.db 'SELECT DISTINCT device FROM op')" mine-tf32 'under another name too'
is "$(sql named.db 'SELECT DISTINCT device FROM product')" fake-80gb 'but algorithms are the GPU'"'"'s'

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
# Which was the fastest is as the machine was busy: now it is the second.
sql p.db "UPDATE product SET algorithm = '1' || substr(algorithm, 2) WHERE algorithm <> 'apart'"
train --deterministic --profile p.db
read -r heuristics first second third <<<"$(counts)"
[ $status -eq 0 ] && [ "$second" -gt 0 ] && [ "$first $third" = '0 0' ]
ok $? "with it its algorithms are taken: $(counts)"
cmp -s reference <(losses)
ok $? "the training is the same: $(paste -sd ' ' reference)"
train --profile p.db
[ $status -eq 0 ] && [ "$(counts | cut -d' ' -f2,4)" = '0 0' ]
ok $? "nothing is tried that is known: $(counts)"
"$tests/gpu-run" -v --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
grep -q '^weft-run: p.db: [0-9]* products are computed as it says$' err
ok $? "and -v says so: $(grep 'p.db' err)"

# ---- epilogues ------------------------------------------------------------------------------
# Gradients of biases come with those of weights where that was the faster way: first nowhere, then
# everywhere, by an algorithm of the fake that promises little (tests/products/cublaslt.c).
epilogues() { sed -n 's/^# epilogues //p' err; }
sums="shape LIKE '%,%,%,1,0,1,2,%' OR shape LIKE '%,%,%,1,0,1,3,%'"
[ "$(sql p.db "SELECT count(*) FROM product WHERE $sums")" -gt 3 ]
ok $? 'which way biases get their gradients is kept, too'
sql p.db "UPDATE product SET algorithm = 'apart' WHERE $sums"
train --deterministic --profile p.db
[ $status -eq 0 ] && [ "$(epilogues)" = 0 ] && cmp -s reference <(losses)
ok $? "apart: $(epilogues) epilogues, the training is the same"
sql p.db "UPDATE product SET algorithm = '1,1000,400000004,400000004,100000001,0,0,0' WHERE $sums"
train --deterministic --profile p.db
[ $status -eq 0 ] && [ "$(epilogues)" -gt 3 ] && ! grep -q wrong err &&
    paste reference <(losses) | awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 }'
ok $? "in one: $(epilogues) epilogues, losses within 1e-5 of it"

# ---- refused --------------------------------------------------------------------------------
FAKE_VERSION=130200 "$tests/gpu-run" --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
status=$?
is "$status $(grep -c "algorithms of [0-9]* products are cuBLASLt 13.1.0's, and this is 13.2.0: they are chosen anew" err)" \
    '0 1' 'another version of the library: told in one line'
sql p.db "UPDATE product SET algorithm = '9,0,0,0,0,0,0,0'"
"$tests/gpu-run" --threads 1 --device cuda -n 1 --profile p.db plan.json >out 2>err
status=$?
is "$status $(grep -c 'cuBLASLt 13.1.0 refuses the algorithms of [0-9]* products: they are chosen anew' err)" \
    '0 1' 'algorithms that it has not'
sql p.db "UPDATE product SET device = 'other-80gb'"
train --deterministic --profile p.db
[ $status -eq 0 ] && [ "$(counts | cut -d' ' -f3)" = 0 ] && ! grep -q anew err
ok $? "those of another GPU are not looked at: $(counts)"
train --profile none.db
[ $status -eq 3 ] && grep -q '^weft-run: error: none.db: No such file' err
ok $? "a profile that is not there: $(grep error err)"

# ---- files of version 1 ---------------------------------------------------------------------
sql p.db "DROP TABLE product; PRAGMA user_version = 1;
          UPDATE meta SET value = 'weft-profile/1' WHERE key = 'format'"
cp p.db old.db
train --deterministic --profile old.db
[ $status -eq 0 ] && cmp -s reference <(losses)
ok $? 'a profile of version 1 knows no product, and trains'
cmp -s p.db old.db
ok $? 'and is left as it is'
sql old.db "DELETE FROM op WHERE instr = 'linear'"
profile -p old.db --device cuda
[ $status -eq 0 ] && [ "$(sql old.db 'SELECT count(*) FROM product')" -gt 0 ] &&
    [ "$(sql old.db 'PRAGMA user_version; SELECT value FROM meta' | paste -sd' ')" = '2 weft-profile/2' ]
ok $? 'who writes to it makes it one of version 2'

echo "1..$n"
[ $failed -eq 0 ]
