#!/usr/bin/env bash
# Prints the tables that doc/search.md quotes, one function for each:
#   TABLES="gradient" scripts/repro-search.sh BIN_DIR
# gradient  the descent on the relaxed problem against the exact stages solver: chains of layers whose
#           costs are uniform in 5 to 9, cut into stages so that the longest is shortest, ROUNDS (5) of
#           each size.
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

for table in ${TABLES:-gradient}; do
    "${table}_table" || failed=1
done
exit $failed
