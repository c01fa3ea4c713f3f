#!/usr/bin/env bash
# A rank killed with SIGKILL at random moments, in the middle of steps and of checkpoints: every
# resume goes on from the last complete checkpoint, bit for bit under the same plan, to rounding
# under any other plan and number of ranks. Prints TAP; the programs are in $WEFT_BIN.
#   KILLS=N  how many (6; WEFT_LONG=1: 50)     SEED=N  of the moments and the ranks
# Needs: jq mpirun pgrep
set -u
tool=${WEFT_BIN:?}/weft-run
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
kills=${KILLS:-6}
[ -n "${WEFT_LONG:-}" ] && kills=${KILLS:-50}
seed=${SEED:-$(($(date +%s) % 32768))}
RANDOM=$seed
echo "# SEED=$seed KILLS=$kills"
n=0 failed=0
steps=60
export ASAN_OPTIONS=detect_leaks=0 # Open MPI does not free all

# ---- the plans: name, ranks, what differs from one rank ------------------------------------------
cat >base.json <<'END'
{"format": "weft-plan/1", "model": "gpt:nano",
 "set": "layers=2,hidden=96,heads=4,seq=32,dropout=0.1", "batch": 8, "micro_batch": 4,
 "stages": [{}]}
END
names=(one dp zero tp pp dp-tp pp-dp)
ranks=(1 2 2 2 2 4 4)
filters=(.
    '.stages[0] = {mesh: "dp:2", layout: {dp: "batch"}}'
    '.stages[0] = {mesh: "dp:2", layout: {dp: "batch"}, zero: 1}'
    '.stages[0] = {mesh: "tp:2", layout: {tp: ["heads", "ffn", "vocab"]}}'
    '.stages = [{ops: ["wte", "wpe", "drop", "layer.0"]}, {}]'
    '.stages[0] = {mesh: "dp:2 tp:2", layout: {dp: "batch", tp: ["heads", "ffn", "vocab"]}, zero: 3}'
    '.stages = [{ops: ["wte", "wpe", "drop", "layer.0"], mesh: "dp:2", layout: {dp: "batch"}},
                {mesh: "dp:2", layout: {dp: "batch"}, recompute: "all"}]')
for i in "${!names[@]}"; do
    jq "${filters[i]}" base.json >"${names[i]}.json"
done

training() { # training PLAN-NUMBER ARGS...: in $command
    local i=$1
    shift
    command=(mpirun -n "${ranks[i]}" "$tool" -q --threads 1 -n "$steps" "$@" "${names[i]}.json")
}
train() { # train PLAN-NUMBER ARGS...
    training "$@"
    timeout 300 "${command[@]}"
}
losses() { # losses FILE STEP: lines behind STEP, without what depends on time
    jq -c "select(.step_ms and .step > $2) | [.step, .loss, .grad_norm, .lr]" "$1"
}
sums() { # sums DIR: checksums of the data of the last checkpoint
    jq -cS '[.files[] | del(.name)]' "$1/step-$(printf %08d $steps)/index.json"
}
newest() { # newest DIR: the last complete checkpoint, as a reader finds it
    find "$1" -maxdepth 1 -name '*step-*' ! -name '.tmp*' -exec test -e '{}/index.json' ';' \
        -print 2>err | sed 's/.*step-0*//' | sort -n | tail -1
}

kill_one() { # kill_one MPIRUN-PID: a random rank of it
    local pids
    mapfile -t pids < <(pgrep -P "$1")
    [ "${#pids[@]}" -gt 0 ] && kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>err
}

# Runs a plan until a moment of it, given by its lines of metrics, and kills a rank.
run_and_kill() { # run_and_kill PLAN-NUMBER DIR LINES
    : >out
    training "$1" --save "$2" --save-every 1 --auto-resume
    "${command[@]}" >out 2>err & # mpirun itself: its children are the ranks
    local pid=$! k
    for k in $(seq 2000); do
        [ "$(wc -l <out)" -ge "$3" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    sleep "0.0$((RANDOM % 100))" # a step and a checkpoint take a few hundredths of a second
    kill_one $pid
    wait $pid
    status=$?
}

# ---- what an uninterrupted run gives ---------------------------------------------------------------
for i in "${!names[@]}"; do
    train "$i" --save "whole-${names[i]}" >"whole-${names[i]}.out" 2>err
    ok $? "${names[i]}, ${ranks[i]} ranks, uninterrupted"
done

near() { # near FILE STEP: losses behind STEP within 1e-5 of those of one rank
    jq -s --slurpfile one whole-one.out --argjson from "$2" '
        ($one | map(select(.step_ms)) | map({key: (.step | tostring), value: .loss}) |
            from_entries) as $want |
        map(select(.step_ms and .step > $from) |
            ((.loss / $want[.step | tostring]) - 1) | fabs) | max // 0' "$1"
}

# ---- kills -----------------------------------------------------------------------------------------
resumed=0 identical=0 worst=0 broken=0
for ((k = 0; k < kills; k++)); do
    i=$((k % ${#names[@]}))
    ck=killed
    rm -rf $ck
    run_and_kill $i $ck $((1 + RANDOM % (steps / 2)))
    if [ $status -eq 0 ]; then
        ok 0 "${names[i]}: ended before the kill"
        continue
    fi
    from=$(newest $ck)
    from=${from:-0}
    left=$(find $ck -maxdepth 1 -name '.*step-*' 2>/dev/null | wc -l)
    broken=$((broken + left))
    cp -r $ck other 2>/dev/null || mkdir other
    # The same plan goes on bit for bit.
    train "$i" --save $ck --auto-resume >out 2>err
    status=$?
    first=$(jq -s 'map(select(.step_ms))[0].step' out)
    [ $status -eq 0 ] && [ "$first" = $((from + 1)) ] &&
        [ "$(losses out "$from")" = "$(losses "whole-${names[i]}.out" "$from")" ] &&
        [ "$(sums $ck)" = "$(sums "whole-${names[i]}")" ] &&
        [ "$(find $ck -maxdepth 1 -name '.*step-*' | wc -l)" -eq 0 ]
    same=$?
    ok $same "${names[i]}: killed, goes on from step $from ($left unfinished left), the same bits"
    [ $same -eq 0 ] && identical=$((identical + 1))
    # Another plan and number of ranks goes on to rounding.
    j=$(((i + 1 + RANDOM % (${#names[@]} - 1)) % ${#names[@]}))
    train $j --save other --auto-resume >out 2>err
    status=$?
    first=$(jq -s 'map(select(.step_ms))[0].step' out)
    error=$(near out "$from")
    [ $status -eq 0 ] && [ "$first" = $((from + 1)) ] && jq -en "$error <= 1e-5" >/dev/null
    ok $? "${names[i]} goes on as ${names[j]}: losses within $error"
    worst=$(jq -n "[$worst, $error] | max")
    resumed=$((resumed + 1))
    rm -rf other
done
echo "# $resumed kills, $identical resumed bit for bit, $broken unfinished checkpoints left" \
    "behind by them; under other plans losses within $worst"

echo "1..$n"
[ "$failed" -eq 0 ]
