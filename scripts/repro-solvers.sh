#!/bin/sh
# Runs the published instances of the four solver problems and prints, per instance, the
# value, the reference, the bound, the gap, wall time and peak memory.
#   scripts/repro-solvers.sh DATA_DIR BIN_DIR [SECONDS]
# DATA_DIR has the folders iopddl, alpa, partition and piper (as published by google/iopddl,
# alpa-projects/alpa, msr-fiddle/dnn-partitioning and msr-fiddle/piper, with reference
# values beside them); one that is absent is skipped, with a line that says so. SECONDS (60)
# is the time budget of each of the contest's large layout problems and of the partition problems.
# The mark before the reference: "=" equal to 1e-6, "<" better, ">" worse. Exit 1 when a
# solver failed, or was worse on a problem where the reference is a proven optimum.
set -u
LC_ALL=C
export LC_ALL
data=${1:?DATA_DIR} bin=${2:?BIN_DIR} budget=${3:-60}
solve=$bin/weft-solve
dir=$(mktemp -d) || exit 4
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
command -v jq >/dev/null || { echo "repro-solvers: jq is needed" >&2; exit 4; }
: >"$dir/bad"

title() {
    printf '\n%s\n' "$1"
    printf '%-44s %17s   %-17s %17s %8s %9s %8s\n' instance value reference bound gap \
        time peak
}
present() { # present FOLDER: or a line that it is skipped
    [ -d "$data/$1" ] && return 0
    printf '\n%s: not in %s, skipped\n' "$1" "$data"
    return 1
}
# row NAME REFERENCE STRICT PROBLEM FILE [OPTIONS...]: FILE "-" reads standard input. The
# reference may be "no" (infeasible) or "-" (unknown).
row() {
    name=$1 ref=$2 strict=$3 problem=$4 file=$5
    shift 5
    "$solve" "$problem" -q "$@" "$file" >"$dir/out" 2>"$dir/err"
    status=$?
    if [ $status -ne 0 ]; then
        mark='!'
        [ $status -eq 1 ] && [ "$ref" = no ] && mark='='
        [ "$mark" = '=' ] || echo "$name" >>"$dir/bad"
        printf '%-44s %17s %s %-17s %s\n' "$name" "exit $status" "$mark" "$ref" \
            "$(sed -n '1s/^weft-solve: error: [^:]*: //p' "$dir/err" | cut -c 1-80)"
        return
    fi
    jq -r '[.value, .bound, .gap, .time_s, .peak_bytes] | map(tostring) | join(" ")' \
        "$dir/out" >"$dir/numbers"
    awk -v name="$name" -v ref="$ref" -v strict="$strict" -v bad="$dir/bad" '{
        mark = " "
        if (ref == "no") mark = "!"
        else if (ref != "-" && ref != "") {
            tol = 1e-6 * (ref < 0 ? -ref : ref)
            mark = $1 < ref - tol ? "<" : $1 > ref + tol ? ">" : "="
        }
        if (mark == "!" || (strict && mark != "=" && mark != "<")) print name >> bad
        time = $4 < 0.1 ? sprintf("%.2f ms", $4 * 1e3) : sprintf("%.2f s", $4)
        printf "%-44s %17.12g %s %-17s %17.12g %7.3f%% %9s %5.0f MB\n", name, $1, mark, ref,
            $2, 100 * $3, time, $5 / 1e6
    }' "$dir/numbers"
}

stages_rows() {
    title "stages: Alpa's stage construction (exact float64 optimum)"
    for f in "$data"/alpa/interop/*.json; do
        row "$(basename "$f" .json)" "$(jq -r .exact_total_cost_float64 "$f")" 1 stages "$f"
    done
}
# chain LAYERS DEVICES BATCHES CAPACITY: a synthetic chain. Times and states are uniform in
# 0.5..1.5, activations a tenth of that; submeshes of 1, 2, 4, 8, 16, 24, ... devices divide
# time by size^0.95 and memory by size; each comes with and without recomputation (time
# times 1.33, activations times 0.1). CAPACITY is the memory of a device.
chain() {
    awk -v L="$1" -v D="$2" -v B="$3" -v M="$4" 'BEGIN {
        srand(7)
        printf "{\"format\":\"weft-problem/1\",\"problem\":\"stages\",\"num_layers\":%d,", L
        printf "\"num_devices\":%d,\"num_micro_batches\":%d,\"layers\":{", D, B
        split("time state activation", key)
        for (k = 1; k <= 3; k++) {
            printf "%s\"%s\":[", (k == 1 ? "" : ","), key[k]
            for (l = 0; l < L; l++)
                printf "%s%.4f", (l ? "," : ""), (k == 3 ? 0.1 : 1) * (0.5 + rand())
            printf "]"
        }
        for (z = 1; z <= D; z = z < 8 ? 2 * z : z + 8) s[n++] = z
        printf "},\"submeshes\":["
        for (i = 0; i < n; i++) printf "%s{\"size\":%d}", (i ? "," : ""), s[i]
        printf "],\"configs\":["
        for (i = 0; i < 2 * n; i++) {
            z = s[int(i / 2)]; r = i % 2
            printf "%s{\"submesh\":%d,\"time_scale\":%.6f,\"state_scale\":%.6f,",
                (i ? "," : ""), int(i / 2), (r ? 1.33 : 1) / z ^ 0.95, 1 / z
            printf "\"activation_scale\":%.6f,\"fixed_time\":0.01,\"capacity\":%g}",
                (r ? 0.1 : 1) / z, M
        }
        print "]}"
    }' </dev/null
}
chain_rows() {
    title "stages: synthetic chains (layers x devices, 128 micro-batches, device memory)"
    for c in "128 32 1000" "1000 64 1000" "1000 64 60" "1000 64 30" "1000 64 22"; do
        set -- $c
        chain "$1" "$2" 128 "$3" >"$dir/chain.json"
        row "$1 x $2, memory $3" - 0 stages "$dir/chain.json"
    done
}

joint_rows() {
    title "joint: Piper's BERT-32 table (seconds per sample; its published dynamic program)"
    tail -n +2 "$data/piper/expected_tps.csv" | cut -d, -f2-6 >"$dir/cells"
    while IFS=, read -r k gb n ablation ref; do
        [ "$ref" = OOM ] && ref=no
        jq -c --argjson k "$k" --argjson gb "$gb" --argjson n "$n" --arg a "$ablation" '
            {format: "weft-problem/1", problem: "joint", instance: ., max_devices: $k,
             max_memory_per_device: ($gb * 1073741824), bandwidth: (25 * 1073741824),
             samples_in_batch: $n}
            + if $a == "nodp" then {max_data_degree: 1} else {} end
            + if $a == "notp" then {max_tensor_degree: 1} else {} end
            + if $a == "noar" then {exclude: ["activation recomp"]} else {} end' \
            "$data/piper/bert32a100.json" >"$dir/joint.json"
        row "$k devices, $gb GB${ablation:+, $ablation}" "$ref" 1 joint "$dir/joint.json"
    done <"$dir/cells"
}

partition_rows() {
    title "partition: pipelines of msr-fiddle/dnn-partitioning (proven optimum)"
    for f in "$data"/partition/*Graphs/*.json; do
        name=$(basename "$(dirname "$f")")/$(basename "$f" .json)
        ref=$(tr -d '\r' <"$data/partition/expected_maxload.csv" |
            awk -F, -v n="$name" '$1 == n {print $NF != "" ? $NF : "<" $9}')
        case $ref in # unknown optimum: the linearized program gives an upper bound
        "<"*) row "$name (linearized: ${ref#<})" "${ref#<}" 0 partition "$f" \
            --time-budget "${budget}s" ;;
        *) row "$name" "${ref:--}" 1 partition "$f" --time-budget "${budget}s" ;;
        esac
    done
}

intraop_rows() {
    title "layout: Alpa's integer programs (optimum)"
    for f in "$data"/alpa/intraop/*.json; do
        row "$(basename "$f" .json)" "$(jq -r .solver_objective "$f")" 1 layout "$f"
    done
    title "layout: the same with memory that binds (optimum)"
    tail -n +2 "$data/alpa/intraop/tight_memory_expected.csv" |
        cut -d, -f1,2,3,6,7 >"$dir/cells"
    while IFS=, read -r name bytes fraction ref status; do
        [ "$status" = opt ] || ref=no
        jq -c --argjson b "$bytes" '.memory_budget = $b' "$data/alpa/intraop/$name.json" \
            >"$dir/layout.json"
        row "$name, budget $fraction" "$ref" 1 layout "$dir/layout.json"
    done <"$dir/cells"
}

contest_rows() {
    title "layout: ASPLOS 2025 contest, ${budget} s each (best known value)"
    for f in "$data"/iopddl/asplos-2025-iopddl-*.json.gz; do
        name=$(basename "$f" .json.gz)
        ref=$(awk -F, -v n="${name##*-}" '$1 == n {print $6}' "$data/iopddl/best_known.csv")
        gzip -dc "$f" >"$dir/contest.json"
        row "${name##*-}" "${ref:--}" 0 layout "$dir/contest.json" \
            --time-budget "${budget}s"
    done
}

present alpa/interop && stages_rows
chain_rows
present piper && joint_rows
present partition && partition_rows
present alpa/intraop && intraop_rows
present iopddl && contest_rows

echo
if [ -s "$dir/bad" ]; then
    echo "$(wc -l <"$dir/bad") failed or worse than a proven optimum:"
    cat "$dir/bad"
    exit 1
fi
echo "none failed, none worse than a proven optimum"
