#!/usr/bin/env bash
# trace-both.sh MEASURED PREDICTED - one timeline of two, for Perfetto (ui.perfetto.dev): what weft-run --trace has
# measured, above what weft-predict --trace says of the same plan. Of a measured file that says which steps
# its events are of, as those of GPUs do, the last of these is taken; both begin at 0. On standard output.
set -eu
[ $# -eq 2 ] || {
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
}
# Ranks keep their numbers above; below they are so many on that none is taken twice.
jq -n --slurpfile a "$1" --slurpfile b "$2" '
    ([$a[0].traceEvents[].args.step // empty] | max) as $last |
    ($a[0].traceEvents | map(select(.ph == "M" or $last == null or .args.step == $last))) as $m |
    ([$m[] | select(.ph == "X") | .ts] | min // 0) as $from |
    (([$a[0].traceEvents[], $b[0].traceEvents[] | .pid] | max) + 1) as $n |
    {displayTimeUnit: "ms", traceEvents: (
        [$m[] | if .ph == "X" then .ts -= $from else .args.name += ", measured" end] +
        [$b[0].traceEvents[] | .pid += $n | if .ph == "M" then .args.name += ", predicted" else . end] +
        [range($n * 2) | {name: "process_sort_index", ph: "M", pid: ., args: {sort_index: .}}])}'
