#!/usr/bin/env bash
# Tables about searches, most of which doc/figures.md has, one function for each:
#   TABLES="small gap grid scale aceso" scripts/repro-search.sh BIN_DIR
# small     random small problems: dp, ilp and auto against the list of all plans, bounds against random plans
# gap       proven gaps of the plans of ALGORITHM (auto) on CLUSTER (h100, a100, v100: all), 8 devices a node, DEVICES
#           (8 16 32 64), MODELS, and the processor time of search and bound together
# grid      what ALGORITHM (auto) finds against the best of the algorithms grid and dp-only: the
#           ratio of the predicted steps, for 216 settings. EVERY=N (12) takes every N-th of them from
#           FIRST (1) on; EVERY=1 takes all, an hour. Exit 1 where a ratio is above 1.
# scale     processor time and memory of a search (ALGORITHM) by layers, devices and models.
# aceso     searches over Aceso's published tables, WEFT_DATA/aceso/small and large, beside what Aceso found
# ablation  each algorithm alone over some 40 settings of grid (EVERY=5, FIRST): the ratio of its step to
#           the best that any of them found; by how much the best of the others was slower, where it
#           alone was best (auto apart, which asks the others); processor time. ALL=1: each search
#           on standard error.
# simple    what --slack gives: SLACK (1%) beside 0 over 100 settings (EVERY=N) on the shipped clusters:
#           the words of weft-plan --show, the loss, how many plans are of whole blocks in equal stages.
# All times of gap, grid and scale rest on datasheets: no profile and no device is needed.
# shellcheck disable=SC2317  # tables are called by their names
set -u
LC_ALL=C
export LC_ALL
bin=${1:?BIN_DIR}
search=$bin/weft-search
dir=$(mktemp -d) || exit 4
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
command -v jq >/dev/null || { echo "repro-search: jq is needed" >&2; exit 4; }
failed=0

# ---- small -----------------------------------------------------------------------------------

small_table() {
    test=$bin/../tests/unit/search-bound
    [ -x "$test" ] || { echo "small: $test is not there (make tests), skipped"; return; }
    COUNT=${COUNT:-300} "$test"
}

# ---- gap -------------------------------------------------------------------------------------

shipped() { # shipped CLUSTER: its file
    case $1 in
    v100) echo v100-4x8 ;;
    *) echo "$1-2x8" ;;
    esac
}

gap_table() {
    local TIMEFORMAT='%U' used
    share=$(dirname "$0")/../share/clusters
    printf '%-16s %-6s %8s %10s %10s %7s %10s\n' model links devices 'step (ms)' 'bound (ms)' \
        gap 'CPU (s)'
    for cluster in ${CLUSTER:-h100 a100 v100}; do
        for model in ${MODELS:-gpt:2.6B t5:770M wide-resnet:1B moe:1.3B}; do
            for devices in ${DEVICES:-8 16 32 64}; do
                jq ".nodes = $(((devices + 7) / 8))" "$share/$(shipped "$cluster").json" \
                    >"$dir/c.json"
                used=$({ time "$bin/weft-search" -q -a "${ALGORITHM:-auto}" -m "$model" --cluster "$dir/c.json" \
                    --devices "$devices" -b $((32 * devices)) >"$dir/plan.json" 2>"$dir/err"; } 2>&1)
                jq -r --arg row "$model $cluster $devices" --arg used "$used" '
                    .provenance | "\($row) \(.predicted.time_us / 1e3) \(
                    .search.lower_bound_us / 1e3) \(.search.gap * 100) \($used)"' "$dir/plan.json" ||
                    failed=1
            done
        done
    done | tee "$dir/gaps" |
        awk '{ printf "%-16s %-6s %8d %10.1f %10.1f %5.1f %% %10.2f\n", $1, $2, $3, $4, $5, $6, $7; fflush() }'
    sort -g -k6,6 "$dir/gaps" | awk '{ gap[NR] = $6; cpu = $7 > cpu ? $7 : cpu }
        END { printf "median gap %.1f %%, most CPU %.1f s\n", gap[int((NR + 1) / 2)], cpu }'
}

# ---- clusters --------------------------------------------------------------------------------

# cluster NODES PER_NODE LINKS MEMORY: a file of V100s whose links are fast, slow, or faster between
# nodes than within them.
cluster() {
    case $3 in
    fast) inside=300e9 between=50e9 ;;
    slow) inside=40e9 between=1e9 ;;
    odd) inside=12e9 between=50e9 ;;
    esac
    jq -n --argjson nodes "$1" --argjson devices "$2" --argjson inside "$inside" \
        --argjson between "$between" --arg memory "$4" '
        {format: "weft-cluster/1", $nodes, devices_per_node: $devices, device: "v100",
         $memory, flops: {f32: 15.7e12, f16: 125e12}, bandwidth: 900e9, latency_us: 17,
         links: ([{level: "node", bandwidth: $inside, latency_us: 10}]
             + if $nodes > 1 then [{level: "between", bandwidth: $between, latency_us: 30}]
               else [] end)}'
}

# ---- grid ------------------------------------------------------------------------------------

models="gpt:350M=0.36 gpt:1.3B=1.3 gpt:6.7B=6.7 gpt:13B=13 llama:1B=1.2 llama:7B=6.7
    llama:70B=69 t5:770M=0.77 t5:3B=3 t5:11B=11 moe:380M=0.38 moe:1.3B=1.3 moe:10B=10
    wide-resnet:250M=0.25 wide-resnet:1B=1 wide-resnet:4B=4 transformer:670M=0.67 mlp:wide=0.14"
machines="1x2,fast,loose,64 1x4,slow,tight,256 1x6,fast,tight,192 2x4,odd,loose,256
    1x8,fast,tight,512 2x6,slow,tight,384 3x8,fast,loose,768 2x8,slow,tight,256
    4x8,slow,tight,1024 8x8,fast,loose,512 16x8,odd,tight,2048 128x8,slow,loose,4096"

# "model nodes per-node links memory batch" for every setting. Tight memory is half as much again
# as the state of a model of so many billion parameters takes (16 bytes each), evenly spread.
settings() {
    for m in $models; do
        for c in $machines; do
            IFS=x, read -r nodes per_node links room batch <<<"$c"
            awk -v m="${m%=*}" -v p="${m#*=}" -v n="$nodes" -v d="$per_node" -v l="$links" \
                -v r="$room" -v b="$batch" 'BEGIN {
                state = 16 * p / (n * d)
                m_gb = r == "tight" ? 1.5 * state + 2 : 5 * state + 32
                printf "%s %d %d %s %dM %d\n", m, n, d, l, 1000 * m_gb, b
            }'
        done
    done
}

# step ALGORITHM OPTIONS...: milliseconds of the best plan, or "-" where none fits
step() {
    "$search" --slack 0 -q -a "$@" 2>"$dir/err" >"$dir/plan"
    case $? in
    0) jq '.provenance.predicted.time_us / 1e3' "$dir/plan" ;;
    1) echo - ;;
    *) sed 1q "$dir/err" >&2; echo - ;;
    esac
}

grid_table() {
    printf '%-20s %-7s %-5s %7s %6s %12s %12s %12s %8s\n' model devices links memory batch \
        found grid dp-only ratio
    settings | awk -v e="${EVERY:-12}" -v f="${FIRST:-1}" 'NR % e == f % e' >"$dir/settings"
    while read -r model nodes per_node links memory batch; do
        cluster "$nodes" "$per_node" "$links" "$memory" >"$dir/c.json"
        options=(-m "$model" --cluster "$dir/c.json" -b "$batch")
        found=$(step "${ALGORITHM:-auto}" "${options[@]}")
        grid=$(step grid "${options[@]}")
        data=$(step dp-only "${options[@]}")
        awk -v m="$model" -v d="${nodes}x$per_node" -v l="$links" -v r="$memory" -v b="$batch" \
            -v f="$found" -v g="$grid" -v o="$data" -v all="$dir/ratios" 'BEGIN {
            best = g == "-" || (o != "-" && o + 0 < g + 0) ? o : g
            ratio = best == "-" ? "-" : f == "-" ? "none" : sprintf("%.4f", f / best)
            printf "%-20s %-7s %-5s %7s %6d %12.12s %12.12s %12.12s %8s\n", m, d, l, r, b,
                f, g, o, ratio
            if (ratio != "-") printf "%s %s %.9f\n", m, d, f == "-" ? 9 : f / best >> all
        }'
    done <"$dir/settings"
    awk '{ n++; sum += log($3); if ($3 > worst) { worst = $3; at = $1 " on " $2 }
           if ($3 > 1 + 1e-6) above++ }
         END { printf "%d settings: geometric mean %.4f, worst %.6f (%s), above 1: %d\n", n,
                   exp(sum / n), worst, at, above
               exit above > 0 }' "$dir/ratios" || failed=1
}

# ---- scale -----------------------------------------------------------------------------------

# cost NAME OPTIONS...: one line for a search
cost() {
    name=$1
    shift
    "${timer[@]}" "$search" --slack 0 -q -a "${ALGORITHM:-auto}" "$@" >"$dir/plan" 2>"$dir/err"
    read -r user system peak < <(tail -1 "$dir/err")
    awk -v n="$name" -v u="$user" -v s="$system" -v k="$peak" \
        -v us="$(jq '.provenance.predicted.time_us' "$dir/plan")" 'BEGIN {
        printf "%-36s %9.2f s %7.0f MB %14.3f s\n", n, u + s, k / 1024, us / 1e6 }'
}

scale_table() {
    timer=(/usr/bin/time -f '%U %S %M')
    [ -x /usr/bin/time ] || { echo "scale: /usr/bin/time is not there, skipped"; return; }
    printf '%-36s %11s %10s %16s\n' search processor memory step
    for devices in 8 32 128 512; do
        cluster $((devices / 8)) 8 fast 1T >"$dir/c.json"
        for layers in 8 24 96 256 1024; do
            cost "gpt:1.3B, $layers layers, $devices devices" -m gpt:1.3B --set "layers=$layers" \
                --cluster "$dir/c.json" -b $((8 * devices))
        done
    done
    for devices in 4 8 16 32 64 128 256 512 1024; do
        per_node=$((devices < 8 ? devices : 8))
        cluster $((devices / per_node)) "$per_node" slow $((devices < 16 ? 400 / devices : 30))G \
            >"$dir/c.json"
        cost "gpt:13B, $devices devices" -m gpt:13B --cluster "$dir/c.json" -b $((8 * devices))
    done
    cluster 512 8 slow 30G >"$dir/c.json"
    cost "moe:10B, 4096 devices" -m moe:10B --cluster "$dir/c.json" -b 4096
    cost "llama:70B, 4096 devices" -m llama:70B --cluster "$dir/c.json" -b 4096
}

# ---- aceso -------------------------------------------------------------------------------------

# Aceso's settings: its small tables, which are of 4 GPUs, and its large ones, of nodes of 8. Steps and
# searches of its own are there where they are known.
aceso_table() {
    local TIMEFORMAT='%U' used cluster micro
    printf '%-16s %4s %10s %9s %10s %8s %8s\n' model GPUs 'Aceso (s)' searched 'step (s)' 'gap (%)' 'CPU (s)'
    while read -r tables model gpus batch step wall; do
        [ -d "${WEFT_DATA:-}/aceso/$tables" ] || continue
        cluster="node:1 gpu:$gpus" micro=1,2,4,8
        [ "$gpus" -le 8 ] || cluster="node:$((gpus / 8)) gpu:8"
        [ "${model%%:*}" != wide-resnet ] || micro=16,32,48,64
        options=(--cost "aceso:$WEFT_DATA/aceso/$tables" -m "$model" --cluster "$cluster" -b "$batch"
            --micro-batch "$micro" --memory "$([ "$tables" = small ] && echo 12000M || echo 28000M)")
        used=$({ time "$search" "${options[@]}" >/dev/null 2>"$dir/err"; } 2>&1) ||
            { tail -1 "$dir/err"; continue; }
        printf '%-16s %4s %10s %9s %10.3f %8s %8s\n' "$model" "$gpus" "$step" "$wall" \
            "$(said <"$dir/err")" "$(sed -n 's/.*gap \([0-9.]*\) %.*/\1/p' "$dir/err")" "$used"
    done <<'END'
small gpt:1.3B 4 512 58.76 99
small t5:770M 4 512 33.66 200
small wide-resnet:1B 4 768 17.67 46
large gpt:1.3B 4 1024 - -
large gpt:2.6B 8 1024 - -
large gpt:6.7B 16 1024 - -
large gpt:13B 32 1024 - -
large t5:3B 4 1024 - -
large t5:6B 8 1024 - -
large t5:11B 16 1024 - -
large t5:22B 32 1024 - -
large wide-resnet:2B 4 1536 - -
large wide-resnet:4B 8 1536 - -
large wide-resnet:6.8B 16 1536 45.67 -
large wide-resnet:13B 32 1536 - -
END
    [ -d "${WEFT_DATA:-}/aceso/small" ] || echo "aceso: WEFT_DATA=DIR has no aceso/small: left out"
    [ -d "${WEFT_DATA:-}/aceso/large" ] || echo "aceso: WEFT_DATA=DIR has no aceso/large: left out"
}
# Seconds of a step, as a search says them.
said() {
    sed -n 's/.*a step takes \([0-9.]*\) ms.*/\1/p' | awk '{ print $1 / 1e3 }'
}

# ---- ablation -----------------------------------------------------------------------------------

# Those that weft-search knows, less those that refuse all but small spaces.
algorithms() {
    "$search" -h | sed -n 's/.*--algorithm NAME *\(.*\) (auto)/\1/p' | tr -d , | tr ' ' '\n' |
        grep -vx 'exhaustive\|presets'
}

ablation_table() {
    local TIMEFORMAT='%U' setting=0 used
    settings | awk -v e="${EVERY:-5}" -v f="${FIRST:-1}" 'NR % e == f % e' >"$dir/settings"
    while read -r model nodes per_node links memory batch; do
        cluster "$nodes" "$per_node" "$links" "$memory" >"$dir/c.json"
        setting=$((setting + 1))
        for algorithm in $(algorithms); do
            used=$({ time step "$algorithm" -m "$model" --cluster "$dir/c.json" -b "$batch" \
                >"$dir/step"; } 2>&1)
            echo "$algorithm $setting $(cat "$dir/step") $used"
            [ -z "${ALL:-}" ] || echo "$model ${nodes}x$per_node $links $memory $batch" \
                "$algorithm $(cat "$dir/step") ms $used s" >&2
        done
    done <"$dir/settings" | awk '
        { cpu[$1] += $4; n = $2; step[$1, n] = $3; all[$1]
          if ($3 != "-" && (!(n in best) || $3 + 0 < best[n])) best[n] = $3 + 0 }
        END {
            printf "%-10s %10s %10s %8s %8s %12s %10s\n", "algorithm", "mean ratio", "worst", "best", "none",
                "alone (%)", "CPU (s)"
            for (a in all) {
                sum = found = worst = first = none = gain = 0
                for (i = 1; i <= n; i++) {
                    if (!(i in best)) continue
                    if (step[a, i] == "-") { none++; continue }
                    ratio = step[a, i] / best[i]; sum += log(ratio); found++
                    worst = ratio > worst ? ratio : worst
                    first += ratio <= 1 + 1e-9
                    other = 0
                    for (b in all)
                        if (b != a && b != "auto" && step[b, i] != "-" && (!other || step[b, i] < other))
                            other = step[b, i]
                    if (a != "auto" && other && other / step[a, i] - 1 > gain) gain = other / step[a, i] - 1
                }
                printf "%-10s %10.4f %10.4f %8d %8d %12.2f %10.1f\n", a, found ? exp(sum / found) : 0, worst,
                    first, none, 100 * gain, cpu[a] | "sort -k2,2"
            }
            close("sort -k2,2")
            printf "%d settings\n", n
        }'
}

# ---- simple -------------------------------------------------------------------------------------

# "model type cluster batch" for every setting
shipped_settings() {
    for model in gpt:1.3B gpt:6.7B llama:1B llama:7B t5:770M t5:3B moe:1.3B wide-resnet:1B transformer:670M \
        mixtral:8x7B; do
        for c in a100-8 a100-2x8 h100-8 h100-2x8 v100-4x8; do
            for batch in 64 512; do
                case $c in h*) echo "$model bf16 $c $batch" ;; *) echo "$model fp32 $c $batch" ;; esac
            done
        done
    done
}
# said_of PLAN: "step words whole", the words being those of weft-plan --show, and whole 1 where no
# block is cut and stages have as many blocks (or one more) and devices
said_of() {
    "$bin/weft-plan" --show "$1" >"$dir/shown"
    echo "$(jq .provenance.predicted.time_us "$1") $(wc -w <"$dir/shown") $(awk '
        /^stage/ { rows = 1; whole = 1; next }
        rows { whole = whole && $2 !~ /[+]/
               if (rows++ == 1) { least = most = $2 + 0; devices = $3 }
               if ($2 + 0 < least) least = $2 + 0
               if ($2 + 0 > most) most = $2 + 0
               whole = whole && $3 == devices }
        END { print whole && most - least <= 1 }' "$dir/shown")"
}

simple_table() {
    printf '%-18s %-6s %-10s %6s %14s %14s %8s %7s %7s\n' model type cluster batch 'fastest (ms)' 'simplest (ms)' \
        'loss (%)' words 'of it'
    shipped_settings | awk -v e="${EVERY:-1}" -v f="${FIRST:-1}" 'NR % e == f % e' >"$dir/settings"
    while read -r model dtype where batch; do
        options=(-q -m "$model" --dtype "$dtype" --cluster "$where" -b "$batch")
        "$search" "${options[@]}" --slack 0 >"$dir/fastest.json" 2>"$dir/err" || continue
        "$search" "${options[@]}" --slack "${SLACK:-1%}" >"$dir/simplest.json" 2>"$dir/err" || failed=1
        echo "$model $dtype $where $batch $(said_of "$dir/fastest.json") $(said_of "$dir/simplest.json")"
    done <"$dir/settings" | awk '{
        loss = 100 * ($8 / $5 - 1); sum += loss; most = loss > most ? loss : most
        before += $6; after += $9; whole_before += $7; whole += $10
        printf "%-18s %-6s %-10s %6d %14.1f %14.1f %8.2f %7d %7d\n", $1, $2, $3, $4, $5 / 1e3, $8 / 1e3, loss, $6, $9
        fflush()
    } END { printf "%d settings: words %.1f fastest, %.1f simplest; whole blocks in equal stages %.0f %% and %.0f %%; loss %.2f %% in the mean, %.2f %% at most\n",
                NR, before / NR, after / NR, 100 * whole_before / NR, 100 * whole / NR, sum / NR, most }'
}

for table in ${TABLES:-small gap grid scale aceso}; do
    "${table}_table" || failed=1
done
exit $failed
