/* Which operands of an instruction have left the caches when its turn comes, read off programs.
 *
 * A program is walked as the executor runs it, place by place of the arena: every instruction adds the
 * bytes that it touches to a clock, and a place is cold when more went by since it was last touched
 * than a core's caches hold. So results that are kept for the backward pass are cold, for their
 * places were last touched a micro-batch ago, and so is what reads them there; a residual that was
 * just made is not. An instruction that is wanted several times counts by its bytes. */
#include "profile-op.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAST_PLACE = 1 << 14 /* bytes */,
    PLACES = 1 << 20,
    MICRO_BATCHES = 4,
    MOST_OPERANDS = 32
};

struct cold_key {
    struct instr_key key;
    double cold[MOST_OPERANDS], all[MOST_OPERANDS]; /* bytes, operands before results */
};

/* A core's own cache and its share of the last one; virtual machines say of the last one what they share
 * with others, so no more than a part that is usual. */
int64_t cold_cache_bytes(void) {
    enum { USUAL = 1 << 20, MOST_SHARE = 16 << 20 };
    long own = sysconf(_SC_LEVEL2_CACHE_SIZE), last = sysconf(_SC_LEVEL3_CACHE_SIZE),
         cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t share = last > 0 && cores > 0 ? last / cores : 0;
    return (own > 0 ? own : USUAL) + (share < MOST_SHARE ? share : MOST_SHARE);
}

static struct cold_key *find(const struct cold *c, const struct instr_key *key) {
    for (int64_t i = 0; i < c->n; i++)
        if (instr_key_equal(&c->p[i].key, key))
            return &c->p[i];
    return NULL;
}

struct walk {
    struct cold *out;
    int64_t cache, now;
    int64_t place;    /* bytes of one */
    int64_t *touched; /* [places of the arena] the clock when each was touched last */
    bool counts;      /* what the first micro-batch finds is no rule */
};

/* Touches a buffer of micro-batch `index`; returns how many of its bytes had left the cache. */
static double touch(struct walk *w, const struct stage_program *sp, int buffer,
                    int64_t index) {
    const int64_t bytes = buffer_bytes(&sp->buffers[buffer]);
    const int64_t first = buffer_offset(sp, buffer, index > 0 ? index : 0) / w->place;
    const int64_t end = first + (bytes + w->place - 1) / w->place;
    int64_t cold = 0;
    for (int64_t p = first; p < end; p++) {
        cold += w->now - w->touched[p] > w->cache;
        w->touched[p] = w->now;
    }
    return end > first ? (double)bytes * (double)cold / (double)(end - first) : 0;
}

static void run_instr(struct walk *w, const struct stage_program *sp, const struct instr *i,
                      int64_t index) {
    const struct instr_info *info = instr_info(i->code);
    const struct instr_key key = instr_key(i->code, i->dtype, &i->n);
    struct cold_key *k = w->counts ? find(w->out, &key) : NULL;
    int64_t moved = 0;
    if (w->counts && !k) {
        arr_push(w->out, (struct cold_key){.key = key});
        k = &arr_last(w->out);
    }
    for (int o = 0; o < info->n_in + info->n_out; o++) {
        int b = o < info->n_in ? i->in.v[o] : i->out.v[o - info->n_in];
        if (b < 0 || sp->buffers[b].host)
            continue;
        double cold = touch(w, sp, b, index);
        moved += buffer_bytes(&sp->buffers[b]);
        if (k) {
            k->cold[o] += cold;
            k->all[o] += (double)buffer_bytes(&sp->buffers[b]);
        }
    }
    w->now += moved;
}

/* A few micro-batches of one stage, in the order of its group. */
static void walk_stage(struct walk *w, const struct program *g, int stage) {
    const struct stage_program *sp = &g->stages[stage];
    int64_t all = plan_micro_batches(g->plan),
            n = all < MICRO_BATCHES ? all : MICRO_BATCHES;
    struct group_schedule s = schedule_of_group(g->plan, g->plan->stages[stage].group, n);
    w->place =
        sp->arena_bytes / PLACES > LEAST_PLACE ? sp->arena_bytes / PLACES : LEAST_PLACE;
    int64_t places = sp->arena_bytes / w->place + 2;
    w->touched = mem_array((size_t)places, sizeof *w->touched);
    w->now = w->cache + 1;
    for (int64_t i = 0; i < schedule_actions(&s); i++) {
        struct action a = schedule_action(&s, i);
        struct span span = program_segment(sp, a.segment);
        if (a.stage != stage || a.segment >= SEG_REDUCE)
            continue;
        w->counts = a.index > 0 || n == 1;
        for (int k = span.first; k < span.end; k++)
            run_instr(w, sp, &sp->instrs[k], a.index);
    }
    free(w->touched);
}

void cold_of_program(const struct program *g, int64_t cache, struct cold *out) {
    struct walk w = {.out = out, .cache = cache};
    for (int s = 0; s < g->n_stages; s++)
        walk_stage(&w, g, s);
}

/* A model as one stage on one device: two micro-batches of as many samples. */
int cold_of_model(struct model *m, enum dtype dtype, int64_t samples, int64_t cache,
                  struct cold *out, struct err *err) {
    const int bounds[] = {0, m->n_ops};
    struct plan *plan = plan_create(m, 1, bounds);
    plan->batch = 2 * samples;
    plan->micro_batch = (int)samples;
    plan->schedule = SCHEDULE_1f1b;
    plan->dtype = dtype;
    struct program *g = plan_check(plan, err) < 0 ? NULL : program_compile(plan, err);
    if (g)
        cold_of_program(g, cache, out);
    program_destroy(g);
    plan_destroy(plan);
    return g ? 0 : -1;
}

/* What the opcode's table says, where no program is known. */
static unsigned of_opcode(enum opcode code) {
    const struct instr_info *info = instr_info(code);
    unsigned mask = 0;
    for (int o = 0; o < info->n_in + info->n_out; o++) {
        const struct operand_info *op =
            o < info->n_in ? &info->in[o] : &info->out[o - info->n_in];
        mask |= (op->flags & OPERAND_OLD ? 1u : 0u) << o;
    }
    return mask;
}

/* Where no program has this very shape, all of its opcode and type together. */
unsigned cold_operands(const struct cold *c, const struct instr_key *key) {
    double cold[MOST_OPERANDS] = {0}, all[MOST_OPERANDS] = {0};
    const struct cold_key *exact = c ? find(c, key) : NULL;
    unsigned mask = 0;
    bool known = false;
    for (int64_t i = 0; c && i < c->n; i++) {
        const struct cold_key *k = &c->p[i];
        if (k->key.code != key->code || k->key.dtype != key->dtype || (exact && k != exact))
            continue;
        known = true;
        for (int o = 0; o < MOST_OPERANDS; o++) {
            cold[o] += k->cold[o];
            all[o] += k->all[o];
        }
    }
    for (int o = 0; o < MOST_OPERANDS; o++)
        mask |= (all[o] > 0 && cold[o] > all[o] / 2 ? 1u : 0u) << o;
    return known ? mask : of_opcode(key->code);
}

void cold_release(struct cold *c) {
    arr_release(c);
}
