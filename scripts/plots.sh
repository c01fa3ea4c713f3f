#!/usr/bin/env bash
# make plots: pictures out of what the tools print, as SVG.
#   scripts/plots.sh BIN_DIR OUT_DIR [computed | doc]
# OUT_DIR gets these: with `computed` the first three, with `doc` the first four. These come out the same
# everywhere; the others are measured.
#   timeline.svg    a step of a pipeline of four devices, as weft-predict simulates it
#   memory.svg      what the devices of that pipeline hold meanwhile
#   waterfall.svg   where a step of llama:13B on 16 H100 goes, from their peak down (weft-predict --waterfall)
#   pareto.svg      how fast a GPT of 1.3 billion parameters trains on eight devices with how much memory
#   both.svg        a step on two ranks of this machine: predicted above measured
#   predicted.svg   25 plans on two ranks: predicted against measured (scripts/predict-vs-measure.py;
#                   some ten minutes; OUT_DIR/plans keeps what was measured, and is not measured again)
# and beside them the tables that were drawn.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd)
PATH=$bin:$PATH
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# What the ranks compute in the last step of a trace, one line an action, or a piece of one where it
# waits in between: rank, segment, micro-batch, start and end in ms since the step began. What ends
# the step (reduce, norm, update) is drawn as one.
last_step() { # last_step TRACE
    jq -r '[.traceEvents[] | select(.cat == "compute" or .cat == "update")] | sort_by(.pid, .ts)[] |
        [.pid, (.args.seg | if IN("R", "N") then "U" else . end), .args.mb, .ts / 1000,
         (.ts + .dur) / 1000] | @tsv' "$1" | awk '
        $1 != rank { step = 0 }
        $1 == rank && segment == "U" && $2 != "U" { step++ }
        {
            rank = $1; segment = $2
            step_of[NR] = last[rank] = step
            who[NR] = rank; what[NR] = $1 " " $2 " " $3; start[NR] = $4; end[NR] = $5
        }
        END {
            for (i = 1; i <= NR; i++)
                if (step_of[i] == last[who[i]]) {
                    if (first == "" || start[i] < first) first = start[i]
                    if (end[i] > final) final = end[i]
                    kept[++n] = i
                }
            for (k = 1; k <= n; k++) {
                i = kept[k]; next_ = kept[k + 1]
                if (from == "") from = start[i]
                # Gaps that nobody could see are not drawn.
                if (k < n && what[next_] == what[i] && start[next_] - end[i] < (final - first) / 200)
                    continue
                print what[i], from - first, end[i] - first
                from = ""
            }
        }'
}

plot_in() { # plot_in FILE HEIGHT: gnuplot of what stdin says
    {
        echo "set terminal svg size 900,$2 font 'sans-serif,13' background 'white'; set output '$1'"
        cat
    } | gnuplot
}

# One row a rank, rank 0 on top; one panel a table.
draw_timeline() { # draw_timeline FILE RANKS (TITLE TABLE)...
    local file=$1 ranks=$2 i
    local tables=()
    shift 2
    for ((i = 2; i <= $#; i += 2)); do tables+=("${!i}"); done
    {
        # Forward, backward, update.
        echo "colour(s) = s eq 'F' ? 0x4c8bc0 : s eq 'U' ? 0x6aa84f : 0xe6994c"
        echo "set multiplot layout $(($# / 2)),1; unset key; set style fill solid border rgb 'white'"
        echo "set yrange [$ranks - 0.5:-0.5]; set ytics 1 format 'rank %g' scale 0; set xlabel 'ms'"
        echo "set xrange [0:$(cat "${tables[@]}" | awk '$5 > m { m = $5 } END { print m * 1.01 }')]"
        while [ $# -gt 0 ]; do
            echo "set title '$1'"
            echo "plot '$2' using ((\$4+\$5)/2):1:4:5:(\$1-0.4):(\$1+0.4):(colour(strcol(2))) \
                with boxxyerror fillcolor rgb variable, \
                '' using ((\$4+\$5)/2):1:(strcol(2) eq 'U' ? '' : strcol(3)) with labels textcolor rgb 'white'"
            shift 2
        done
    } | plot_in "$file" $(((90 + 45 * ranks) * $# / 2))
}

# ---- a pipeline of four devices, computed --------------------------------------------------------
cat >pipeline.json <<'END'
{"format": "weft-plan/1", "model": "gpt:1.3B", "batch": 32, "micro_batch": 4, "schedule": "1f1b",
 "stages": [{"ops": ["wte", "wpe", "layer.0-5"]}, {"ops": ["layer.6-11"]}, {"ops": ["layer.12-17"]}, {}]}
END
[ -s a100.db ] || weft-profile-op -q -m gpt:1.3B -p a100.db --max-devices 4 --micro-batch 4 \
    --device a100 --roofline 312T:1.5T:5us --links 'node:200G:5us'
weft-predict -q -p a100.db --cluster 'node:1 gpu:4' --trace pipeline.trace pipeline.json >pipeline.predicted
last_step pipeline.trace >timeline.tsv
draw_timeline timeline.svg 4 'gpt:1.3B in four stages, 8 micro-batches, 1F1B (simulated)' timeline.tsv

# What a rank holds at a time: what stays, the activations of the micro-batches between their forward
# and their backward pass, and temporaries while it computes. Rank, ms, GiB.
jq -r '.stages[] | .in_flight as $n | .memory |
    [.total - .activations - .temporaries, .activations / $n, .temporaries] | @tsv' pipeline.predicted |
    awk -v gap="$(jq '.time_us / 200e3' pipeline.predicted)" '
        BEGIN { rank = -1 }
        FNR == NR { fixed[NR - 1] = $1; act[NR - 1] = $2; temp[NR - 1] = $3; next }
        function put(t, more) { print rank, t, (fixed[rank] + held * act[rank] + more) / 2 ^ 30 }
        $1 != rank { if (rank >= 0) put(end, 0); rank = $1; held = end = 0; put(0, 0) }
        {
            if ($4 > end + gap) put(end, 0) # it rests
            held += $2 == "F"
            put($4, $2 == "U" ? 0 : temp[rank])
            held -= $2 == "B"
            end = $5
        }
        END { put(end, 0) }' - timeline.tsv >memory.tsv
plot_in memory.svg 360 <<'END'
set title 'gpt:1.3B in four stages, 8 micro-batches, 1F1B: memory of each rank (simulated)'
set xlabel 'ms'; set ylabel 'GiB'; set yrange [0:*]; set key outside right; set grid ytics
plot for [r = 0:3] 'memory.tsv' using ($1 == r ? $2 : NaN):3 with steps linewidth 2 title sprintf('rank %d', r)
END

# ---- a step from the peak down, computed -----------------------------------------------------------
# Name, where its bar begins and ends, in seconds; terms that nobody could see are left out.
weft-plan -q -m llama:13B --dtype bf16 --cluster h100:2x8 --pp 2 --tp 2 --dp 4 -b 256 --micro-batch 4 \
    --recompute selective >13b.json
weft-predict -q --waterfall 13b.json >13b.predicted
jq -r '.time_us as $all | reduce .waterfall.terms[] as $t ({at: 0, rows: []};
        .rows += [[$t.term, .at / 1e6, (.at + $t.us) / 1e6, $t.us / $all]] | .at += $t.us) |
    .rows[] | select((.[3] | fabs) > 0.001) | .[:3] | @tsv' 13b.predicted >waterfall.tsv
plot_in waterfall.svg 400 <<'END'
set title 'a step of llama:13B on 16 H100, from their peak down (weft-predict --waterfall)' noenhanced
set xlabel 's'; set xrange [0:*]; set grid xtics; unset key; set style fill solid
stats 'waterfall.tsv' using 2:3 nooutput
set yrange [STATS_records - 0.4:-0.6]
plot 'waterfall.tsv' using (($2+$3)/2):0:2:3:($0-0.35):($0+0.35):ytic(1) with boxxyerror linecolor rgb '#4c8bc0'
END

[ "${3:-}" != computed ] || exit 0
echo "timeline.svg, memory.svg and waterfall.svg are drawn; now pareto.svg (half a minute)"

# ---- time against memory: half a minute ---------------------------------------------------------------
[ -s pareto.json ] || weft-search -q -m gpt:1.3B --cluster v100-4x8 --devices 8 --memory 30G -b 64 \
    --pareto -o pareto.json
jq -r '[.memory / 1073741824, .time] | @tsv' pareto.json >pareto.tsv
plot_in pareto.svg 420 <<'END'
set title 'gpt:1.3B on 8 V100, batch 64: the fastest plan within a memory (weft-search --pareto)'
set xlabel 'GiB on the fullest device'; set ylabel 'seconds a step'; set grid; unset key
set xrange [0:*]; set yrange [0:*]
plot 'pareto.tsv' with fsteps linewidth 2 linecolor rgb '#4c8bc0', \
    'pareto.tsv' with points pointtype 7 linecolor rgb '#4c8bc0'
END

[ "${3:-}" != doc ] || exit 0
echo "now this machine is measured: both.svg (a minute), predicted.svg (some ten)"

# ---- this machine --------------------------------------------------------------------------------
size=layers=4,hidden=256,heads=8,seq=256,vocab=1024
cat >two.json <<END
{"format": "weft-plan/1", "model": "gpt:nano", "set": "$size", "batch": 16, "micro_batch": 2,
 "schedule": "1f1b", "stages": [{"ops": ["wte", "wpe", "layer.0-1"]}, {}]}
END
weft-profile-op -q -m gpt:nano --set "$size" -p here.db --max-devices 2 --micro-batch 2 --threads 1
mpirun -n 2 weft-profile-comm -q -p here.db --threads 1 --max-bytes 4M
weft-predict -q -p here.db --trace predicted.trace two.json >two.predicted
mpirun -n 2 weft-run -q --threads 1 --steps 6 --trace measured.trace two.json >two.metrics
last_step predicted.trace >predicted.tsv
last_step measured.trace >measured.tsv
draw_timeline both.svg 2 'predicted' predicted.tsv 'measured' measured.tsv


[ -s plans.txt ] || {
    "$here/predict-vs-measure.py" "$bin" plans gpt >plans.part
    mv plans.part plans.txt
}
awk '$4 == "ms" { print $3, $5, $2 }' plans.txt >plans.tsv
{
    echo "set title '$(tail -1 plans.txt | sed 's/, regret.*//')'"
    cat <<'END'
set xlabel 'predicted, ms'; set ylabel 'measured, ms'; set grid; set key bottom right; set size ratio -1
stats 'plans.tsv' using 1:2 nooutput
low = 0.95 * (STATS_min_x < STATS_min_y ? STATS_min_x : STATS_min_y)
high = 1.05 * (STATS_max_x > STATS_max_y ? STATS_max_x : STATS_max_y)
set xrange [low:high]; set yrange [low:high]
plot x with lines linecolor rgb '#888888' title 'equal', 1.1 * x with lines dashtype 2 linecolor rgb '#bbbbbb' \
    title '10 % more or less', x / 1.1 with lines dashtype 2 linecolor rgb '#bbbbbb' notitle, \
    'plans.tsv' using 1:2 with points pointtype 7 linecolor rgb '#4c8bc0' title 'a plan'
END
} | plot_in predicted.svg 700
