#!/usr/bin/env bash
# Schedules against the papers: the table of scripts/bubbles.sh, and that the waits are ordered as the
# formulas say; what running further ahead gains on slow links. Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun
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

# On slow links 1f1b waits for messages that pass meanwhile under eager-1f1b, for more memory.
bin=$(cd "$WEFT_BIN" && pwd)
cat >slow.json <<'END'
{"format": "weft-cluster/1", "nodes": 4, "devices_per_node": 1, "device": "slow-links", "memory": "80G",
 "flops": {"f32": 19e12, "bf16": 15e13}, "bandwidth": 15e11, "latency_us": 5,
 "links": [{"level": "node", "bandwidth": 5e9, "latency_us": 5},
           {"level": "cross", "bandwidth": 125e7, "latency_us": 30}]}
END
size=(-m gpt:1.3B --set "layers=32,vocab=64" -b 64 --dtype bf16 --cluster slow.json)
for schedule in 1f1b eager-1f1b; do
    "$bin/weft-plan" -q "${size[@]}" --pp 4 --micro-batch 2 --schedule $schedule | "$bin/weft-predict" -q - >$schedule.json
    "$bin/weft-plan" -q -m gpt:nano --set layers=4,hidden=64,heads=4,seq=64 --pp 4 -b 16 --micro-batch 2 --schedule $schedule >small.json
    mpirun --oversubscribe -n 4 "$bin/weft-run" -q --threads 1 --steps 3 small.json 2>err |
        jq -c '[.step, .loss, .grad_norm]' >$schedule.losses
done
jq -ne --slurpfile a 1f1b.json --slurpfile b eager-1f1b.json '($a[0].time_us / $b[0].time_us) | . > 1.015 and . < 1.05' >out
ok $? 'eager-1f1b is faster on slow links by some 2 %'
jq -ne --slurpfile a 1f1b.json --slurpfile b eager-1f1b.json '
    [$b[0], $a[0] | .stages[0].memory.activations] | .[0] / .[1] | . > 1.7 and . < 1.8' >out
ok $? 'and keeps 7 micro-batches instead of 4'
"$bin/weft-search" -q "${size[@]}" --micro-batch 2 --zero 0 --slack 0 --schedule 1f1b,eager-1f1b >found.json 2>err
is "$(jq -r .schedule found.json)" eager-1f1b 'the search chooses it there'
[ "$(wc -l <1f1b.losses)" -eq 3 ] && cmp 1f1b.losses eager-1f1b.losses >out
ok $? 'losses and gradients have the same bits'

echo "1..$n"
[ $failed -eq 0 ]
