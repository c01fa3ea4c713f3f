/* partition_ban.c - costs that say "never".
 *
 * Sort all costs: where the next one is a thousand times the sum of those below it, whatever
 * pays none of those above costs at most that sum, and whatever pays one costs more. So if
 * there is a solution that pays none, the optimum pays none, and neither those numbers nor
 * the edges need to be looked at again (partition_core.c joins their ends). This is exact for
 * any factor above 1; a thousand keeps sums to twelve digits where nothing is banned.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static const double jump = 1000;

struct cost {
    double one, all; /* of one payment; of all that a solution can make of it */
};

static int cost_order(const void *x, const void *y) {
    const struct cost *a = x, *b = y;
    return a->one < b->one ? -1 : a->one > b->one;
}

/* Lists every latency and tensor cost that the goal counts; what is paid in any case is
 * left out. */
static int32_t list_costs(const struct partition_problem *p, struct cost *v, double *sure) {
    bool bytes = p->goal == PARTITION_BYTES;
    int32_t *readers = mem_array((size_t)p->n + 1, sizeof *readers), count = 0;
    *sure = 0;
    for (int32_t i = 0; i < p->m; i++)
        readers[p->edges[i].from]++;
    for (int32_t i = 0; i < p->n; i++) {
        const struct partition_node *node = &p->nodes[i];
        double accel = p->accels && node->supported ? node->accel_s : INFINITY;
        double cpu = p->cpus ? node->cpu_s : INFINITY;
        double send = bytes ? node->bytes : node->send_s;
        if (readers[i])
            v[count++] = (struct cost){send, bytes ? send * readers[i] : send};
        if (bytes)
            continue;
        *sure += isfinite(fmin(accel, cpu)) ? fmin(accel, cpu) : 0;
        if (isfinite(accel))
            v[count++] = (struct cost){accel, accel};
        if (isfinite(cpu))
            v[count++] = (struct cost){cpu, cpu};
    }
    *sure /= fmax(1, p->accels + p->cpus);
    free(readers);
    return count;
}

int partition_bans(const struct partition_problem *p, struct partition_ban *bans, int max) {
    struct cost *v = mem_array(3 * (size_t)p->n + 1, sizeof *v);
    double sure, sum = 0;
    int32_t count = list_costs(p, v, &sure);
    int found = 0;
    qsort(v, (size_t)count, sizeof *v, cost_order);
    for (int32_t i = 0; i < count && found < max; i++) {
        if (v[i].one > jump * sum && sum >= sure && sum > 0)
            bans[found++] = (struct partition_ban){v[i].one, sum};
        sum += v[i].all;
    }
    free(v);
    return found;
}
