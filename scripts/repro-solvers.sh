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

# network SHAPE DEVICES GB: one tensor degree, each node plain or recomputed (0.09 of the
# activations kept). "translator" has the shape of GNMT: an encoder and a decoder of residual
# LSTM layers, attention fed to every layer, and a handle per layer that costs nothing (78
# nodes, 17,914 down-sets). "residual" has the shape of ResNet-50: convolution, norm and
# activation in blocks of three with a way around (175 nodes, 240 down-sets).
network() {
    awk -v shape="$1" -v K="$2" -v M="$3" 'BEGIN {
        srand(7)
        n = m = 0
        if (shape == "translator") translator()
        else residual()
        write(shape == "translator" ? 256 : 1920)
    }
    function node(t, r, params, act) {
        time[n] = t; again[n] = r; weight[n] = params; keep[n] = act
        return n++
    }
    function edge(u, v, bytes) { from[m] = u; to[m] = v; cost[m++] = bytes; return v }
    function lstm(x, t) { # x feeds a dropout, an LSTM and a handle of its output
        x = edge(x, node(0.28, 0.4, 0, H), H)
        return edge(edge(x, node(t, 1.35 * t, 5e7, 1.08 * H), H), node(0, 0, 0, H), H)
    }
    function translator(i, x, y, words, begin, state, look) {
        H = 13107200
        words = node(25.7, 25.8, 1.3e8, H)
        begin = node(0, 0, 0, 0)
        x = edge(words, node(14.1, 28.3, 6.7e7, 2 * H), H)
        edge(begin, x, 0)
        x = lstm(x, 29)
        for (i = 0; i < 6; i++) {
            y = edge(lstm(x, 20.4 + i / 8), node(0, 0, 0, H), H)
            x = edge(x, y, H)
        }
        state = node(0, 0, 0, 0)
        y = edge(edge(state, node(0, 0, 0, 0), 0), node(38.3, 53.5, 4.2e7, 2 * H), 0)
        edge(node(0.6, 0.7, 1.3e8, H), y, H)
        edge(begin, edge(x, y, H), 0)
        x = edge(y, node(0, 0, 0, H), 2 * H)
        look = edge(y, node(0, 0, 0, H / 25), 2 * H)
        for (i = 0; i < 7; i++) {
            y = edge(edge(x, node(0.38, 0.5, 0, H), H), node(0, 0, 0, H), H)
            edge(look, y, H / 25)
            y = edge(y, node(i < 6 ? 29.2 + i / 8 : 76.8, i < 6 ? 40 : 87.4, 5e7, H), H)
            edge(edge(state, node(0, 0, 0, 0), 0), y, 0)
            y = edge(y, node(0, 0, 0, H), H)
            x = i ? edge(x, edge(y, node(0, 0, 0, H), H), H) : y
        }
        edge(x, node(30.2, 54.9, 1.3e8, 4.1e8), H)
    }
    function conv(x, t, params, act) { # without the activation function
        t *= 1 + 0.1 * rand()
        x = edge(x, node(t, 1.4 * t + 0.3, params, act), act)
        return edge(x, node(t / 5, t / 3, act / 1e5, act), act)
    }
    function relu(x, act) { return edge(x, node(0.6, 0.9, 0, act), act) }
    function residual(s, b, x, y, act, c) {
        x = relu(conv(node(0, 0, 0, 7.7e7), 12, 9408, 4.1e8), 4.1e8)
        x = edge(x, node(2, 3, 0, 1e8), 1e8)
        for (s = 0; s < 4; s++)
            for (b = 0; b < substr("3463", s + 1, 1); b++) {
                act = 1e8 / 2 ^ s
                c = 64 * 2 ^ s
                y = relu(conv(x, 3.5, c * c * (b ? 4 : 1), act), act)
                y = conv(relu(conv(y, 4, 9 * c * c, act), act), 4.8, 4 * c * c, 4 * act)
                if (b == 0) x = conv(x, 9, 8 * c * c, 4 * act)
                y = edge(y, node(0, 0, 0, 4 * act), 4 * act)
                x = relu(edge(x, y, 4 * act), 4 * act)
            }
        edge(edge(x, node(0.5, 0.8, 0, 1e6), act), node(0.8, 1.1, 2e6, 1e6), 1e6)
    }
    function sync(v, ends, others, i, list) {
        for (i = 0; i < m; i++)
            if (ends[i] == v) list = list (list ? "," : "") "\"" others[i] "\":0"
        return "{" list "}"
    }
    function choice(v, id, t, a, b) {
        return sprintf("{\"id\":\"%s\",\"timePerSample\":%.6g,\"parameterSize\":%.9g," \
            "\"memoryUsageA\":%.9g,\"memoryUsageB\":%.9g,\"syncTimeFw\":%s," \
            "\"syncTimeBw\":%s}", id, t, weight[v], a, b, sync(v, to, from), sync(v, from, to))
    }
    function write(N, v, i) {
        printf "{\"maxDevices\":%d,\"maxMemoryPerDevice\":%.12g,", K, M * 2 ^ 30
        printf "\"bandwidth\":%.12g,\"mbsInBatch\":%d,\"nodes\":[", 25 * 2 ^ 30, N
        for (v = 0; v < n; v++)
            printf "%s{\"id\":%d,\"TMPCs\":{\"1\":[%s,%s]}}", (v ? "," : ""), v,
                choice(v, "vanilla", time[v], keep[v], 2 * weight[v]),
                choice(v, "activation recomp", again[v], 0.09 * keep[v],
                       2 * weight[v] + 0.91 * keep[v])
        printf "],\"edges\":["
        for (i = 0; i < m; i++)
            printf "%s{\"sourceId\":%d,\"destId\":%d,\"communicationCost\":%.9g}",
                (i ? "," : ""), from[i], to[i], cost[i]
        print "]}"
    }' </dev/null
}
network_rows() {
    title "joint: the shapes of GNMT and ResNet (devices, memory)"
    for c in "translator 4 1.2" "translator 8 1.2" "translator 16 1.2" "residual 8 8" \
        "residual 64 8" "residual 64 2" "residual 1024 2"; do
        set -- $c
        network "$1" "$2" "$3" >"$dir/network.json"
        row "$1, $2 devices, $3 GB" - 0 joint "$dir/network.json" --time-budget "${budget}s"
    done
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
network_rows
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
