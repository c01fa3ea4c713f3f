#!/usr/bin/env bash
# A small database in Aceso's format, out of one table of ops with nothing split and one sample:
#   tables.sh OPS.csv FOLDER NAME "MICRO-BATCHES" MOST_TP
# More samples take longer and more room, devices share both, with a price for talking; algorithm 1
# is a little worse or better. Nothing is random, so it is the same everywhere.
set -eu
ops=$1 dir=$2 name=$3 most_tp=$5
mkdir -p "$dir"
for mbs in $4; do
    for ((tp = 1; tp <= most_tp; tp *= 2)); do
        for algo in 0 1; do
            awk -F, -v OFS=, -v m="$mbs" -v t="$tp" -v a="$algo" '
                NR == 1 { print; next }
                {
                    noise = 1 + ((NR * 37 + m * 11 + t * 7 + a * 23) % 17 - 8) / 100
                    split_up = $6 > 0 || $1 ~ /score|softmax|attention-dropout|context|gelu/
                    share = split_up ? 1 / t : 1
                    talk = $6 > 0 && t > 1 ? 60 * $5 * m * (t - 1) / t : 0
                    for (i = 2; i <= 3; i++)
                        $i = sprintf("%.3f", ($i * (m * 0.9 + 0.1) * share + talk / 2) * noise)
                    for (i = 4; i <= 9; i++)
                        $i = sprintf("%.3f", $i * (i == 6 ? 1 : m) * (i == 4 || i == 5 ? 1 : share))
                    print
                }' "$ops" >"$dir/${name}_mbs${mbs}_tp${tp}_algo$algo.csv"
        done
    done
done
for ((n = 2; n <= most_tp; n *= 2)); do
    for prim in all_gather all_reduce reduce_scatter all_to_all; do
        awk -v n="$n" 'BEGIN { print "data_size(MB),time(ms)"
            for (i = 0; i < 1024; i++) printf "%d,%.3f\n", i, 0.05 + 0.1 * i * (n - 1) / n }' \
            >"$dir/prim_${name}_${prim}_${n}gpus.csv"
    done
done
echo "1,2,4,8,16,32,64,128,256,512,1024
7.5,8.2,10.1,10.5,10.8,10.9,11,11,11,11,11" >"$dir/p2p_intra_node.csv"
