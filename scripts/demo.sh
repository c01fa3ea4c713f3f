#!/bin/sh
# The whole toolchain on this machine, in two or three minutes: measure, search, predict, train.
#   scripts/demo.sh BIN_DIR
# Everything it makes stays in the folder demo beside BIN_DIR, to be looked at afterwards.
set -eu
bin=$(cd "${1:?usage: scripts/demo.sh BIN_DIR}" && pwd)
PATH=$bin:$PATH
dir=$bin/../demo
rm -rf "$dir"
mkdir -p "$dir"
cd "$dir"
dir=$(pwd)

# Two ranks share the cores; what a rank gets makes the kind of device.
cores=$(getconf _NPROCESSORS_ONLN)
threads=$((cores / 2))
over=1
if [ "$threads" -lt 1 ]; then
    threads=1
    over=2
fi
mpirun="mpirun --oversubscribe -n 2"
[ "$(id -u)" = 0 ] && mpirun="$mpirun --allow-run-as-root"

bold='' plain=''
if [ -t 1 ]; then
    bold=$(printf '\033[1m')
    plain=$(printf '\033[0m')
fi
say() {
    printf '\n%s%s%s\n' "$bold" "$*" "$plain"
}
run() { # shows a command, then runs it
    printf '%s\n' "$ $*"
    eval "$*"
}

size="layers=4,hidden=128,heads=4,seq=128"
say "1. Text to learn: the licences and copyright notices of this system"
for f in /usr/share/common-licenses/* /usr/share/doc/*/copyright; do
    [ -f "$f" ] && cat "$f"
done | head -c 8000000 >text.txt
[ "$(wc -c <text.txt)" -gt 200000 ] || for f in /usr/share/man/man*/*; do zcat -f "$f"; done | head -c 8000000 >text.txt
ls -l text.txt

say "2. Measure what a small GPT can need here, on one device and two (about half a minute)"
run "weft-profile-op -m gpt:nano --set $size -p profile.db --max-devices 2 \\
    --micro-batch 4,8 --threads $threads --over $over --time 50ms"
run "$mpirun weft-profile-comm -p profile.db --threads $threads --max-bytes 4M --time 50ms"
run "sqlite3 profile.db \"SELECT (SELECT count(*) FROM op) || ' instructions, '
    || (SELECT count(*) FROM comm) || ' collectives and messages'\""

say "3. Search the best plan for two devices"
run "weft-search -m gpt:nano --set $size -p profile.db --devices 2 \\
    --global-batch 16 --micro-batch 4,8 --top 1 -o plan.json"
run "jq '{micro_batch, schedule, stages}' plan.json"

say "4. Predict what it takes: time, and memory to the byte"
run "weft-predict -p profile.db --text plan.json"

say "5. Train under it"
steps=200
run "$mpirun weft-run --data text.txt --steps $steps --lr 3e-3 --threads $threads \\
    --valid-every $steps --save checkpoint plan.json >metrics.jsonl"
printf '\nstep    loss   (in nats per byte; %s before it has learned anything)\n' 5.55
jq -r 'select(.loss and (.step == 1 or .step % 20 == 0)) | [.step, .loss] | @tsv' metrics.jsonl |
    awk '{ bar = ""; for (i = 0; i < $2 * 10; i++) bar = bar "#"; printf "%4d  %6.3f  %s\n", $1, $2, bar }'
jq -r 'select(.valid_loss) | "on text that it has not seen: \(.valid_loss * 1000 | round / 1000)"' \
    metrics.jsonl

say "6. The prediction beside the measurement, for this plan and two others"
write() { # write FILE REST: a plan for the same model and batch
    printf '{"format": "weft-plan/1", "model": "gpt:nano", "set": "%s",\n "batch": 16, %s}\n' \
        "$size" "$2" >"$1"
}
write tensor.json '"micro_batch": 8, "stages": [{"mesh": "tp:2", "layout": {"tp": ["heads", "ffn", "vocab"]}}]'
write pipeline.json '"micro_batch": 4, "stages": [{"ops": ["wte", "wpe", "layer.0-1"]}, {}]'
printf '%-14s %14s %14s %18s %18s\n' plan 'predicted ms' 'measured ms' 'predicted bytes' 'measured bytes'
for p in plan tensor pipeline; do
    weft-predict -q -p profile.db $p.json >$p.predicted
    $mpirun weft-run -q --data text.txt --steps 15 --threads $threads $p.json >$p.metrics
    # The median, without the first steps.
    jq -rn --slurpfile p $p.predicted --slurpfile m $p.metrics \
        '[$p[0].time * 1000, ([$m[3:][].step_ms] | sort | .[length / 2 | floor]),
          $p[0].memory, $m[0].bytes] | @tsv' |
        awk -v p=$p '{ printf "%-14s %14.1f %14.1f %18d %18d\n", p, $1, $2, $3, $4 }'
done
echo "(the times agree as far as the machine is as quiet now as it was in step 2)"

say "7. Go on from the checkpoint, on one device"
run "jq '.stages = [{}]' plan.json >one.json"
run "weft-run -q --data text.txt --steps $((steps + 3)) --lr 3e-3 --resume checkpoint one.json | jq -c '[.step, .loss]'"

say "8. Another family: T5 fills in what is left out of the same text, under a plan made of words"
run "weft-plan -m t5:nano --set layers=2,hidden=64,seq=128,target_seq=32,vocab=384 --dp 2 \\
    -b 32 --micro-batch 16 -o t5.json"
run "weft-plan --show t5.json"
run "$mpirun weft-run -q --data text.txt --steps 60 --lr 3e-3 --threads $threads t5.json |
    jq -c 'select(.step % 20 == 0 or .step == 1) | [.step, .loss]'"

say "All of it is in $dir"
echo "More: man -l man/weft.7, weft-run --explain plan.json, weft-search --top 5 --text ..."
