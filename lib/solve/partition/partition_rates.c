/* partition_rates.c - what devices can hold, as sums over items.
 *
 * Weigh a second of an accelerator with a, a second of a CPU with c, a byte of an
 * accelerator with m. An item needs at least
 *
 *     worth = min(a * accel + m * bytes, c * cpu),
 *
 * and A accelerators of M bytes and C CPUs below a limit T on loads hold at most
 * T * (a A + c C) + m A M. So T >= (sum of worth - m A M) / (a A + c C), for any weights.
 * This is a Lagrangian relaxation of where each item stands, and its best weights are the
 * duals of a linear program with three rows. Without m three rates c : a are good: the
 * greatest, the median and the least ratio accel : cpu. Where memory binds, the duals are
 * computed for the CPUs that there are and for two and four times as many, because CPUs
 * count for more when few items are left. After the last CPU, bytes alone are a bound too.
 *
 * Activations: a stage in place p (from the end) keeps min(micro-batches, p) of them. Items
 * that count F activations fill such a stage with at most M * max(1, F / min(.., p)) bytes.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static int double_order(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double item_bytes(const struct partition_core *c, int32_t i, double flight) {
    return c->size[i] + flight * c->act[i];
}

/* Returns the bytes that an accelerator in a place (from 1) holds at most when
 * activations count F times. */
static double place_bytes(const struct partition_core *c, int place, double flight) {
    return c->max_size * fmax(1, flight / fmin((double)c->micro_batches, place));
}

static bool known(const struct partition_core *c, const struct partition_rate *q) {
    for (int r = 0; r < c->rates; r++) {
        const struct partition_rate *o = &c->rate[r];
        if (o->accel_only == q->accel_only &&
            fabs(o->accel - q->accel) <= 1e-3 * q->accel &&
            fabs(o->cpu - q->cpu) <= 1e-3 * q->cpu &&
            fabs(o->size - q->size) <= 1e-3 * q->size)
            return true;
    }
    return false;
}

static double worth(const struct partition_core *c, const struct partition_rate *q,
                    int32_t i) {
    double accel = q->accel * c->accel[i];
    double cpu = q->cpu * c->cpu[i];
    if (q->size > 0)
        accel += q->size * item_bytes(c, i, q->flight);
    if (!c->cpus || q->accel_only)
        return accel;
    return c->supported[i] ? fmin(accel, cpu) : cpu;
}

/* Adds a rate with these weights unless there is a similar one. */
static void add_rate(struct partition_core *c, struct partition_rate q) {
    if (c->rates == PARTITION_RATES || known(c, &q))
        return;
    int places = c->accels + c->cpus;
    q.worth = mem_array((size_t)c->n + 1, sizeof *q.worth);
    q.room = mem_array((size_t)places + 1, sizeof *q.room);
    for (int32_t i = 0; i < c->n; i++) {
        q.worth[i] = worth(c, &q, i);
        q.total += q.worth[i];
    }
    for (int p = 1; p <= places; p++)
        q.room[p] = q.room[p - 1] + (q.size > 0 ? q.size * place_bytes(c, p, q.flight) : 0);
    q.slack = 2e-12 * (q.total + q.room[c->accels]);
    c->rate[c->rates++] = q;
}

/* ---- time alone ------------------------------------------------------------------ */

static void time_rates(struct partition_core *c) {
    double *ratio = mem_array((size_t)c->n + 1, sizeof *ratio);
    int32_t count = 0;
    for (int32_t i = 0; i < c->n; i++) {
        double x = c->accel[i] / c->cpu[i];
        if (c->supported[i] && c->accel[i] > 0 && c->cpu[i] > 0 && isfinite(x) && x > 0)
            ratio[count++] = x;
    }
    qsort(ratio, (size_t)count, sizeof *ratio, double_order);
    if (!count)
        ratio[count++] = 1;
    for (int i = 2; i >= 0; i--)
        add_rate(c, (struct partition_rate){.accel = 1, .cpu = ratio[i * (count - 1) / 2]});
    free(ratio);
}

/* ---- with memory ----------------------------------------------------------------- */

/* The weight of a byte up to which an item is better off on an accelerator. */
struct even {
    double weight, bytes;
};

static int even_order(const void *x, const void *y) {
    const struct even *a = x, *b = y;
    return a->weight > b->weight ? -1 : a->weight < b->weight;
}

/* Finds the best weight of a byte for given weights of seconds. Returns the bound that
 * they prove together, times the weighted devices. The bound rises with the weight while
 * the items that prefer accelerators do not fit on them. v: scratch, one per item. */
static double best_size_weight(const struct partition_core *c, struct partition_rate *q,
                               double room, struct even *v) {
    double value = 0, bytes = 0;
    int32_t count = 0, i = 0;
    for (int32_t x = 0; x < c->n; x++) {
        double accel = q->accel * c->accel[x], cpu = q->cpu * c->cpu[x];
        double need = item_bytes(c, x, q->flight);
        if (!c->supported[x] || accel >= cpu) {
            value += cpu;
            continue;
        }
        value += accel;
        if (need > 0)
            v[count++] = (struct even){(cpu - accel) / need, need};
    }
    qsort(v, (size_t)count, sizeof *v, even_order);
    while (i < count && bytes < room)
        bytes += v[i++].bytes;
    q->size = bytes < room ? 0 : v[i - 1].weight;
    for (int32_t x = 0; x < count; x++)
        value += v[x].bytes * fmin(q->size, v[x].weight);
    return value - q->size * room;
}

/* Finds the best weights for all items on the accelerators and so many CPUs, which may
 * be more than there are. The bound is concave in the fraction that seconds of
 * accelerators get, so a golden section finds the best. */
static struct partition_rate best_weights(const struct partition_core *c, double cpus,
                                          double flight, double room, struct even *v) {
    const double golden = 0.6180339887498949;
    struct partition_rate q[2] = {{.flight = flight}, {.flight = flight}};
    double lo = 0, hi = 1, value[2];
    for (int round = 0; round < 24; round++) {
        for (int i = 0; i < 2; i++) {
            double share = i ? lo + golden * (hi - lo) : hi - golden * (hi - lo);
            q[i].accel = share / c->accels;
            q[i].cpu = (1 - share) / cpus;
            value[i] = best_size_weight(c, &q[i], room, v);
        }
        *(value[0] < value[1] ? &lo : &hi) =
            value[0] < value[1] ? hi - golden * (hi - lo) : lo + golden * (hi - lo);
    }
    return q[value[0] < value[1]];
}

/* Returns how many activations to count so that items fill the greatest part of the
 * memory; *part is that part. */
static double best_flight(const struct partition_core *c, double *part) {
    double most = fmin((double)c->micro_batches, c->accels + c->cpus), best = 1;
    *part = 0;
    for (int doubled = 0; ldexp(1, doubled) <= most; doubled++) {
        double flight = ldexp(1, doubled);
        double need = 0, room = 0;
        for (int32_t i = 0; i < c->n; i++)
            need += item_bytes(c, i, flight);
        for (int p = 1; p <= c->accels; p++)
            room += place_bytes(c, p, flight);
        if (need > *part * room) {
            *part = need / room;
            best = flight;
        }
    }
    return best;
}

static void memory_rates(struct partition_core *c) {
    double part, room = 0;
    if (!c->accels || !(c->max_size < INFINITY))
        return;
    double flight = best_flight(c, &part);
    if (part <= 0.5)
        return; /* stages are checked one by one; together they have room enough */
    for (int p = 1; p <= c->accels; p++)
        room += place_bytes(c, p, flight);
    add_rate(
        c, (struct partition_rate){.size = 1, .flight = flight, .accel_only = c->cpus > 0});
    struct even *v = mem_array((size_t)c->n + 1, sizeof *v);
    for (double times = 1; c->cpus && times <= 4; times *= 2) {
        struct partition_rate q = best_weights(c, times * c->cpus, flight, room, v);
        if (q.size > 0)
            add_rate(c, q);
    }
    free(v);
}

void partition_rates_create(struct partition_core *c) {
    time_rates(c);
    memory_rates(c);
}

void partition_rates_release(struct partition_core *c) {
    for (int r = 0; r < c->rates; r++)
        free(c->rate[r].worth), free(c->rate[r].room);
}

/* ---- bounds ---------------------------------------------------------------------- */

double partition_rates_room(const struct partition_core *c, int r, double limit, int accels,
                            int cpus) {
    const struct partition_rate *q = &c->rate[r];
    if (q->accel_only && cpus)
        return INFINITY;
    int used = c->accels + c->cpus - accels - cpus;
    double power = q->accel * accels + q->cpu * cpus;
    return (power > 0 ? limit * power : 0) + (q->room[used + accels] - q->room[used]);
}

double partition_rates_bound(const struct partition_core *c, const double *left, int accels,
                             int cpus) {
    double bound = 0;
    for (int r = 0; r < c->rates; r++) {
        const struct partition_rate *q = &c->rate[r];
        if (left[r] <= q->slack || (q->accel_only && cpus))
            continue;
        double rest = left[r] - partition_rates_room(c, r, 0, accels, cpus);
        double power = q->accel * accels + q->cpu * cpus;
        if (q->size > 0) /* a difference of two large sums */
            rest -= q->slack;
        if (rest > q->slack)
            bound = fmax(bound, power > 0 ? rest / power : INFINITY);
    }
    return bound;
}

double partition_rates_least(const struct partition_core *c) {
    double total[PARTITION_RATES];
    for (int r = 0; r < c->rates; r++)
        total[r] = c->rate[r].total;
    return partition_rates_bound(c, total, c->accels, c->cpus);
}
