#!/usr/bin/env bash
# Compares the plans of two builds over 200 searches: families, 2 to 1,024 devices, shipped and odd
# clusters, tight and loose memory, every algorithm, pins, --from, --top.
#   scripts/same-plans.sh OLD_BIN NEW_BIN
# EVERY=N    every N-th setting, from FIRST (1) on; QUICK=1 is some 25 settings of at most a second
# CACHE=DIR  OLD's answers stay there, so that the next comparison runs NEW alone. The folder belongs
#            to one build of OLD.
# ONLY=WORD  those settings whose line holds WORD
# A line for each setting that differs (with ALL=1 for each): "better" and "worse" are of the
# predicted step; "other" is another plan that takes as long; "bound" the same plan with another
# bound; "failed" one that only OLD answers. Who knows --slack is given --slack 0.
# Exit 1 where any is worse or failed.
set -u
LC_ALL=C
export LC_ALL
old=$(realpath "${1:?OLD_BIN}") new=$(realpath "${2:?NEW_BIN}")
dir=$(mktemp -d) || exit 4
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
command -v jq >/dev/null || { echo "same-plans: jq is needed" >&2; exit 4; }
cache=${CACHE:-$dir/cache}
mkdir -p "$cache" && cache=$(realpath "$cache") && cd "$dir" || exit 4

# What a search answered, as far as two builds must agree: the documents, less what says how they were
# found. Names that differ between the two builds are made one here, and --memory stands in plans
# since it is written into their clusters.
same_words='
    def renamed: {"regather": "re-all-gather"};
    [.[] | del(.provenance.search, .provenance.tool, .provenance.fastest, .provenance.simplest,
              .cluster.memory, .cluster.groups?[]?.memory)
         | walk(if type == "object" then with_entries(.key |= (renamed[.] // .)) else . end)]'

# ---- clusters ----------------------------------------------------------------------------------

# cluster NAME NODES PER_NODE LINKS: a file of V100s
cluster() {
    case $4 in
    fast) inside=300e9 between=50e9 ;;
    slow) inside=40e9 between=1e9 ;;
    odd) inside=12e9 between=50e9 ;;
    esac
    jq -n --argjson nodes "$2" --argjson devices "$3" --argjson inside "$inside" \
        --argjson between "$between" '
        {format: "weft-cluster/1", $nodes, devices_per_node: $devices, device: "v100",
         memory: "32G", flops: {f32: 15.7e12, bf16: 62e12, f16: 125e12}, bandwidth: 900e9,
         latency_us: 17, links: ([{level: "node", bandwidth: $inside, latency_us: 10}]
             + if $nodes > 1 then [{level: "between", bandwidth: $between, latency_us: 30}]
               else [] end)}' >"$1.json"
}
cluster pair 1 2 fast
cluster four 1 4 slow
cluster six 1 6 odd
cluster twelve 2 6 slow
cluster day 3 8 odd
cluster sixty-four 8 8 fast
cluster hundred 16 8 odd
cluster wide 32 8 slow
cluster thousand 128 8 slow
# Eight fast devices beside two nodes of four that are slower and smaller; and hosts to offload to.
cat >unlike.json <<'END'
{"format": "weft-cluster/1", "groups": [
  {"nodes": 1, "devices": 8, "device": "a100", "memory": "40G", "flops": {"f32": 19.5e12, "bf16": 312e12,
   "f16": 312e12}, "bandwidth": 2e12, "latency_us": 5,
   "links": [{"level": "node", "bandwidth": 300e9, "latency_us": 5}]},
  {"nodes": 2, "devices": 4, "device": "v100", "memory": "16G", "flops": {"f32": 15.7e12, "bf16": 62e12,
   "f16": 125e12}, "bandwidth": 9e11, "latency_us": 17,
   "links": [{"level": "switch", "devices": 2, "bandwidth": 50e9, "latency_us": 5},
             {"level": "node", "bandwidth": 10e9, "latency_us": 8}]}],
 "links": [{"level": "between", "bandwidth": 12.5e9, "latency_us": 10}]}
END
jq '.host_bandwidth = 16e9' four.json >hosts.json

# ---- settings ----------------------------------------------------------------------------------

# "MODEL SIZES GB MORE": the state of the model in f32 (16 bytes a parameter), and what a device needs
# for the rest at least, in gigabytes.
families=("gpt:350M layers=6 2.9 0.4" "llama:1B layers=4 4.6 0.4" "t5:770M layers=2 1.5 0.4"
    "moe:380M layers=4 3.0 0.4" "mixtral:8x7B layers=1 27 3" "transformer:220M layers=6 3.5 0.4"
    "wide-resnet:250M blocks1=2,blocks2=2,blocks3=2,blocks4=2 2.5 3" "mlp:wide layers=6 2.0 0.2")
small=(pair a100-8 six h100-8 four twelve unlike h100-2x8)
large=(pair six h200-8 twelve a100-2x8 day v100-4x8 unlike sixty-four hundred)

devices() { # devices CLUSTER
    case $1 in
    pair) echo 2 ;;
    four | hosts) echo 4 ;;
    six) echo 6 ;;
    twelve) echo 12 ;;
    unlike | *-2x8) echo 16 ;;
    day) echo 24 ;;
    v100-4x8) echo 32 ;;
    sixty-four) echo 64 ;;
    hundred) echo 128 ;;
    wide) echo 256 ;;
    thousand) echo 1024 ;;
    *) echo 8 ;;
    esac
}
room() { # room HOW GB MORE DEVICES: "--memory …"; tight has room for half as much again as the state
    case $1 in
    tight) awk -v s="$2" -v m="$3" -v d="$4" 'BEGIN { printf "--memory %dM", 1000 * (1.5 * s / d + m) }' ;;
    loose) awk -v s="$2" -v m="$3" -v d="$4" 'BEGIN { printf "--memory %dM", 1000 * (5 * s / d + 6 + m) }' ;;
    esac
}
setting() { # setting FAMILY CLUSTER ROOM OPTIONS...: a line of options
    local model sizes gb more count
    read -r model sizes gb more <<<"$1"
    count=$(devices "$2")
    local where=$2
    [ -e "$2.json" ] && where=./$2.json
    echo "-m $model --set $sizes --cluster $where -b $((count < 6 ? 48 : 8 * count))" \
        "$(room "$3" "$gb" "$more" "$count") ${*:4}"
}
settings() {
    local f a c i=0
    for a in auto hops grid dp-only mcmc gradient dp ilp; do
        for f in "${families[@]}"; do
            local how=tight
            ((i % 3)) && how=loose
            setting "$f" "${small[(3 * i + i / 8) % 8]}" $how -a $a --seed $((1 + i % 4))
            ((i++))
        done
    done
    local dtypes=(fp32 bf16 fp16)
    for c in "${large[@]}"; do
        for f in "${families[@]}"; do
            local rooms=(none tight loose)
            setting "$f" "$c" "${rooms[i % 3]}" --dtype "${dtypes[i / 3 % 3]}"
            ((i++))
        done
    done
    special
}

nano='-m gpt:350M --set layers=4,hidden=96,heads=4,seq=64,vocab=128'
little='-m mlp:mnist --set layers=1'
# What the loops above do not ask: exact algorithms on what they can list, pins, plans to start from,
# several plans, options that make the space smaller, and large clusters.
special() {
    cat <<END
$little --cluster cpu-2 -b 64 -a exhaustive
$little --cluster cpu-2 -b 64 -a ilp
$little --cluster cpu-2 -b 64 -a dp
$little --cluster cpu-2 -b 64
$little --cluster ./four.json -b 64 -a styles --micro-batch 16
$little --cluster ./pair.json -b 64 -a styles --optimizer sgd
$little --cluster ./pair.json -b 64 -a exhaustive --memory 32M
$nano --set layers=1 --cluster ./pair.json -b 8 -a styles --micro-batch 4
$nano --cluster ./four.json -b 16 --micro-batch 2,4
$nano --cluster ./four.json -b 16 --memory 4M
$nano --cluster ./four.json -b 16 -a hops --max-hops 2
$nano --cluster ./four.json -b 16 -a hops --max-hops 6
$nano --cluster ./four.json -b 16 --top 3
$nano --cluster ./four.json -b 16 -a grid --top 5
$nano --cluster ./unlike.json -b 16 -a hops --top 3 --all-devices
$nano --cluster ./six.json -b 12 -a mcmc --seed 7
$nano --cluster ./six.json -b 12 -a gradient --seed 7
$nano --cluster ./twelve.json -b 48 --max-stages 2
$nano --cluster ./four.json -b 16 --pin ./stages.json
$nano --cluster ./four.json -b 16 --pin ./heads.json
$nano --cluster ./four.json -b 16 --pin ./recompute.json
$nano --cluster ./four.json -b 16 --pin ./mesh.json -a hops
$nano --cluster ./four.json -b 16 --pin ./begins.json -a dp
$nano --cluster ./six.json -b 12 --pin ./zero.json
$nano --cluster ./four.json -b 16 --pin ./gpipe.json -a mcmc
$nano --cluster ./four.json -b 16 --from ./pipeline.json
$nano --cluster ./four.json -b 16 --from ./tensor.json -a hops
$nano --cluster ./four.json -b 16 --from ./tensor.json -a mcmc
$nano --cluster ./four.json -b 16 --from ./full.json --memory 6M
-m gpt:1.3B --cluster ./hosts.json -b 32 --memory 5G
-m gpt:1.3B --cluster ./hosts.json -b 32 --memory 5G --no-offload
-m gpt:1.3B --cluster a100-8 -b 64
-m gpt:1.3B --cluster a100-8 -b 64 --memory 6G
-m gpt:1.3B --cluster a100-8 -b 64 --gap 5%
-m gpt:1.3B --cluster a100-2x8 -b 64 --max-stages 4 --zero 1
-m gpt:1.3B --cluster v100-4x8 -b 64 --schedule gpipe
-m gpt:1.3B --cluster v100-4x8 -b 64 --schedule interleaved --micro-batch 1,2
-m gpt:1.3B --cluster ./hundred.json -b 512 -a grid
-m gpt:1.3B --cluster ./wide.json -b 1024 -a hops --memory 8G --micro-batch 32,64
-m gpt:1.3B --cluster ./thousand.json -b 2048 -a grid
-m gpt:1.3B --cluster ./thousand.json -b 2048 -a dp-only
-m gpt:2.6B --cluster v100-4x8 --devices 13 -b 64 -a grid
-m llama:1B --cluster ./thousand.json -b 2048 -a dp --dtype bf16 --micro-batch 128,256
-m llama:1B --cluster ./wide.json -b 512 --set layers=4 --dtype bf16
-m llama:7B --cluster h100-8 -b 32 --dtype bf16 -a grid
-m t5:770M --cluster v100-4x8 --devices 12 -b 24 -a grid
-m t5:3B --set layers=8 --cluster ./sixty-four.json -b 256 -a grid
-m t5:770M --set layers=2,dec_layers=3 --cluster ./day.json -b 48 --as-listed
-m moe:1.3B --cluster ./sixty-four.json -b 256 -a grid
-m moe:380M --set layers=4 --cluster ./thousand.json -b 2048 -a hops --micro-batch 256,512
-m moe:380M --set layers=4 --cluster ./wide.json -b 512
-m transformer:670M --cluster a100-8 -b 32 -a hops
-m transformer:220M --cluster a100-2x8 -b 256 -a dp --no-overlap
-m wide-resnet:250M --set blocks3=4 --cluster ./day.json --devices 21 -b 84 -a grid
-m wide-resnet:1B --cluster ./hundred.json -b 256 -a grid
-m mlp:wide --set layers=6 --cluster ./thousand.json -b 4096
END
}
pin() { # pin NAME MEMBERS
    echo "{\"format\": \"weft-plan/1\", \"pin\": {$2}}" >"$1.json"
}
pin stages '"stages": 2, "micro_batch": 4'
pin heads '"layer.*.attn": {"split": {"heads": 2}}, "*": {"mesh": "dp:2 tp:2"}'
pin recompute '"*": {"recompute": true}'
pin mesh '"*": {"mesh": "tp:4"}'
pin begins '"layer.2": {"stage": "begins"}, "layer.3 head": {"stage": "one"}'
pin zero '"layer.*": {"zero": 1}, "stages": 3'
pin gpipe '"schedule": "gpipe", "stages": 4'

# plans BIN: those to start from, as BIN writes them
plans() {
    read -ra model <<<"$nano -b 16 --cluster ./four.json -q"
    "$1/weft-plan" "${model[@]}" --pp 4 --micro-batch 1 -o pipeline.json
    "$1/weft-plan" "${model[@]}" --tp 2 --dp 2 --zero 1 -o tensor.json
    "$1/weft-plan" "${model[@]}" --pp 2 --tp 2 --recompute full -o full.json
}

# ---- comparison --------------------------------------------------------------------------------

# words BIN LINE: the options of LINE in BIN's words: -a presets was -a styles
words() {
    if "$1/weft-search" -h | grep -q ' presets'; then sed 's/-a styles/-a presets/' <<<"$2"; else echo "$2"; fi
}
# answer BIN BASE OPTIONS...: BASE.json has the plans, BASE.said "STATUS CPU_SECONDS"
answer() {
    local TIMEFORMAT='%U %S' bin=$1 base=$2 used status
    shift 2
    used=$({ time timeout 120 "$bin/weft-search" -q "$@" >"$base.json" 2>"$base.err"; } 2>&1)
    # bash's time hides the status of what it times, the plans do not.
    status=failed
    [ -s "$base.json" ] && status=plan
    grep -q 'no legal plan\|no plan' "$base.err" && status=none
    awk -v s=$status '{ print s, $1 + $2 }' <<<"$used" >"$base.said"
}
# what OLD NEW: the verdict on two answers
what() {
    jq -rn --slurpfile old "$1" --slurpfile new "$2" "
        def us: .[0].provenance.predicted.time_us;
        def bound: .[0].provenance.search.lower_bound_us // 0;
        def percent: fabs * 10000 | round / 100;
        ((\$new | us) / (\$old | us) - 1) as \$step |
        (if \$old | bound > 0 then (\$new | bound) / (\$old | bound) - 1 else 0 end) as \$bound |
        if \$step > 1e-9 then \"worse \(\$step | percent) %\"
        elif \$step < -1e-9 then \"better \(\$step | percent) %\"
        elif (\$old | $same_words) != (\$new | $same_words) then \"other\"
        elif \$bound > 1e-6 then \"bound higher \(\$bound | percent) %\"
        elif \$bound < -1e-6 then \"bound lower \(\$bound | percent) %\"
        else \"same\" end"
}
verdict() { # verdict OLD NEW: bases of two answers
    local a b
    read -r a _ <"$1.said"
    read -r b _ <"$2.said"
    case $a,$b in
    plan,plan) what "$1.json" "$2.json" ;;
    plan,*) echo "failed: $(head -1 "$2.err")" ;;
    *,plan) echo 'better: OLD had none' ;;
    "$b,$a") echo same ;;
    none,failed) echo "failed: $(head -1 "$2.err")" ;;
    *) echo other ;;
    esac
}

# fastest BIN: the option that has it answer with the fastest plan, whatever it looks like
fastest() {
    "$1/weft-search" -h | grep -q -- '--slack' && echo --slack 0
}
read -ra fastest_old < <(fastest "$old")
read -ra fastest_new < <(fastest "$new")
[ -z "${QUICK:-}" ] || EVERY=5
settings | awk -v e="${EVERY:-1}" -v f="${FIRST:-1}" -v w="${ONLY:-}" \
    'NR % e == f % e && index($0, w) { print NR, $0 }' >list
while read -r number line; do
    read -ra options < <(words "$new" "$line")
    key=$cache/$(md5sum <<<"$line" | cut -c1-12)
    if [ ! -e "$key.said" ]; then
        plans "$old"
        read -ra before < <(words "$old" "$line")
        answer "$old" "$key" "${before[@]}" "${fastest_old[@]}"
    fi
    read -r _ before <"$key.said"
    if [ -n "${QUICK:-}" ] && awk -v s="$before" 'BEGIN { exit s <= 1 }'; then continue; fi
    plans "$new"
    answer "$new" "$dir/new" "${options[@]}" "${fastest_new[@]}"
    read -r _ after <new.said
    said=$(verdict "$key" "$dir/new")
    [ "$said" = same ] && [ -z "${ALL:-}" ] ||
        printf '%-24s %6.2f s %6.2f s  %3d: %s\n' "$said" "$before" "$after" "$number" "$line"
    echo "${said%%[ :]*} $before $after" >>verdicts
done <list
awk '{ count[$1]++; before += $2; after += $3 }
    END { printf "%d searches: %d same, %d better, %d worse, %d other, %d bound alone, %d failed; %.1f s of processor time before, %.1f after\n",
              NR, count["same"], count["better"], count["worse"], count["other"], count["bound"],
              count["failed"], before, after
          exit count["worse"] + count["failed"] > 0 }' verdicts
