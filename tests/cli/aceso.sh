#!/usr/bin/env bash
# Searches over Aceso's profile database (weft-search --cost aceso:FOLDER): every configuration scored
# again by a script that knows nothing of weft, on tables made here and, with WEFT_DATA, the published ones.
# Needs: jq python3
set -u
. "$WEFT_ROOT/tests/cli/tap.bash"
here=$WEFT_ROOT/tests/aceso
export PYTHONDONTWRITEBYTECODE=1
n=0 failed=0

search() { # search FOLDER OPTIONS...: weft-search, its plan in out
    local folder=$1
    shift
    "$WEFT_BIN/weft-search" --cost "aceso:$folder" "$@" >out 2>err
}
# scored FOLDER PER_NODE MEMORY_MIB TEXT: out is as fast as err says, and fits
scored() {
    python3 "$here/score.py" "$1" out --per-node "$2" >score 2>>err &&
        jq -e --argjson said "$(sed -n 's/.*a step takes \([0-9.]*\) ms.*/\1/p' err)" \
            --argjson most "$3" '((.time_ms - $said) | fabs) < 0.001 and (.memory_mb | max) <= $most' \
            score >>err
    ok $? "$4: $(jq '.time_ms * 1000 | round / 1000' score) ms"
}
time_of() { jq .time_ms score; }

# ---- tables of our own ------------------------------------------------------------------

"$here/tables.sh" "$here/gpt.csv" db gpt_tiny "1 2 4" 4
small=(-m gpt:tiny --set layers=6 --devices 4 --memory 3600M -b 64)
search db "${small[@]}"
scored db 4 3600 "as fast as it says, and fits"
search db "${small[@]}" -a dp
cmp -s out <("$WEFT_BIN/weft-search" -q --cost aceso:db "${small[@]}")
ok $? "dp is the algorithm that there is"
search db "${small[@]}" --memory 60G
scored db 4 61440 "with much memory"
search db "${small[@]}" --max-stages 1
is "$(jq .num_stages out)" 1 "--max-stages"
search db -m gpt:tiny --set layers=5 --cluster "node:8 gpu:4" --memory 8000M -b 4096 --micro-batch 1 --max-stages 40
is "$(jq .num_stages out)" 16 "--max-stages 40: no more than the 16 of Aceso's own search"

search db "${small[@]}"
cp out first
search db "${small[@]}"
cmp -s first out
ok $? "the same command gives the same bytes"
search db "${small[@]}" --top 3
jq -s -e 'length > 1 and length <= 3 and (unique | length) == length' out >>err
ok $? "--top 3"
search db "${small[@]}" --text
is "$(grep -c '^  stage' out)" "$(jq '.num_stages' first)" "--text has a line for each stage"

# ---- --pareto ------------------------------------------------------------------------------

search db "${small[@]}"
scored db 4 3600 "without"
fastest=$(time_of)
search db "${small[@]}" --pareto
is "$?" 0 "--pareto"
mv out front
jq -s -e --argjson t "$fastest" 'length >= 3 and ([.[].time] | . == sort) and
    ([.[].memory] | . == (sort | reverse)) and (.[0].time * 1000 - $t | fabs < 0.001) and
    all(.[]; .words | startswith("pp "))' front >/dev/null
ok $? "$(wc -l <front) configurations, none both slower and larger than another, the first as without"
bad=0
while read -r line; do
    jq -c .plan <<<"$line" >out
    python3 "$here/score.py" db out --per-node 4 >score 2>>err &&
        jq -e --argjson said "$line" '((.time_ms - $said.time * 1000) | fabs) < 0.001 and
            ((.memory_mb | max) - $said.memory / 1048576 | fabs) < 0.001' score >/dev/null || bad=$((bad + 1))
done <front
is "$bad" 0 "each as fast and as large as it says"

# ---- --explain -----------------------------------------------------------------------------

line() { # line WHAT: time, ratio and words of that line
    awk -v w="$1" 'index($0, w " ") == 1 { $0 = substr($0, length(w) + 1); $1 = $1; print }' why
}
seconds_of() { # seconds_of OPTIONS...: of that search, as weft-search prints it
    search db "${small[@]}" "$@" --text
    sed -n 's/^plan 1: a step takes \([0-9.]* [a-z]*\),.*/\1/p' out
}
search db "${small[@]}" --explain
is "$?" 0 "--explain"
mv out why
grep -q '^time    stage [0-9]* sets the pace: computes [0-9.]* % of the step' why &&
    grep -q '^memory  stage [0-9]* is fullest: [0-9.]* GiB of [0-9.]* GiB$' why
ok $? "what bounds it: $(head -1 why)"
plan=$(line 'this plan')
is "$(cut -d' ' -f1-3 <<<"$plan")" "$(seconds_of) 1.000" "this plan"
is "$(line 'with any memory' | cut -d' ' -f1-2)" "$(seconds_of --memory 600G)" "and so does any memory"
micro=$(sed 's/.*micro-batch //' <<<"$plan")
other=$((micro > 1 ? micro / 2 : 2))
is "$(line "micro-batch $other" | cut -d' ' -f1-2)" "$(seconds_of --micro-batch $other)" "another micro-batch"
grep -q '^stages [0-9]' why && grep '^stages [0-9]' why | awk '{ n = $2; sub(/.* pp /, ""); bad += $1 + 0 != n }
    END { exit bad }'
ok $? "pinned stages are those of the plan: $(grep -m1 '^stages' why)"
grep -q '^tp [0-9]' why && grep '^tp [0-9]' why | awk '{ n = $2; sub(/.* tp /, ""); bad += $1 + 0 != n } END { exit bad }'
ok $? "and pinned tensor parallelism: $(grep -m1 '^tp' why)"
grep '^recompute none' why | grep -qE ' 0 ops marked|no plan fits'
ok $? "nothing computed again: $(grep '^recompute none' why)"
marked() { sed -n "s/^$1 .* \([0-9]*\) ops marked.*/\1/p" why; }
[ "$(marked 'recompute all')" -gt "$(marked 'this plan')" ]
ok $? "all that can be: $(grep '^recompute all' why)"
grep -qE '^(binds|free)    ?the limit of memory: ' why && grep -qE '^next  ' why
ok $? "what binds, and what is next: $(tail -1 why)"

echo "1,2,4,8
0.9,1,1.1,1.2" >db/p2p_inter_node.csv
search db -m gpt:tiny --set layers=8 --cluster "node:2 gpu:4" --memory 3200M -b 64
scored db 4 3200 "two nodes, slow links between them"
is "$(jq '.num_gpus | add' out)" 8 "all devices"
rm db/p2p_inter_node.csv

# ---- against all configurations ------------------------------------------------------------

python3 "$here/best.py" "$WEFT_BIN/weft-search" 6 >best 2>err
ok $? "the best of all configurations of six random chains, and no bound above it"
is "$(awk '$3 != "None"' best | wc -l)" 4 "of which some fit"

# ---- larger machines ---------------------------------------------------------------------

"$here/tables.sh" "$here/gpt.csv" large gpt_13B "1 2 4 8" 8
"$here/tables.sh" "$here/gpt.csv" large gpt_scale-layer "1 2 4 8" 8
echo "1,2,4,8
3,3.5,4,5" >large/p2p_inter_node.csv
if of_today 0 2; then
    search large -m gpt:13B --cluster "node:4 gpu:8" --memory 4000M -b 1024
    scored large 8 4000 "40 layers on 32 devices"
fi
if of_today 1 8; then
    search large -m gpt:scale-layer --set layers=256 --devices 8 --memory 90G -b 1024
    scored large 8 92160 "256 layers on 8"
fi

# ---- what cannot be ---------------------------------------------------------------------

refused() { # refused STATUS WORDS TEXT OPTIONS...
    local status=$1 words=$2 text=$3
    shift 3
    "$WEFT_BIN/weft-search" -q "$@" >out 2>err
    is "$?" "$status" "$text"
    grep -q -- "$words" err && [ ! -s out ]
    ok $? "... and the message says \"$words\""
}
refused 1 "no plan fits in 500.0 MiB.*needs" "too little memory" --cost aceso:db "${small[@]}" --memory 500M
refused 2 "expected aceso:FOLDER" "another source" --cost alpa:db "${small[@]}"
refused 3 "no tables gpt_3B" "a model that is not there" --cost aceso:db "${small[@]}" -m gpt:3B
refused 3 "cannot be read" "a folder that is not there" --cost aceso:nowhere "${small[@]}"
refused 3 "Aceso's tables are of" "another family" --cost aceso:db "${small[@]}" -m mlp:wide
for option in "--schedule gpipe" "--zero 1" "--zero 3" "--optimizer sgd" "--dtype bf16" "--seed 1" "--threads 2" \
    "--gap 1%" "--slack 0" "--max-hops 2" "--pin pins.json" "--from plan.json" "-p profile.db" "--device cpu" \
    --datasheets --all-devices --as-listed --no-overlap --no-offload "--verify plan.json"; do
    # shellcheck disable=SC2086
    refused 2 "with --cost: unknown option" "$option" --cost aceso:db "${small[@]}" $option
done
refused 2 "there is dp" "another algorithm" --cost aceso:db "${small[@]}" -a hops
cp -r db broken
sed -i '3s/,[^,]*$/,much/' broken/gpt_tiny_mbs1_tp1_algo0.csv
refused 3 'line 3: expected a number, got "much"' "a word for a number" --cost aceso:broken "${small[@]}"
sed -i '3s/,[^,]*$//' broken/gpt_tiny_mbs1_tp1_algo0.csv
refused 3 "line 3: expected 9 columns, got 8" "a column too few" --cost aceso:broken "${small[@]}"
sed -i 3d broken/gpt_tiny_mbs1_tp1_algo0.csv
refused 3 "is not in the other tables" "an op too few" --cost aceso:broken "${small[@]}"

# ---- the published tables --------------------------------------------------------------------

published=${WEFT_DATA:-}/aceso/small
if [ -d "$published" ]; then
    # model, batch, micro-batches, milliseconds that are to be reached
    while read -r model batch micro most; do
        search "$published" -m "$model" --devices 4 --memory 12000M -b "$batch" --micro-batch "$micro"
        scored "$published" 4 12000 "$model"
        jq -e --argjson most "$most" '.time_ms <= $most' score >/dev/null
        ok $? "... within $most ms"
    done <<'END'
gpt:1.3B 512 1,2,4,8 57820
t5:770M 512 1,2,4,8 33350
wide-resnet:1B 768 16,32,48,64 16430
END
else
    skip "the published tables" "WEFT_DATA has none"
fi

echo "1..$n"
exit $((failed > 0))
