#!/usr/bin/env bash
# make repro-throughput: is the plan that weft-search finds as fast in real runs as the best that a
# person would try?
#   scripts/repro-throughput.sh BIN_DIR [WORK_DIR]
# For every family, on 2 and on 4 ranks of one thread: profiles this machine, lets weft-search find a plan
# by itself, and by its algorithms grid and dp-only, and trains under all of them in turns, round after
# round. A ratio is the found plan's median step over the other's of the same round. The found plan runs
# twice in each round: how far these two differ is the noise. Exit 1 where the found plan is slower beyond it.
# What was measured stays in WORK_DIR (a new one) and is not measured again. By the environment:
#   RANKS="2 4"  ROUNDS=7  STEPS=6  TIME=40ms (longest for a row of the profile)
#   ROWS="gpt llama t5 moe transformer wide-resnet mlp"
# Needs: jq mpirun, and two cores that nothing else uses
set -u
LC_ALL=C
export LC_ALL OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
bin=$(cd "${1:?BIN_DIR}" && pwd) || exit 4
work=${2:-}
[ -n "$work" ] || { work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT; }
mkdir -p "$work" && cd "$work" || exit 4
trap 'exit 130' INT
for tool in jq mpirun; do
    command -v "$tool" >/dev/null || { echo "repro-throughput: $tool is needed" >&2; exit 4; }
done
cores=$(getconf _NPROCESSORS_ONLN)
batch=16 micro=2,4,8,16
ways="found grid dp-only again" # again: found, once more

rows() { # family, model, sizes: some milliseconds a sample each
    cat <<ROWS
gpt          gpt:nano          layers=4
llama        llama:nano        layers=4
t5           t5:nano           layers=2
moe          moe:nano          layers=2,experts=4
transformer  transformer:nano  layers=2
wide-resnet  wide-resnet:nano  base=16
mlp          mlp:mnist         hidden=1024
ROWS
}

say() { printf 'repro-throughput: %s\n' "$*" >&2; }

over() { # ranks that share a core
    local each=$((($1 + cores - 1) / cores))
    echo $((each > 1 ? each : 1))
}

job() { # job RANKS COMMAND...: with no input, for it would read the loop's
    local n=$1
    shift
    mpirun --oversubscribe --bind-to none -n "$n" "$@" </dev/null
}

# The collectives once for each number of ranks, the operators of each family on top.
profile() { # profile NAME MODEL SIZES RANKS
    local db=$1.db
    [ -f "comm-$4.db" ] || {
        say "collectives of $4 ranks"
        job "$4" "$bin/weft-profile-comm" -q --threads 1 --device this -p part.db \
            --max-bytes 16M --time "${TIME:-40ms}" >/dev/null && mv part.db "comm-$4.db"
    } || return
    [ -f "$db" ] || {
        say "operators of $1"
        cp "comm-$4.db" part.db &&
            "$bin/weft-profile-op" -q -m "$2" --set "$3" -p part.db --max-devices "$4" --device this \
                --ranks "$4" --threads 1 --over "$(over "$4")" --micro-batch "$micro" \
                --time "${TIME:-40ms}" >/dev/null && mv part.db "$db"
    }
}

plans() { # plans NAME MODEL SIZES RANKS
    local way options=(-q -m "$2" --set "$3" -p "$1.db" --devices "$4" -b "$batch" --micro-batch "$micro")
    "$bin/weft-search" "${options[@]}" -o "$1.found.json" &&
        cp "$1.found.json" "$1.again.json" &&
        for way in grid dp-only; do
            "$bin/weft-search" -a "$way" "${options[@]}" -o "$1.$way.json" || return
        done
}

measure() { # measure NAME RANKS: a line of median steps (ms) for each round, in the order of ways
    local way
    for ((i = 0; i < ${ROUNDS:-7}; i++)); do
        for way in $ways; do
            job "$2" "$bin/weft-run" -q --threads 1 -n "${STEPS:-6}" --validation 0 "$1.$way.json" 2>err |
                jq -rs '[.[] | select(.step > 1) | .step_ms] | sort | .[length / 2 | floor]'
        done | paste -s -d ' '
    done
}

# Of a file of such lines. Below the first quartile of what the found plan's two runs differ by, and above
# the third, there is nothing to be seen.
judge() { # judge NAME
    local predicted
    predicted=$(for way in found grid dp-only; do
        jq '.provenance.predicted.time_us / 1e3' "$1.$way.json"
    done | paste -s -d ' ')
    awk -v name="$1" -v predicted="$predicted" '
        function sorted(x, n,   i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
        }
        function at(x, n, share) { return x[int(1 + share * (n - 1) + 0.5)] }
        NF == 4 {
            n++
            for (i = 1; i <= 4; i++) ms[i, n] = $i
            grid[n] = $1 / $2; data[n] = $1 / $3; noise[n] = $1 > $4 ? $1 / $4 : $4 / $1
        }
        END {
            if (!n) { print name ": nothing was measured"; exit 1 }
            split(predicted, p)
            sorted(grid, n); sorted(data, n); sorted(noise, n)
            for (i = 1; i <= 3; i++) {
                for (j = 1; j <= n; j++) x[j] = ms[i, j]
                sorted(x, n)
                m[i] = at(x, n, 0.5)
            }
            limit = at(noise, n, 0.75)
            worst = at(grid, n, 0.5) > at(data, n, 0.5) ? at(grid, n, 0.5) : at(data, n, 0.5)
            slow = worst > limit
            printf "%-14s %8.1f %8.1f %8.1f   %8.1f %8.1f %8.1f   %6.3f %6.3f %7.3f %s\n", name, p[1], p[2],
                p[3], m[1], m[2], m[3], at(grid, n, 0.5), at(data, n, 0.5), limit, slow ? "slower" : ""
            exit slow
        }' "$1.ms"
}

failed=0
printf '%-14s %26s   %26s   %13s %7s\n' '' 'predicted step (ms)' 'measured step (ms)' 'found over' ''
printf '%-14s %8s %8s %8s   %8s %8s %8s   %6s %6s %7s\n' 'family-ranks' found grid dp-only found grid \
    dp-only grid dp-only noise
for ranks in ${RANKS:-2 4}; do
    while read -r family model sizes; do
        case " ${ROWS:-$family} " in *" $family "*) ;; *) continue ;; esac
        name=$family-$ranks
        if profile "$name" "$model" "$sizes" "$ranks" && plans "$name" "$model" "$sizes" "$ranks"; then
            [ -s "$name.ms" ] || measure "$name" "$ranks" >"$name.ms"
            judge "$name" || failed=1
        else
            failed=1
        fi
    done < <(rows)
done
exit $failed
