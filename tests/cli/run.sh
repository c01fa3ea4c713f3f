#!/usr/bin/env bash
# weft-run as a user runs it: metrics, plans from files and pipes, signals and closed pipes, and
# what wrong usage, wrong files and outputs that cannot be written get. Prints TAP; the programs
# are in $WEFT_BIN.
# Needs: jq mpirun cc
set -u
tool=${WEFT_BIN:?}/weft-run
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0
leaks=${ASAN_OPTIONS:-} # Open MPI does not free all; what runs without it is checked
export ASAN_OPTIONS=detect_leaks=0

run() { # run RANKS ARGS...: leaves $status, out, err. One rank needs no mpirun, none no MPI.
    local ranks=$1
    shift
    if [ "$ranks" -eq 0 ]; then
        ASAN_OPTIONS=$leaks timeout 120 "$tool" --dry-run "$@" >out 2>err </dev/null
    elif [ "$ranks" -eq 1 ]; then
        timeout 120 "$tool" -q --threads 1 "$@" >out 2>err </dev/null
    else
        timeout 120 mpirun -n "$ranks" "$tool" -q --threads 1 "$@" >out 2>err </dev/null
    fi
    status=$?
}
holds() { # holds EXPRESSION TEXT: jq says true of all lines of out
    jq -es "$1" out >/dev/null 2>err
    ok $? "$2"
}
refuses() { # refuses RANKS STATUS PATTERN TEXT -- ARGS...: one line, and nothing on stdout
    local ranks=$1 want=$2 pattern=$3 text=$4
    shift 5
    run "$ranks" "$@"
    [ "$status" -eq "$want" ] && [ ! -s out ] && grep -q "^weft-run: error: .*$pattern" err &&
        [ "$(grep -c '^weft-run: error' err)" -eq 1 ]
    ok $? "$text: $(grep -m1 '^weft-run' err) (exit $status)"
}
wrong() { # wrong FILTER PATTERN TEXT: the plan after a jq filter
    jq "$1" one.json >bad.json
    refuses 0 3 "bad.json: $2" "$3" -- bad.json
}
losses() { # losses FILE: what must not depend on time
    jq -c 'select(.step_ms) | [.step, .loss, .grad_norm, .lr]' "$1"
}
same_losses() { # same_losses TEXT: out and first.out
    [ "$status" -eq 0 ] && [ "$(losses out)" = "$(losses first.out)" ]
    ok $? "$1"
}

cat >one.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano", "set": "layers=2,hidden=48,heads=4,seq=16",
 "batch": 8, "micro_batch": 4, "stages": [{}]}
END
jq '.stages[0] += {mesh: "dp:2", layout: {dp: "batch"}}' one.json >two.json

# ---- metrics -------------------------------------------------------------------------------
run 2 -n 6 --valid-every 3 --save ck two.json
is $status 0 'two ranks train'
cp out first.out
holds 'map(select(.step_ms)) | length == 6 and all(
    keys == ["bytes", "elapsed_s", "epoch", "grad_norm", "loss", "lr", "step", "step_ms", "targets", "tokens_per_s"] and
    all(.[]; type == "number") and .step_ms > 0 and .tokens_per_s > 0 and .bytes > 0)' \
    'a JSON object per step, with all keys'
holds 'map(select(.step_ms).step) == [1, 2, 3, 4, 5, 6]' 'steps in order'
holds 'map(select(.valid_loss)) | map(.step) == [3, 6] and all(.valid_loss > 0)' \
    'and the validation loss'
bytes=$("$tool" --explain two.json | sed -n '1s/^.* \([0-9]*\) bytes$/\1/p')
holds "map(select(.step_ms).bytes) | all(. == $bytes)" "bytes are those of the program: $bytes"
timeout 120 mpirun -n 2 "$tool" -q --threads 1 -n 6 - <two.json >out 2>err
status=$?
same_losses 'the plan from standard input, as -'
# shellcheck disable=SC2002 # a pipe is what is tried
cat two.json | timeout 120 mpirun -n 2 "$tool" -q --threads 1 -n 6 >out 2>err
status=$?
same_losses 'and from a pipe, unnamed'
run 1 -n 3 --lr 1e30 one.json
holds 'length == 3 and (last | .loss == null and .grad_norm == null)' \
    'a loss that is not finite is null'
run 1 --dry-run two.json
is "$status $(head -n 1 out)" '0 two.json: 2 ranks, 1 stage, 0 transfers: no fault found' '--dry-run needs no ranks'
"$tool" --dry-run <one.json >out
is "$(head -n 1 out)" 'standard input: 1 rank, 1 stage, 0 transfers: no fault found' 'nor a file'

# ---- resuming: only what is one's own ----------------------------------------------------------
run 2 -n 8 --resume ck --save ck two.json
is "$status $(jq -s 'map(.step)' -c out)" '0 [7,8]' '--resume goes on behind the last step'
run 1 -n 9 --resume ck one.json
is "$status $(jq -s 'map(.step)' -c out)" '0 [9]' 'and under another number of ranks'
jq '.set = "layers=2,hidden=48,heads=4,seq=8"' one.json >other.json
refuses 1 3 'ck/step-00000008: .*another model gpt: the size of seq is 8, and 16 ' 'a plan for another model' -- --resume ck other.json
echo '{"format":"weft-plan/1","model":"mlp:mnist","set":"hidden=16","batch":4,"stages":[{}]}' >mlp.json
refuses 2 3 'the plan is for 1 rank,' 'more ranks than devices' -- mlp.json
refuses 1 3 'ck/step-00000008: .*model gpt, expected mlp' 'or for another family' -- --resume ck mlp.json
refuses 1 2 'seed 5: the checkpoint' 'another seed' -- --resume ck --seed 5 one.json
cp -r ck torn
truncate -s -1 torn/step-00000008/rank-0000.safetensors
refuses 1 3 'torn/step-00000008/rank-0000.safetensors: ' 'a torn checkpoint' -- --resume torn one.json
cp -r ck rotten
printf X | dd of=rotten/step-00000008/rank-0000.safetensors bs=1 seek=100000 conv=notrunc 2>err
refuses 2 3 'rotten/step-00000008/rank-0000.safetensors: .*checksum' 'a flipped byte' -- --resume rotten two.json

# ---- images of rows and columns ---------------------------------------------------------------------
jq -n --arg m "$WEFT_ROOT/tests/models/patches.json" \
    '{format: "weft-plan/1", model: $m, batch: 4, stages: [{}]}' >patches.json
run 1 -n 2 patches.json
is "$status $(jq -s 'map(.loss != null)' -c out)" '0 [true,true]' 'a sample is all of its pixels'

# ---- experts: metrics beside the loss ---------------------------------------------------------------
jq -n --arg m "$WEFT_ROOT/tests/models/switch.json" \
    '{format: "weft-plan/1", model: $m, batch: 4, stages: [{}]}' >switch.json
run 1 -n 2 switch.json
holds 'length == 2 and all(.balance >= 0.9 and .dropped >= 0 and .dropped < 1) and
    all(has("router_z") | not)' 'losses of routers and what they drop, where the model has them'

# ---- wrong plans -----------------------------------------------------------------------------
refuses 2 3 'nowhere.json: No such file' 'a missing plan' -- nowhere.json
head -c 100 two.json >cut.json
refuses 2 3 'cut.json:[0-9]*:[0-9]*: ' 'a truncated plan' -- cut.json
refuses 1 3 'standard input: expected JSON, got nothing' 'an empty standard input' --
echo '{"format": "weft-plan/1", "batch": 1, "batch": 2}' >bad.json
refuses 1 3 'bad.json:1:[0-9]*: duplicate' 'a key given twice' -- bad.json
refuses 3 3 '2 ranks.*3' 'too many ranks' -- two.json
grep -q '^hint: mpirun -n 2$' err
ok $? 'and how many are right'
refuses 1 3 '2 ranks.*1' 'too few' -- two.json
jq '.stages[0].mesh = "dp:3"' two.json >bad.json
refuses 3 3 'bad.json: stages\[0\].*axis dp (3).*divide batch (4)' \
    'a layout that does not divide' -- bad.json
wrong '.stages[0] += {mesh: "tp:5", layout: {tp: "heads"}}' 'stages\[0\].*tp (5) .* heads (4)' \
    'nor heads'
wrong '.batch = 4.5' 'batch: expected a whole number, got 4.5$' 'half a sample'
wrong '.format = "weft-plan/2"' 'format: ' 'another format'
wrong '.colour = 1' 'colour: unknown key' 'an unknown key'
wrong '.stages[0].colour = 1' 'stages\[0\].colour: unknown key' 'an unknown key of a stage'
wrong '.stages[0].except = [{ops: "wte", layout: {}, x: 1}]' 'stages\[0\].except\[0\].x: unknown key' \
    'or of an exception'
wrong '.model = "gtp"' 'model: .*"gtp"' 'an unknown model'
wrong '.model = "gpt:huge"' 'model: .*"huge"' 'an unknown preset'
wrong 'del(.model)' 'model: missing' 'no model'
wrong '.stages = []' 'stages: ' 'no stages'
wrong '.stages[0].ops = ["wte", "none"]' 'stages\[0\].ops\[1\]: "none" covers no op of the model' 'a pattern that covers nothing'
wrong '.stages[0].ops = ["wte"]' 'stages: no stage holds the op' 'ops left over'
wrong '.stages = [{ops: "layer"}, {}]' 'stages\[.\].ops: .*later' 'a pipeline that goes back'
wrong '.stages[0].layout = {tp: "ffn"}' 'stages\[0\].layout: .*"tp"' 'an unknown axis'
wrong '.stages[0] += {mesh: "tp:2", layout: {tp: "fnn"}}' 'stages\[0\].*"fnn"' 'an unknown dim'
wrong '.schedule = "2f2b"' 'schedule: ' 'an unknown schedule'
for v in 0 -8 4.5 '"8"' 1e30 null '[]'; do
    wrong ".batch = $v" 'batch: ' "batch $v"
done
for v in 0 -4 3 16; do
    wrong ".micro_batch = $v" 'micro_batch: ' "micro_batch $v"
done
wrong '.batch = 1099511627776 | .set = "seq=1000000"' 'batch: .*2^54' 'a batch that overflows'
for v in dp:0 dp:-2 dp:99999999999999 dp 'dp:2 dp:2' ':2' 'a:1024 b:1024 c:1024'; do
    wrong ".stages[0].mesh = \"$v\"" 'stages\[0\].mesh: ' "mesh $v"
done
for v in hidden=0 hidden=-48 hidden=99999999999999 hidden=99999999999999999999 heads=5 \
    hidden=1e3 layers=9999999 layers=-1 'hidden=4*hidden' colour=1 hidden hidden= dropout=1 dropout=-1; do
    wrong ".set = \"$v\"" 'model: .*[a-z]*: ' "set $v"
done
printf '%s' '{"format":"weft-plan/1","model":"gpt:nano","batch":1,"stages":[{"mesh":"a\nb"}]}' >bad.json
refuses 1 3 'stages\[0\].mesh: "a?b"' 'a line break in a name stays out of the message' -- bad.json
jq '.set = "hidden=1000000,layers=1,heads=4"' one.json >bad.json
refuses 1 4 'stages\[0\]: one rank needs .* GB' 'a plan larger than the memory' -- bad.json
# An arena 20 MiB smaller than the memory: it fits, but not with the 28 MiB of one thread's workspace.
has=$(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE)))
jq -n --argjson pixels $(((has - (20 << 20)) / (12 << 10))) '{format: "weft-plan/1", batch: 1,
    optimizer: "sgd", stages: [{}], model: {format: "weft-model/1", name: "wide",
    sizes: {pixels: $pixels, classes: 1024}, inputs: {
        image: {dims: ["batch", "pixels"], source: "image"}, label: {dims: ["batch"], source: "label"}},
    ops: [{name: "fc", kind: "einsum", in: ["image"], out: "z", dims: ["batch", "classes"],
           weight: {dims: ["pixels", "classes"]}},
          {name: "loss", kind: "cross-entropy", in: ["z", "label"], out: "loss", dims: []}]}}' >bad.json
run 0 --explain bad.json
arena=$(sed -n '1s/.* \([0-9]*\) bytes$/\1/p' out)
[ $((has - arena)) -gt 0 ] && [ $((has - arena)) -lt $((28 << 20)) ]
ok $? "an arena of $arena bytes on a machine that has $has"
(
    ulimit -v $((has / 2048)) # were it tried, it should fail
    run 1 bad.json
    exit $status
)
[ $? -eq 4 ] && grep -q 'stages\[0\]: one rank needs .* GB' err
ok $? "workspace counts: $(grep -m1 '^weft-run' err)"

# ---- wrong data --------------------------------------------------------------------------------
printf 'too short' >short.txt
refuses 2 3 'short.txt: 9 tokens.*sequence.*16.*17' 'a file shorter than a sequence' -- \
    --data short.txt two.json
printf '%4000s\1\1tail' x >beyond.bin # token 8224 = two blanks
refuses 2 3 'beyond.bin:.*0:.*8224.*below.*vocabulary.*256' \
    'a token beyond the vocabulary' -- --data beyond.bin two.json
printf abc >odd.bin
refuses 1 3 'odd.bin: 3 bytes' 'half a token' -- --data odd.bin one.json
: >empty.txt
refuses 1 3 'empty.txt: is empty' 'an empty file' -- --data empty.txt one.json
refuses 1 3 'nofile: No such file' 'no file' -- --data nofile one.json
refuses 1 3 'is a directory' 'a directory' -- --data . one.json
jq '.set += ",vocab=100"' one.json >small.json
seq 9999 >text
refuses 1 3 'text: .*vocabulary of 256' 'text for a model with fewer tokens' -- --data text small.json
refuses 1 3 'text: ' 'text for a model of images' -- --data text mlp.json

# ---- wrong usage -------------------------------------------------------------------------------
refuses 2 2 'unknown option --frobnicate' 'an unknown option' -- --frobnicate two.json
refuses 1 2 'expected one plan, got 2' 'two plans' -- one.json two.json
refuses 1 2 '--threads:.*[0-9]*.*4096' \
    'more threads than cores' -- --threads 4096 one.json
refuses 1 2 '--steps: expected at most 9223372036854775807, got "9223372036854775808"' \
    'a number beyond 64 bits' -- --steps 9223372036854775808 one.json
refuses 1 2 '--auto-resume: expected --save' '--auto-resume without --save' -- --auto-resume one.json
for v in --steps=0 --steps=-1 --steps=1e30 --steps= --steps=many --lr=-1 --lr=nan --beta1=1 --momentum=-1 \
    --clip=-1 --lr=0x1p-4 --steps=0x10 --seed=0x1 --seed=18446744073709551616 --non-finite=hope --threads=1G --valid-batches=0 --validation=1 --save-every=-1 --keep=1.5; do
    refuses 1 2 "${v%%=*}: " "$v" -- "$v" one.json
done

# ---- outputs that cannot be written: found out before the first step -----------------------------
refuses 2 4 'one.json/ck:' '--save below a file' -- --save one.json/ck two.json
refuses 1 4 '/proc/none: cannot make the directory' '--save where nothing can be made' -- \
    --save /proc/none one.json
refuses 2 4 'one.json/t: cannot write' '--trace below a file' -- --trace one.json/t two.json
refuses 1 4 'none/t: cannot write' '--trace into a missing folder' -- --trace none/t one.json
if [ -e /dev/full ]; then
    "$tool" -q --threads 1 -n 3 --save full one.json >/dev/full 2>err
    is $? 4 'metrics to a full disk'
    [ -d full/step-00000001 ] && grep -q 'standard output: No space' err
    ok $? 'and the step that was done is saved'
fi

for v in --explain --dry-run --help --version; do
    [ -e /dev/full ] || break
    "$tool" $v one.json >/dev/full 2>err
    full=$?
    "$tool" $v one.json >&- 2>err2
    is "$full $?" '4 4' "$v to a full disk, to a closed output"
    grep -q '^weft-run: error:.*output: No' err && [ "$(wc -l <err2)" -eq 1 ] &&
        grep -q '^weft-run: error: standard output: ' err2
    ok $? "and says so: $(cat err2)"
done

# ---- numbers of 64 bits ----------------------------------------------------------------------------
seed_loss() { # seed_loss SEED: the first loss
    run 1 -n 1 --seed "$1" one.json
    jq .loss out
}
[ "$(seed_loss 9007199254740992)" != "$(seed_loss 9007199254740993)" ]
ok $? 'the seeds 2^53 and 2^53+1 are two'
[ "$(seed_loss 9223372036854775807)" != "$(seed_loss 18446744073709551615)" ]
ok $? 'so are 2^63-1 and 2^64-1'

# ---- validation: whole batches, each once -----------------------------------------------------------
seq 1000 >text # 3893 bytes; the last tenth has 24 sequences of 16
run 1 -n 1 --data text --valid-every 1 --valid-batches 3 one.json
cp out three
timeout 120 "$tool" --threads 1 -n 1 --data text --valid-every 1 --valid-batches 100 one.json >out 2>err
[ "$(jq -s '.[1].valid_loss' out)" = "$(jq -s '.[1].valid_loss' three)" ] &&
    grep -q '^weft-run:.*3 batches: --valid-batches' err
ok $? "--valid-batches beyond the data: $(grep -m1 batches err)"
refuses 1 3 '--valid-every:.*0 samples.*batch.*8' \
    'validation of nothing' -- --data text --validation 0 --valid-every 1 one.json
refuses 2 3 'has 2 samples, fewer' 'or of less than a batch' -- \
    --data text --validation 0.01 --valid-every 1 two.json

# ---- data that changes under a training ----------------------------------------------------------------
begun() { # begun FILE: waits until it holds a line
    for _ in $(seq 600); do
        [ -s "$1" ] && return
        sleep 0.1
    done
}
under() { # under COMMAND...: done after the first step of a training on the file data.bin
    head -c 400000 /dev/zero >data.bin
    rm -f out
    "$tool" -q --threads 1 -n 10000000 --data data.bin one.json >out 2>err &
    local pid=$!
    begun out
    "$@"
    wait $pid
    status=$?
}

# ---- signals and closed pipes --------------------------------------------------------------------
"$tool" -q --threads 1 -n 1000000 --save pipe one.json 2>err | head -n 1 >out
is "${PIPESTATUS[0]}" 4 'a reader that closes the pipe ends the training'
[ "$(wc -l <out)" -eq 1 ] && grep -q 'standard output: Broken pipe' err && ls pipe/step-* >out
ok $? "with a checkpoint: $(cat out)"

stops() { # stops SIGNAL WANT ARGS... : a training gets the signal after its first step
    local signal=$1 want=$2
    shift 2
    rm -rf stop out
    "$@" "$tool" --threads 1 -n 10000000 --save stop plan.json >out 2>err &
    local pid=$!
    begun out
    kill "-$signal" $pid
    wait $pid
    status=$?
    [ $status -eq "$want" ] && [ -n "$(ls stop 2>/dev/null)" ] &&
        [ "$(find stop -maxdepth 1 -name '.*-step-*' | wc -l)" -eq 0 ]
    ok $? "$signal to ${1:-one rank}: saved $(ls stop 2>/dev/null), status $status"
}
cp one.json plan.json
stops INT 0
stops TERM 0
stops HUP 0
stops USR1 0
# While it reads its plan, and more than once: launchers and schedulers may all send it.
rm -rf out stop
mkfifo slow.json
"$tool" --threads 1 -n 10000000 --save stop slow.json >out 2>err &
pid=$!
exec 5>slow.json # returns when the plan is being read
kill -USR1 $pid
sleep 0.2
kill -USR1 $pid
cat one.json >&5
exec 5>&-
wait $pid
is "$? $(ls stop) $(wc -l <out)" '0 step-00000001 1' 'SIGUSR1 twice before the first step: that is done and saved'
rm -rf out stop
(trap '' HUP && exec "$tool" --threads 1 -n 10000000 --save stop plan.json) >out 2>err &
pid=$!
begun out
kill -HUP $pid
sleep 0.5
kill -TERM $pid
is $? 0 'as under nohup: it outlives HUP'
wait $pid
is "$? $(find stop -name 'step-*' | wc -l)" '0 1' 'and then ends by TERM'
cp two.json plan.json
stops USR1 0 mpirun -n 2
# mpirun kills its ranks that much later, and always ends with 1
stops INT 1 mpirun --mca odls_base_sigkill_timeout 3 -n 2
run 2 -n $(($(basename stop/step-* | sed 's/step-0*//') + 1)) --resume stop two.json
is "$status$(wc -l <out)" 01 'what was saved can be resumed'

# A validation that takes many times as long as a signal may.
jq '.set = "layers=4,hidden=512,heads=8,seq=128"' one.json >large.json
rm -f out
"$tool" -q --threads 1 -n 9 --save valid --valid-every 1 --valid-batches 100 large.json >out 2>err &
pid=$!
begun out
kill -TERM $pid
SECONDS=0
wait $pid
is "$?$(jq -c 'keys | index("valid_loss")' out)$(ls valid)" 0nullstep-00000001 \
    'TERM in the midst of a validation'
[ $SECONDS -lt 10 ]
ok $? "it ends in $SECONDS s"

# ---- memory: the executor allocates nothing after its first step ------------------------------------
cat >count.c <<'END'
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static atomic_long count;
void *malloc(size_t n) { count++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { count++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { count++; return __libc_realloc(p, n); }
__attribute__((destructor)) static void say(void) {
    long n = count;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    FILE *f = rank && *rank == '1' ? fopen("count", "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", n);
        fclose(f);
    }
}
END
allocations() { # allocations STEPS PLAN: of rank 1, which prints nothing
    # shellcheck disable=SC2154 # dir is set by tap.bash
    run_counted=$(timeout 120 mpirun -n 2 env LD_PRELOAD="$dir/count.so" "$tool" -q --threads 1 \
        -n "$1" "$2" 2>err | wc -l)
    [ "$run_counted" -eq "$1" ] && cat count
}
jq '.stages[0] = {mesh: "tp:2", layout: {tp: ["heads", "ffn", "vocab"]}}' one.json >tp.json
jq '.stages = [{ops: ["wte", "wpe", "layer.0"]}, {}]' one.json >pp.json
# The sanitizers have their own malloc.
if case "${WEFT_BUILD:-}" in *address*) false ;; esac &&
    "${CC:-cc}" -shared -fPIC -o count.so count.c 2>err; then
    for plan in two tp pp; do
        few=$(allocations 10 $plan.json)
        many=$(allocations 310 $plan.json)
        [ -n "$few" ] && [ -n "$many" ] && [ $((many - few)) -lt 150 ]
        ok $? "$plan.json: 300 steps more, $((many - few)) allocations more of $few"
    done
fi

echo "1..$n"
[ "$failed" -eq 0 ]
