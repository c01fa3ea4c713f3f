#!/usr/bin/env bash
# Schedules against the papers: the table of scripts/bubbles.sh, and that the waits are ordered as the
# formulas say. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq
set -u
# shellcheck source=/dev/null
. "$(dirname "$0")/tap.bash"
n=0 failed=0

bash "${WEFT_ROOT:?}/scripts/bubbles.sh" "${WEFT_BIN:?}" >table 2>err
ok $? 'the table is made'
is "$(sed 1d table | wc -l)" 40 'rows: 4 and 8 groups, four numbers of micro-batches, five schedules'

each() { # each CONDITION TEXT: of p m schedule waits formula holds paper, and waits of the others
    awk "NR > 1 { p = \$1; m = \$2; name = \$3; waits = \$4; formula = \$5; holds = \$6; paper = \$7
                  w[p, m, name] = waits; seen[p, m] = 1
                  if (!($1)) { print; bad = 1 } }
         END { exit bad }" table >out
    ok $? "$2"
}
order() { # order A B: A waits no longer than B
    awk -v a="$1" -v b="$2" 'NR > 1 { w[$1, $2, $3] = $4; seen[$1 SUBSEP $2] = 1 }
        END { for (k in seen) { n++; if (w[k, a] > w[k, b] + 0.02) { print k; bad = 1 } }
              exit bad || n != 8 }' table >out
    ok $? "$1 waits no longer than $2"
}

each 'waits > 0.998 * formula - 0.01 && waits < 1.002 * formula + 0.01' 'every wait is that of its formula'
order zero-bubble interleaved-2
order interleaved-2 1f1b
order 1f1b gpipe
order interleaved-4 zero-bubble # (F + B - W) is more than a fourth of all three
# Kept in the last stage as well: what the loss reads.
each 'name != "gpipe" || (holds >= paper && holds < 1.04 * paper)' 'gpipe keeps all micro-batches'
each 'name != "1f1b" || holds == paper' '1f1b keeps as many as there are stages'
# Gradients wait with the activations that the weights' are made of.
each 'name != "zero-bubble" || (holds > paper && holds < paper + 0.75)' 'zero-bubble a little more'
# Every chunk has slots of its own, as many as it holds at its fullest.
each 'name !~ /interleaved/ || (holds >= (m < paper ? m : p) && holds <= 1.5 * p)' \
    'interleaved half as many more at most'

echo "1..$n"
[ $failed -eq 0 ]
