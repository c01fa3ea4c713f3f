#!/usr/bin/env bash
# Prints the tables that doc/search.md quotes, one function for each:
#   TABLES="small gap gradient" scripts/repro-search.sh BIN_DIR
# gradient  the descent on the relaxed problem against the exact stages solver: chains of layers whose
#           costs are uniform in 5 to 9, cut into stages so that the longest is shortest, ROUNDS (5) of
#           each size.
# small     random small problems: dp against the list of all plans, bounds against random plans
# gap       proven gaps of hops' plans on CLUSTER (h100, a100, v100: all) with 8 devices a node, DEVICES
#           (8 16 32 64), MODELS, and the processor time of search and bound together
set -u
LC_ALL=C
export LC_ALL
bin=${1:?BIN_DIR}
dir=$(mktemp -d) || exit 4
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
command -v jq >/dev/null || { echo "repro-search: jq is needed" >&2; exit 4; }
failed=0

# ---- gradient --------------------------------------------------------------------------------

# chain LAYERS STAGES SEED: a stages problem, one device for each stage
chain() {
    awk -v L="$1" -v D="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        printf "{\"format\":\"weft-problem/1\",\"problem\":\"stages\",\"num_layers\":%d,", L
        printf "\"num_devices\":%d,\"num_micro_batches\":%d,", D, 4 * D
        printf "\"submeshes\":[{\"size\":1}],\"configs\":[{\"submesh\":0}],\"layers\":{\"time\":["
        for (l = 0; l < L; l++) printf "%s%.6f", (l ? "," : ""), 5 + 4 * rand()
        split("state activation", key)
        for (k = 1; k <= 2; k++) {
            printf "],\"%s\":[", key[k]
            for (l = 0; l < L; l++) printf "%s0", (l ? "," : "")
        }
        print "]}}"
    }' </dev/null
}

# longest OPTIONS...: the longest stage, and seconds of processor time
longest() {
    local TIMEFORMAT='%U %S' used
    used=$({ time "$bin/weft-solve" stages -q "$@" "$dir/chain.json" >"$dir/answer" 2>"$dir/err"; } 2>&1)
    echo "$(jq .max "$dir/answer") $used"
}

gradient_table() {
    printf '%6s %6s %12s %12s %12s %12s %14s\n' layers stages 'exact (s)' 'gradient (s)' \
        'gap' 'worst' 'undescended'
    for size in "24 8" "32 8" "48 16" "64 16" "96 24" "128 32"; do
        read -r layers stages <<<"$size"
        for ((seed = 1; seed <= ${ROUNDS:-5}; seed++)); do
            chain "$layers" "$stages" "$seed" >"$dir/chain.json"
            echo "$(longest) $(longest --relax) $(longest --relax --time-budget 0.000001)"
        done | awk -v l="$layers" -v s="$stages" '
            NF != 9 { print "no answer"; exit 1 }
            {
                gap = $4 / $1 - 1; n++
                exact_s += $2 + $3; relaxed_s += $5 + $6; sum += gap; idle += $7 / $1 - 1
                worst = gap > worst ? gap : worst
            }
            END { printf "%6d %6d %12.4f %12.4f %10.2f %% %10.2f %% %12.2f %%\n", l, s,
                  exact_s / n, relaxed_s / n, 100 * sum / n, 100 * worst, 100 * idle / n }' ||
            failed=1
    done
}

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
                used=$({ time "$bin/weft-search" -q -m "$model" --cluster "$dir/c.json" \
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

for table in ${TABLES:-small gap gradient}; do
    "${table}_table" || failed=1
done
exit $failed
