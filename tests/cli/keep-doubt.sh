#!/usr/bin/env bash
# A machine that computes wrong: under a plan whose gradients are not just averaged the others go on without it, the metrics
# and weft-keep name its rank and its host, and the checks before the next attempt leave it out.
# Prints TAP; the programs are in $WEFT_BIN.
# Needs: jq mpirun cc nm pgrep pkill setsid
set -u
# shellcheck source=tests/cli/tap.bash
. "$(dirname "$0")/tap.bash"
# shellcheck source=tests/cli/keep-hosts.bash
. "$(dirname "$0")/keep-hosts.bash"

# Products of rank 1 are minus ten times what they should be, whichever library does them.
cat >wrong.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int is_wrong(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank && !strcmp(rank, "1");
}
static void spoil(float *c, long rows, long columns, long stride) {
    for (long i = 0; is_wrong() && i < rows; i++)
        for (long j = 0; j < columns; j++)
            c[i * stride + j] *= -10;
}
typedef int dnnl_t(char, char, long, long, long, float, const float *, long, const float *, long, float, float *, long);
int dnnl_sgemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda, const float *b, long ldb,
               float beta, float *c, long ldc) {
    dnnl_t *real = (dnnl_t *)dlsym(RTLD_NEXT, "dnnl_sgemm");
    int rc = real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    spoil(c, m, n, ldc);
    return rc;
}
typedef void cblas_t(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc) {
    cblas_t *real = (cblas_t *)dlsym(RTLD_NEXT, "cblas_sgemm");
    real(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    spoil(c, order == 101 ? m : n, order == 101 ? n : m, ldc);
}
END
nm -D "$bin/weft-run" | grep -qE ' U (dnnl_sgemm|cblas_sgemm)' ||
    skip_rest 'a machine that computes wrong' 'products are not of a library'
cc -shared -fPIC -o wrong.so wrong.c -ldl
jq '.aggregate = "median"' three.json >median.json

# ---- one machine -------------------------------------------------------------------------------------
spoilt=("$bin/weft-run" -q --threads 1 -n 40)
mpirun -n 3 -x LD_PRELOAD="$PWD/wrong.so" "${spoilt[@]}" median.json >lines 2>err
is "$? $(jq -cs '.[-1].suspects | keys' lines)" '0 ["1"]' 'metrics name the rank'
jq -es '.[-1].suspects["1"] > 0.5 and .[-1].loss < .[0].loss and all(.[]; .suspects // {} | has("0") or has("2") | not)' lines >/dev/null
ok $? "which nobody confirms in $(jq -s '.[-1].suspects["1"]' lines), no other, and the loss falls without it"

# ---- a host ------------------------------------------------------------------------------------------
: >lines
: >said
sed -i "2i [ \"\$1\" != 127.0.0.3 ] || export LD_PRELOAD=$PWD/wrong.so" agent
"$bin/weft-keep" --peers 1 --checks --retry 10m --no-search \
    -H 127.0.0.2:1,127.0.0.3:1,127.0.0.4:1 --plans two.json -- "${run[@]}" -n 1000000 --memory-every 1 --save ck median.json \
    >>lines 2>>said </dev/null &
pid=$!
says 'gradients of rank 1 on 127.0.0.3 are unlike those of its replicas'
further 3
kill -KILL "$(pgrep -n -s "$(paste -sd, sessions.127.0.0.4)" weft-run)"
says 'host 127.0.0.3 is left out: gradients of its ranks were unlike those of their replicas'
further 3
kill -TERM $pid
wait $pid
is $? 5 'and the run goes on without it'

echo "1..$n"
[ "$failed" -eq 0 ]
