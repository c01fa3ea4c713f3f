#!/usr/bin/env bash
# The pictures that are computed (make plots): what is drawn is what weft-predict said. Prints TAP;
# the programs are in $WEFT_BIN, the sources in $WEFT_ROOT.
# Needs: gnuplot jq
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

bash "${WEFT_ROOT:?}/scripts/plots.sh" "${WEFT_BIN:?}" . computed >out 2>err
is $? 0 'scripts/plots.sh'
[ ! -s err ]
ok $? 'without a warning of gnuplot'
for rank in 0 1 2 3; do
    is "$(awk -v r=$rank '$1 == r && $2 != "U" { n[$2 " " $3]++ }
        END { for (k in n) all += n[k] == 1; print all + 0 }' timeline.tsv)" 16 \
        "rank $rank: forward and backward of 8 micro-batches, once each"
    is "$(awk -v r=$rank '$1 == r && $3 > m { m = $3 } END { printf "%.3f", m }' memory.tsv)" \
        "$(jq ".stages[$rank].memory.total / pow(2; 30)" pipeline.predicted | awk '{ printf "%.3f", $1 }')" \
        "rank $rank: the peak is the memory that is predicted, in GiB"
done
is "$(awk '$5 > m { m = $5 } END { printf "%.0f", m }' timeline.tsv)" \
    "$(jq '.time_us / 1000' pipeline.predicted | awk '{ printf "%.0f", $1 }')" \
    'the timeline is as long as the step, in ms'
is "$(awk '$3 > m { m = $3 } END { printf "%.2f", m }' waterfall.tsv)" "$(jq .time 13b.predicted | xargs printf %.2f)" \
    'the waterfall ends with the step'
for file in timeline memory waterfall; do
    grep -q '</svg>' $file.svg && [ "$(grep -c '<path' $file.svg)" -gt 8 ]
    ok $? "$file.svg is drawn"
done

echo "1..$n"
[ $failed -eq 0 ]
