/* A few rows instead of all: which to measure, given what a like device takes, and what the
 * others take then (cost/likeness.h). Estimates are written as rows too, whose source says
 * whose times they rest on, so that they serve whoever reads the profile; a measurement
 * takes their place. */
#include "profile-op.h"

#include "common/mem.h"
#include "cost/device_fit.h"
#include "cost/likeness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct probes {
    struct device_model *model; /* the like device's curves */
    struct device_model
        *sheet; /* of the device in question; NULL: nothing is known of it */
    struct profile_times *like, *from;
    struct likeness *likeness;
    double *given; /* by number in likeness: its time in `from`, 0 where that lacks it */
    bool *chosen;  /* by number: to be measured */
};

static struct profile_times *load(const char *path, const char *device, struct err *err) {
    struct profile *db = profile_open(path, false, err);
    struct profile_times *t = db ? profile_load(db, device, err) : NULL;
    profile_close(db);
    return t;
}

/* Of a kind that no shipped model describes the rows tell alone. */
static struct device_model *model_of(const struct profile_times *times) {
    static const struct chip any = {.multiprocessors = 1,
                                    .flops = {1e12, 1e12, 1e12},
                                    .bandwidth = 1e11,
                                    .cache_bytes = 1e6,
                                    .cache_bandwidth = 2e11};
    struct device_model *m = device_model_read(profile_times_device(times), NULL);
    struct device_fit fit;
    if (!m)
        m = device_model_plain(profile_times_device(times), &any);
    device_fit_init(&fit, times);
    device_fit_all(&fit, m);
    device_fit_release(&fit);
    return m;
}

struct probes *probes_open(const char *like, const char *from, const char *device,
                           struct err *err) {
    struct probes *p = mem_alloc(sizeof *p);
    p->like = load(like, NULL, err);
    if (p->like && from && !(p->from = load(from, device, err)))
        err_prefix(err, "--from");
    if (!p->like || (from && !p->from)) {
        probes_close(p);
        return NULL;
    }
    p->model = model_of(p->like);
    p->sheet = device_model_read(device, NULL);
    p->likeness = likeness_create(p->like, p->model, p->sheet ? &p->sheet->chip : NULL);
    return p;
}

void probes_close(struct probes *p) {
    if (!p)
        return;
    likeness_destroy(p->likeness);
    device_model_destroy(p->model);
    device_model_destroy(p->sheet);
    profile_times_destroy(p->like);
    profile_times_destroy(p->from);
    free(p->given);
    free(p->chosen);
    free(p);
}

bool probes_know_sheet(const struct probes *p) {
    return p->sheet;
}

/* ---- choosing ------------------------------------------------------------ */

static void tell(void *ctx, const struct instr_key *key, double us) {
    struct likeness *l = ctx;
    int64_t i = likeness_find(l, key);
    if (i >= 0)
        likeness_tell(l, i, us);
}

/* Rows of the database that stands for the device. */
static void take(void *ctx, const struct instr_key *key, double us) {
    struct probes *p = ctx;
    int64_t i = likeness_find(p->likeness, key);
    if (i >= 0)
        p->given[i] = us;
}

/* What the profile has of this device by now; it may have nothing. */
static void tell_known(struct probes *p, struct profile *db, const char *device) {
    struct profile_times *t = db ? profile_load(db, device, NULL) : NULL;
    if (t)
        profile_each_op(t, tell, p->likeness);
    profile_times_destroy(t);
}

int64_t probes_choose(struct probes *p, const struct enumeration *keys, const double *uses,
                      int64_t k, struct profile *known, const char *device) {
    for (int64_t i = 0; i < keys->n; i++)
        likeness_add(p->likeness, &keys->p[i], uses ? uses[i] : 1);
    int64_t n = likeness_count(p->likeness);
    p->given = mem_array((size_t)n + 1, sizeof *p->given);
    p->chosen = mem_array((size_t)n + 1, sizeof *p->chosen);
    tell_known(p, known, device);
    if (p->from)
        profile_each_op(p->from, take, p);
    for (int64_t i = 0; i < n && p->from; i++)
        if (p->given[i] <= 0)
            likeness_bar(p->likeness, i);
    int64_t *list = mem_array((size_t)k + 1, sizeof *list);
    int64_t found = likeness_choose(p->likeness, k, list);
    for (int64_t i = 0; i < found; i++)
        p->chosen[list[i]] = true;
    free(list);
    return found;
}

bool probes_wants(const struct probes *p, const struct instr_key *key) {
    int64_t i = likeness_find(p->likeness, key);
    return i >= 0 ? p->chosen[i] : !p->from;
}

double probes_given_us(const struct probes *p, const struct instr_key *key) {
    return p->given[likeness_find(p->likeness, key)];
}

/* ---- what the others take ------------------------------------------------ */

static int put_estimate(const struct probes *p, int64_t i, struct profile *db,
                        const char *device, struct err *err) {
    const struct instr_key *key = likeness_key(p->likeness, i);
    struct likely t = likeness_time(p->likeness, i);
    char shape[160], source[80];
    snprintf(source, sizeof source, PROFILE_ESTIMATED "%.64s",
             profile_times_device(p->like));
    struct profile_op row = {
        .device = device,
        .instr = opcode_name(key->code),
        .shape = instr_shape_format(key->code, &key->n, shape, sizeof shape),
        .dtype = dtype_name(key->dtype),
        .median_us = t.us,
        .spread = t.spread,
        .source = source};
    return profile_put_op(db, &row, err);
}

int64_t probes_put(struct probes *p, struct profile *db, const char *device,
                   struct err *err) {
    int64_t n = likeness_count(p->likeness), put = 0;
    tell_known(p, db, device);
    likeness_update(p->likeness);
    if (profile_begin(db, err) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (likeness_told(p->likeness, i))
            continue;
        if (put_estimate(p, i, db, device, err) < 0)
            return -1;
        put++;
    }
    return profile_commit(db, err) < 0 ? -1 : put;
}
