/* given.h - trials (unit/trial.h) on a device: their memory goes up and comes down, and instructions are recorded one
 * behind the other and replayed.
 *
 *     struct cuda_given g;
 *     int rc = given_up(&at, &trial, -1, &g, &err);
 *     if (rc == 0) rc = given_replay(at.stream, &g, 1, &err);
 *     if (rc == 0) rc = given_down(&at, &trial, -1, &g, &err);
 *     given_release(&at, &trial, -1, &g);
 */
#ifndef WEFT_TESTS_GIVEN_H
#define WEFT_TESTS_GIVEN_H

#include "../unit/trial_pair.h"
#include "cuda/cuda.h"

/* Where it runs; borrowed. */
struct given_at {
    struct device *dev;
    struct device_stream *stream;
};

/* ---- memory ------------------------------------------------------------------------------- */

/* HOST operands lie in memory of the host that the device reads by itself. */
static bool given_is_host(const struct operand_info *o) {
    return o && o->flags & OPERAND_HOST;
}

/* *to stays NULL where there are no bytes. Returns 0 or -1; o: NULL, or the operand. */
static int given_copy_up(const struct given_at *at, const struct operand_info *o, void **to,
                         const void *from, int64_t bytes, struct err *err) {
    if (!bytes)
        return 0;
    *to = given_is_host(o) ? device_alloc_host(at->dev, bytes, err)
                           : device_alloc(at->dev, bytes, err);
    if (!*to)
        return -1;
    if (!given_is_host(o))
        return device_upload(at->stream, *to, from, bytes, err);
    memcpy(*to, from, (size_t)bytes);
    return 0;
}

static int given_copy_down(const struct given_at *at, const struct operand_info *o,
                           void *to, const void *from, int64_t bytes, struct err *err) {
    if (!bytes)
        return 0;
    if (!given_is_host(o))
        return device_download(at->stream, to, from, bytes, err);
    memcpy(to, from, (size_t)bytes);
    return 0;
}

static void given_free(const struct given_at *at, const struct operand_info *o, void *p) {
    if (given_is_host(o))
        device_free_host(at->dev, p);
    else
        device_free(at->dev, p);
}

/* The trial as it is launched there. Operand `between` is not the trial's: g->in has it already, all else in *g is
 * written. To be released in either case. */
static int given_up(const struct given_at *at, const struct trial *t, int between,
                    struct cuda_given *g, struct err *err) {
    void *taken = between >= 0 ? g->in.v[between] : NULL, *now = NULL, *factor = NULL;
    *g = (struct cuda_given){.code = t->code, .n = t->n, .args = t->args};
    if (between >= 0)
        g->in.v[between] = taken;
    int rc = given_copy_up(at, NULL, &now, &t->now, sizeof t->now, err);
    if (rc == 0)
        rc = given_copy_up(at, NULL, &factor, &t->per_target, sizeof t->per_target, err);
    g->args.scalars = now;
    g->args.per_target = factor;
    for (int k = 0; k < t->info->n_in && rc == 0; k++)
        if (k != between)
            rc = given_copy_up(at, &t->info->in[k], &g->in.v[k], t->in[k],
                               trial_in_bytes(t, k), err);
    if (t->over >= 0)
        g->out.v[0] = g->in.v[t->over];
    for (int k = t->over >= 0; k < t->info->n_out && rc == 0; k++)
        rc = given_copy_up(at, &t->info->out[k], &g->out.v[k], t->out[k],
                           trial_out_bytes(t, k), err);
    return rc;
}

/* Operands too: a test may want to see that they are what they were. */
static int given_down(const struct given_at *at, struct trial *t, int between,
                      const struct cuda_given *g, struct err *err) {
    int rc = given_copy_down(at, NULL, &t->now, g->args.scalars, sizeof t->now, err);
    for (int k = 0; k < t->info->n_in && rc == 0; k++)
        if (k != between)
            rc = given_copy_down(at, &t->info->in[k], t->in[k], g->in.v[k],
                                 trial_in_bytes(t, k), err);
    for (int k = 0; k < t->info->n_out && rc == 0; k++)
        rc = given_copy_down(at, &t->info->out[k], t->out[k], g->out.v[k],
                             trial_out_bytes(t, k), err);
    return rc;
}

static void given_release(const struct given_at *at, const struct trial *t, int between,
                          struct cuda_given *g) {
    for (int k = t->over >= 0; k < t->info->n_out; k++)
        given_free(at, &t->info->out[k], g->out.v[k]);
    for (int k = 0; k < t->info->n_in; k++)
        if (k != between)
            given_free(at, &t->info->in[k], g->in.v[k]);
    given_free(at, NULL, (void *)(uintptr_t)g->args.scalars);
    given_free(at, NULL, (void *)(uintptr_t)g->args.per_target);
}

/* ---- running ------------------------------------------------------------------------------ */

static int given_launch(struct device_stream *s, const struct cuda_given *g,
                        struct err *err) {
    return device_launch(s, g->code, &g->n, &g->in, &g->out, &g->args, err);
}

/* In one captured region, which is replayed once and waited for. Returns 0 or -1. */
static int given_replay(struct device_stream *s, const struct cuda_given *g, int n,
                        struct err *err) {
    if (device_capture_begin(s, err) < 0)
        return -1;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = given_launch(s, &g[i], err);
    struct device_region *r = device_capture_end(s, rc < 0 ? NULL : err);
    if (rc == 0)
        rc = r ? device_replay(r, s, err) : -1;
    if (rc == 0)
        rc = device_synchronize(s, err);
    device_region_destroy(r);
    return rc;
}

/* How two instructions, of which the second has the first's result, run. */
enum given_how {
    GIVEN_PAIR, /* as a captured region takes them (cuda_launch_pair) */
    GIVEN_CAPTURED,
    GIVEN_APART /* recorded with something between them */
};

/* Of GIVEN_PAIR 1 where it was one call, else 0; or -1. */
static int given_run_pair(const struct given_at *at, const struct cuda_given both[2],
                          enum given_how how, struct err *err) {
    struct cuda_given all[] = {
        both[0], {.code = I_fill, .n = {.fill = {.elems = 1}}}, both[1]};
    if (how == GIVEN_PAIR)
        return cuda_launch_pair(at->stream, &both[0], &both[1], err);
    if (how == GIVEN_CAPTURED)
        return given_replay(at->stream, both, 2, err);
    if (!(all[1].out.fill.y = device_alloc(at->dev, sizeof(float), err)))
        return -1;
    const int rc = given_replay(at->stream, all, 3, err);
    device_free(at->dev, all[1].out.fill.y);
    return rc;
}

/* A whole pair: up, run, and down. As given_run_pair(). */
static int given_pair(const struct given_at *at, struct trial_pair *p, enum given_how how,
                      struct err *err) {
    struct cuda_given both[2] = {{.code = p->first.code}, {.code = p->second.code}};
    int in_one = -1, rc = given_up(at, &p->first, -1, &both[0], err);
    both[1].in.v[p->between] = both[0].out.v[0];
    if (rc == 0)
        rc = given_up(at, &p->second, p->between, &both[1], err);
    if (rc == 0)
        rc = in_one = given_run_pair(at, both, how, err);
    if (rc >= 0)
        rc = given_down(at, &p->first, -1, &both[0], err);
    if (rc == 0)
        rc = given_down(at, &p->second, p->between, &both[1], err);
    given_release(at, &p->second, p->between, &both[1]);
    given_release(at, &p->first, -1, &both[0]);
    return rc < 0 ? -1 : in_one;
}

#endif
