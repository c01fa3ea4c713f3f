#!/bin/sh
# A layout problem of 1.5 GB, of the contest's form and largest size (62,000 nodes, 93,000 edges, 36 to
# 44 strategies), through a pipe: what it takes to read, reduce and solve it. Blocks repeat, as layers
# do, so that only 600 matrices are different.
#   tests/bench/layout-large.sh [BIN_DIR [NODES [OPTIONS...]]]
# Without arguments: build/gcc/bin 62000 --time-budget 30s. Prints the table of weft-solve --text, in
# which memory is the peak; with BIN_DIR "-" the document itself.
set -u
bin=${1:-build/gcc/bin} nodes=${2:-62000}
if [ $# -gt 2 ]; then
    shift 2
else
    set -- --time-budget 30s
fi
document() {
    awk -v N="$nodes" 'BEGIN {
        srand(7)
        B = 400
        for (b = 0; b < B; b++) k[b] = 36 + int(9 * rand())
        printf "{\"problem\": {\"name\": \"large\", \"nodes\": {\"intervals\": ["
        for (i = 0; i < N; i++) printf "%s[%d, %d]", (i ? ", " : ""), i, i + 20 + i % 7
        printf "], \"costs\": ["
        for (b = 0; b < B; b++) { cost[b] = list(k[b], 1e6); usage[b] = list(k[b], 1e8) }
        for (i = 0; i < N; i++) printf "%s%s", (i ? ", " : ""), cost[i % B]
        printf "], \"usages\": ["
        for (i = 0; i < N; i++) printf "%s%s", (i ? ", " : ""), usage[i % B]
        printf "]}, \"edges\": {\"nodes\": ["
        for (i = 1; i < N; i++) {
            printf "%s[%d, %d]", (i > 1 ? ", " : ""), i - 1, i
            if (i % 2 == 0 && i >= B) printf ", [%d, %d]", i - B, i
        }
        printf "], \"costs\": ["
        for (b = 0; b < B; b++) {
            chain[b] = list(k[(b + B - 1) % B] * k[b], 1e8)
            if (b % 2 == 0) skip[b] = list(k[b] * k[b], 1e8)
        }
        for (i = 1; i < N; i++) {
            printf "%s%s", (i > 1 ? ", " : ""), chain[i % B]
            if (i % 2 == 0 && i >= B) printf ", %s", skip[i % B]
        }
        print "]}, \"usage_limit\": 1100000000}}"
    }
    function list(n, below, i, s) {
        for (i = 0; i < n; i++) s = s (i ? ", " : "[") int(below * rand())
        return s "]"
    }' </dev/null
}
if [ "$bin" = - ]; then
    document
else
    document | "$bin/weft-solve" layout --text "$@"
fi
