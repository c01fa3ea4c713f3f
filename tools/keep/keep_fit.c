/* A plan that needs more memory than there is: what takes it, and the smallest change that fits. Of one change to the plan,
 * smaller micro-batches, recomputation, ZeRO or offload, that costs the least time of those that fit, as weft-predict says;
 * where no single one does, weft-search is asked with that memory. Losses stay: the batch is the plan's. */
#include "checkpoint/ckptdir.h"
#include "common/json.h"
#include "common/progress.h"
#include "keep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HALVINGS = 20, OFFLOADS = 3, TEXT = 120 };
/* Of what a plan takes, that the next one may take, where the kernel killed it. */
static const double LESS = 0.8;

/* ---- what a plan needs --------------------------------------------------------------------- */

struct need {
    double bytes, us; /* of a rank; of a step, 0 = nobody knows */
    const char *most; /* the class of tensors that takes most, */
    double most_bytes;
};

static const char *const classes[] = {"parameters",  "gradients",   "optimizer",
                                      "activations", "temporaries", "workspace",
                                      "buffers"};

/* On a CPU the memory of the host is that of the device, too. */
static double bytes_of(const json_t *memory, bool gpu) {
    return json_number_value(json_object_get(memory, "total")) +
           (gpu ? 0 : json_number_value(json_object_get(memory, "host")));
}

/* Of the stage that takes most. Returns 0, or -1 where nothing can be predicted. */
static int predict(const struct keep *k, const struct plan_file *p, bool gpu,
                   struct need *out) {
    json_t *said = keep_prediction(k, p), *stage;
    size_t i;
    *out = (struct need){.us = json_number_value(json_object_get(said, "time_us"))};
    json_array_foreach(json_object_get(said, "stages"), i, stage) {
        const json_t *memory = json_object_get(stage, "memory");
        if (bytes_of(memory, gpu) <= out->bytes)
            continue;
        out->bytes = bytes_of(memory, gpu);
        out->most_bytes = 0;
        for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
            const double bytes = json_number_value(json_object_get(memory, classes[c]));
            if (bytes > out->most_bytes) {
                out->most = classes[c];
                out->most_bytes = bytes;
            }
        }
    }
    json_decref(said);
    return out->bytes > 0 ? 0 : -1;
}

/* What the message of a rank, or of a GPU, says that there is for one; 0 where it does not. */
static double bytes_told(const char *message, bool *gpu) {
    double own, all, has, more, free;
    const char *at = strstr(message, "one rank needs ");
    *gpu = !at && (at = strstr(message, "out of memory: "));
    if (*gpu &&
        sscanf(at, "out of memory: %lf GB more are planned; %lf of", &more, &free) == 2)
        return 1e9 * free;
    if (at &&
        sscanf(at, "one rank needs %lf GB and the ranks of this node %lf GB; it has %lf",
               &own, &all, &has) == 3)
        return 1e9 * own * has / all;
    return 0;
}

/* ---- one change ---------------------------------------------------------------------------- */

static void set_in_stages(json_t *plan, const char *key, json_t *value) {
    json_t *stage;
    size_t i;
    json_array_foreach(json_object_get(plan, "stages"), i, stage)
        json_object_set(stage, key, value);
    json_decref(value);
}

static bool halve(json_t *plan, int times, char *text) {
    const json_int_t batch = json_integer_value(json_object_get(plan, "batch")),
                     given = json_integer_value(json_object_get(plan, "micro_batch")),
                     was = given ? given : batch, size = was >> times;
    if (!size || size << times != was)
        return false;
    json_object_set_new(plan, "micro_batch", json_integer(size));
    snprintf(text, TEXT, "micro-batches of %lld in place of %lld", (long long)size,
             (long long)was);
    return true;
}

static bool offload(json_t *plan, int words, char *text) {
    static const char *const kept[OFFLOADS] = {"optimizer", "parameters", "activations"};
    json_t *list = json_array();
    int at = snprintf(text, TEXT, "offload of ");
    for (int i = 0; i < words; i++) {
        json_array_append_new(list, json_string(kept[i]));
        at += snprintf(text + at, TEXT - (size_t)at, "%s%s", i ? ", " : "", kept[i]);
    }
    set_in_stages(plan, "offload", list);
    return true;
}

/* The number-th change, the smaller ones first. Returns 1, 0 where the plan has no such, -1 behind the last. */
static int change(json_t *plan, int number, char *text) {
    static const char *const recompute[] = {"selective", "all"};
    if (number < HALVINGS)
        return halve(plan, number + 1, text);
    number -= HALVINGS;
    if (number < 2) {
        set_in_stages(plan, "recompute", json_string(recompute[number]));
        snprintf(text, TEXT, "recompute: %s", recompute[number]);
        return 1;
    }
    number -= 2;
    if (number < 3) {
        set_in_stages(plan, "zero", json_integer(number + 1));
        snprintf(text, TEXT, "ZeRO %d", number + 1);
        return 1;
    }
    number -= 3;
    return number < OFFLOADS ? offload(plan, number + 1, text) : -1;
}

/* ---- the one to take ----------------------------------------------------------------------- */

struct choice {
    struct need need;
    json_t *plan; /* NULL: none fits */
    char text[TEXT];
};

static void weigh(const struct keep *k, const struct plan_file *at, json_t *plan,
                  double limit, bool gpu, struct choice *best, const char *text) {
    struct need n;
    if (json_write_file(plan, at->path, NULL) < 0 || predict(k, at, gpu, &n) < 0 ||
        n.bytes > limit || (best->plan && n.us >= best->need.us))
        return;
    json_decref(best->plan);
    best->plan = json_incref(plan);
    best->need = n;
    snprintf(best->text, sizeof best->text, "%s", text);
}

/* The change that costs least; of those alike the first. */
static struct choice choose(const struct keep *k, const struct plan_file *from,
                            const struct plan_file *at, double limit, bool gpu) {
    struct choice best = {.plan = NULL};
    json_t *given = json_read(from->path, NULL);
    for (int i = 0, is = 1; given && is >= 0; i++) {
        char text[TEXT];
        json_t *plan = json_deep_copy(given);
        json_object_del(plan, "provenance"); /* is about another plan */
        if ((is = change(plan, i, text)) > 0)
            weigh(k, at, plan, limit, gpu, &best, text);
        json_decref(plan);
    }
    json_decref(given);
    return best;
}

static int take(struct keep *k, const struct plan_file *from, struct plan_file *made,
                const struct choice *best) {
    char name[64];
    if (!best->plan)
        return keep_make_plan(k, from->ranks, NULL, NULL);
    snprintf(name, sizeof name, "fits-%lld.json", (long long)from->ranks);
    made->path = ckpt_join(k->o.folder, name);
    made->made_for = from->ranks;
    return json_write_file(best->plan, made->path, NULL) < 0 ? -1
                                                             : keep_add_plan(k, made, NULL);
}

/* The most ranks that one host has. */
static int64_t most_ranks(const struct keep *k, int64_t ranks) {
    int64_t most = 1;
    for (int64_t i = 0; i < k->hosts.n; i++)
        most = k->hosts.p[i].count > most ? k->hosts.p[i].count : most;
    return most < ranks ? most : ranks;
}

static void tell(const struct keep *k, const char *text) {
    note("weft-keep: %s", text);
    journal_add(k->journal,
                &(struct event){.kind = EVENT_NOTE, .attempt = k->attempt, .text = text},
                NULL);
}

int keep_fit(struct keep *k, const struct plan_file *plan, const struct verdict *v) {
    const struct plan_file from = *plan; /* the list moves */
    struct plan_file made = {.speeds = from.speeds};
    struct need need;
    char text[700];
    bool gpu = false;
    double limit = bytes_told(v->line, &gpu);
    if (k->o.no_search || predict(k, &from, gpu, &need) < 0)
        return -1;
    if (!(limit > 0))
        limit = fmin(LESS * need.bytes,
                     keep_memory_limit() / (double)most_ranks(k, from.ranks));
    k->rank_bytes = limit;
    char *path = ckpt_join(k->shm, "change.json");
    struct choice best = choose(
        k, &from, &(struct plan_file){.path = path, .ranks = from.ranks}, limit, gpu);
    const int rc = take(k, &from, &made, &best);
    unlink(path);
    free(path);
    for (int64_t i = 0; rc == 0 && i < k->plans.n - 1; i++)
        k->plans.p[i].too_large |= k->plans.p[i].ranks == from.ranks;
    snprintf(text, sizeof text,
             "%.200s needs %.3f GB a rank, most of it (%.3f GB) for %s, and there are %.3f "
             "GB; what fits: %s",
             from.path, 1e-9 * need.bytes, 1e-9 * need.most_bytes, need.most, 1e-9 * limit,
             rc < 0      ? "nothing was found"
             : best.plan ? best.text
                         : "a plan that weft-search found");
    tell(k, text);
    json_decref(best.plan);
    return rc;
}
