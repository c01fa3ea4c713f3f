#!/usr/bin/env bash
# make figures: doc/figures.md, the one page that holds measured figures, from doc/figures.in.
#   scripts/figures.sh BIN_DIR [NAME...]
# The input is the page, but for lines that begin with "@":
#   @stamp               when, where and of which commit the quick figures are
#   @quick NAME          the table that figure_NAME below prints, made anew each time
#   @slow STAMP: COMMAND what follows was measured then, and the command measures it again: whoever
#                        reruns it writes what it prints below, and a new stamp
# With NAMEs, prints the tables of these quick figures and leaves the page alone. Figures have three
# digits.
# Needs: jq
# shellcheck disable=SC2016,SC2317  # backquotes are Markdown; figures are called by their names
set -euo pipefail
LC_ALL=C
export LC_ALL
bin=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
PATH=$bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Rows of columns that tabs part, the first the heads, as a table of Markdown.
markdown() {
    awk -F'\t' '{ line = "|"; for (i = 1; i <= NF; i++) line = line " " $i " |"; print line }
        NR == 1 { line = "|"; for (i = 1; i <= NF; i++) line = line "---|"; print line }'
}
row() { # row FIELD...: a row
    local IFS=$'\t'
    echo "$*"
}
digits() { # digits NUMBER: three of them
    awk -v x="$1" 'BEGIN {
        if (x == 0) { print 0; exit }
        d = 2 - int(log(x) / log(10) + (x < 1 ? -1 : 0) + 1e-9)
        printf "%.*f", (d > 0 ? d : 0), x
    }'
}
of() { # of FILTER FILE: a number of a JSON file, with three digits
    digits "$(jq "$1" "$2")"
}

# ---- the source ------------------------------------------------------------------------------

lines() { # lines FOLDER...: of C, C++ and CUDA in them
    find "$@" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.def' \) -print0 | xargs -0 cat | wc -l
}
figure_source() {
    row floor lines files
    for floor in lib/*/; do
        row "\`${floor%/}\`" "$(lines "$floor")" "$(find "$floor" -name '*.c' -o -name '*.cu' | wc -l)"
    done
    row 'all of `lib`' "$(lines lib)" "$(find lib -name '*.c' -o -name '*.cu' | wc -l)"
    row '`tools`' "$(lines tools)" "$(find tools -name '*.c' | wc -l)"
    row '`tests`' "$(find tests -type f \( -name '*.[ch]' -o -name '*.sh' -o -name '*.py' -o -name '*.cc' \) -print0 |
        xargs -0 cat | wc -l)" "$(find tests -name '*.c' -o -name '*.sh' | wc -l)"
}
figure_functions() {
    row what figure
    scripts/measure.sh | sed -n 's/^functions \([0-9]*\): median length \([0-9]*\) lines, .*, longest \([0-9]*\)/functions\t\1\nmedian length\t\2 lines\nlongest\t\3 lines/p
        s/^commented \(.*\)/with a comment above\t\1/p
        s/^public functions \(.*\)/public functions\t\1/p'
    row 'words of README, CONTRIBUTING and `doc`' "$(cat README.md CONTRIBUTING.md doc/*.md | wc -w)"
    row 'words of `man`' "$(cat man/* | wc -w)"
}

# ---- searches --------------------------------------------------------------------------------

# search FILE OPTIONS...: the fastest plan into FILE; prints seconds of processor time and MB
search() {
    local file=$1
    shift
    /usr/bin/time -o "$work/time" -f '%U %S %M' weft-search -q --slack 0 "$@" -o "$file"
    awk '{ print $1 + $2, $3 / 1000 }' "$work/time"
}
figure_searches() {
    local model cluster batch dtype seconds mb step
    row model cluster batch dtype 'step, s' 'of the step of `grid`' 'proven gap, %' 'processor time, s' MB
    while read -r model cluster batch dtype; do
        options=(-m "$model" --cluster "$cluster" -b "$batch" --dtype "$dtype")
        read -r seconds mb < <(search "$work/plan" "${options[@]}")
        search "$work/grid" "${options[@]}" -a grid >/dev/null
        step=.provenance.predicted.time_us
        row "$model" "$cluster" "$batch" "$dtype" "$(of "$step / 1e6" "$work/plan")" \
            "$(digits "$(jq -n --slurpfile a "$work/plan" --slurpfile b "$work/grid" "(\$a[0] | $step) / (\$b[0] | $step)")")" \
            "$(of '.provenance.search.gap * 100' "$work/plan")" "$(digits "$seconds")" "$(digits "$mb")"
    done <<'END'
gpt:1.3B a100-8 256 bf16
gpt:13B h100-2x8 256 bf16
gpt:13B v100-4x8 256 fp32
llama:13B h100-2x8 256 bf16
llama:70B h100-2x8 256 bf16
t5:3B h100-2x8 256 bf16
moe:10B a100-2x8 256 bf16
wide-resnet:1B v100-4x8 512 fp32
END
}

# What fits only with memory of hosts.
figure_hosts() {
    local model devices memory batch
    row job 'memory of a device' 'step, s' 'lower bound, s' 'kept on hosts'
    while read -r model devices memory batch; do
        search "$work/plan" -m "$model" --cluster h100-2x8 --devices "$devices" --memory "$memory" -b "$batch" >/dev/null
        row "$model on $devices, batch $batch" "${memory%G} GB" "$(of '.provenance.predicted.time_us / 1e6' "$work/plan")" \
            "$(of '.provenance.search.lower_bound_us / 1e6' "$work/plan")" \
            "$(jq -r '[.stages[].offload // empty | if type == "object" then keys[] elif type == "array" then .[] else . end]
                | unique | join(", ")' "$work/plan")"
    done <<'END'
gpt:6.7B 1 80G 32
gpt:1.3B 1 8G 32
llama:7B 4 16G 64
END
}

# Small spaces that are proven.
figure_proofs() {
    local layers algorithm seconds
    row 'layers of `mlp:mnist`' algorithm 'step, us' 'gap, %' 'processor time, s'
    for layers in 1 2 3; do
        for algorithm in dp ilp auto; do
            read -r seconds _ < <(search "$work/plan" -a $algorithm -m mlp:mnist --set layers=$layers \
                --cluster v100-4x8 -b 64 --devices 2 --micro-batch 32)
            row $layers $algorithm "$(of .provenance.predicted.time_us "$work/plan")" \
                "$(of '.provenance.search.gap * 100' "$work/plan")" "$seconds"
        done
    done
}

# ---- predictions -----------------------------------------------------------------------------

figure_megatron() {
    row GPT devices 'recomputed' 'measured, s' 'predicted, s' bounds 'measured over predicted'
    scripts/megatron.sh "$bin" | awk -v OFS='\t' 'NR > 1 { print $1, $2, $4, $5, $6, $7 " to " $8, $9 }'
}
figure_bubbles() {
    row groups micro-batches 'gpipe, 1f1b' 'interleaved, 2' zero-bubble 'interleaved, 4' 'furthest from its formula'
    scripts/bubbles.sh "$bin" | awk -v OFS='\t' '
        NR > 1 {
            wait[$3] = $4
            if ($5) { off = $4 / $5 - 1; if (off < 0) off = -off; if (off > most) most = off }
        }
        $3 == "interleaved-4" {
            printf "%d\t%d\t%.1f %%\t%.1f %%\t%.1f %%\t%.1f %%\t%.2f %%\n", $1, $2, wait["1f1b"],
                wait["interleaved-2"], wait["zero-bubble"], $4, 100 * most
            most = 0
        }'
}
figure_layers() {
    row layer split formula masks scores silu result sums weft
    scripts/memory.sh "$bin" | awk -v OFS='\t' '
        function plain(x) { return x == 0 ? "" : sprintf("%.4g", x) }
        /^first/ { after = 1 }
        !after && NR > 1 && NF && $1 ~ /175B|70B/ {
            how = $2
            for (i = 3; i <= NF - 9; i++) how = how ", " $i
            print $1, how, plain($(NF - 8)), plain($(NF - 6)), plain($(NF - 5)), plain($(NF - 4)),
                plain($(NF - 3)), plain($(NF - 2)), plain($(NF - 1))
        }'
}
figure_rings() {
    local plan devices
    gib() { weft-predict -q --memory - | jq '.memory / pow(2; 30) * 10 | round / 10'; }
    plan=(weft-plan -q -m llama:7B --set seq=65536 -b 1 --zero 3)
    row devices gathered 're-gathered' ring
    for devices in 2 4 8 16; do
        row $devices "$("${plan[@]}" --cp $devices | gib)" \
            "$("${plan[@]}" --cp $devices | jq '.stages[].regather = true' | gib)" \
            "$("${plan[@]}" --cp $devices --ring | gib)"
    done
}
# A plan as large as plans get: compiled and simulated.
figure_scale() {
    row 'layers, devices, micro-batches' 'elapsed, s' MB
    jq '.nodes = 128' share/clusters/h100-2x8.json >"$work/cluster.json"
    weft-plan -q -m gpt:1.3B --set layers=1024 --pp 64 --dp 2 --tp 8 -b 16384 --micro-batch 4 \
        --cluster "$work/cluster.json" -o "$work/plan"
    /usr/bin/time -o "$work/time" -f '%e %M' weft-predict -q "$work/plan" >"$work/prediction"
    row '1,024, 1,024, 4,096' "$(awk '{ print $1 "\t" int($2 / 1000) }' "$work/time")"
}

# ---- the page --------------------------------------------------------------------------------

if [ $# -gt 0 ]; then
    for name; do "figure_$name" | markdown; done
    exit
fi
stamp="$(date +%F), $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), commit $(git rev-parse --short HEAD)"
echo '<!-- make figures writes this page, from doc/figures.in -->' >"$work/page"
while IFS= read -r line; do
    case $line in
    '@quick '*)
        name=${line#@quick }
        echo "figures: $name" >&2
        "figure_$name" >"$work/table"
        markdown <"$work/table"
        printf '\n*`scripts/figures.sh bin %s`*\n' "$name"
        ;;
    @stamp) printf 'What `scripts/figures.sh` prints is of %s.\n' "$stamp" ;;
    '@slow '*) printf '*%s: `%s`*\n' "$(sed 's/^@slow //; s/: .*//' <<<"$line")" "${line#*: }" ;;
    *) printf '%s\n' "$line" ;;
    esac
done <doc/figures.in >>"$work/page"
cp "$work/page" doc/figures.md
