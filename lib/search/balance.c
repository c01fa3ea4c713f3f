/* Balancing: where to cut the list of ops once the devices and layouts of the stages are
 * settled.
 *
 * Every stage takes as many ops as it can within a bound of time and its memory; where
 * memory is short it makes again as few blocks as will do. The least bound under which
 * all ops find a place is found by bisection. So one step does what would take many
 * single moves between neighbours, and a change of one stage is judged by what it is
 * worth after the others have made room. */
#include "search/search_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct filler {
    struct search *s;
    struct candidate *c;
    int64_t memory, micro_batches;
    struct {
        const struct table *plain, *again;
        int64_t in_flight;
        int rank;
        /* What making one block again saves and costs. */
        int64_t saved_bytes;
        double extra_us;
    } stage[SEARCH_MAX_STAGES];
    int ends[SEARCH_MAX_STAGES], blocks[SEARCH_MAX_STAGES]; /* made again */
    double longest;
};

static double op_time(const struct filler *f, const struct place_cost *p) {
    return p->forward_us + p->backward_us +
           (p->reduce_us + p->update_us) / (double)f->micro_batches;
}

/* The costs with recompute, worked out when a stage first needs it. */
static void price_again(struct filler *f, int k) {
    const struct search *s = f->s;
    struct search_stage *st = &f->c->stages[k];
    if (!st->recompute)
        st->recompute = search_recompute_places(s, RECOMPUTE_LEVELS - 1);
    f->stage[k].again = search_table(f->s, st, f->c->micro_batch, f->stage[k].rank, true);
    for (int i = 0; i < s->block_len; i++) {
        int place = s->p.model->ops[s->first_block_op + i].place;
        const struct place_cost *a = &f->stage[k].again->place[place];
        const struct place_cost *b = &f->stage[k].plain->place[place];
        f->stage[k].saved_bytes += (b->slot_bytes - a->slot_bytes) * f->stage[k].in_flight;
        f->stage[k].extra_us += op_time(f, a) - op_time(f, b);
    }
}

/* How many blocks must be made again to save so much; more than there are where it
 * cannot be. */
static int blocks_again(struct filler *f, int k, int64_t missing) {
    if (missing <= 0)
        return 0;
    if (!f->stage[k].again)
        price_again(f, k);
    int64_t each = f->stage[k].saved_bytes;
    return each > 0 && missing / each < 1 << 20 ? (int)((missing + each - 1) / each)
                                                : 1 << 20;
}

/* Ops first .. for stage k, as many as there can be: returns the end. */
static int fill(struct filler *f, int k, int first, double bound) {
    const struct model *m = f->s->p.model;
    int most = m->n_ops - (f->c->n_stages - 1 - k), blocks = 0, i = first;
    double time = 0, taken = 0;
    int64_t bytes = 0, temp = 0, kept = 0, update = 0;
    f->blocks[k] = 0;
    for (; i < most; i++) {
        const struct model_op *op = &m->ops[i];
        const struct place_cost *p = &f->stage[k].plain->place[op->place];
        blocks += op->block >= 0 && (i == first || op->block != m->ops[i - 1].block);
        time += op_time(f, p);
        bytes += p->fixed_bytes + p->slot_bytes * f->stage[k].in_flight;
        temp = p->temp_bytes > temp ? p->temp_bytes : temp;
        update = p->update_temp_bytes > update ? p->update_temp_bytes : update;
        kept += p->update_kept_bytes;
        int64_t all = bytes + (temp > kept + update ? temp : kept + update);
        int again = f->memory ? blocks_again(f, k, all - f->memory) : 0;
        double t = time + again * f->stage[k].extra_us;
        if (i > first && (t > bound || again > blocks))
            break;
        taken = t;
        f->blocks[k] = again < blocks ? again : blocks;
    }
    if (taken > f->longest)
        f->longest = taken;
    return i;
}

/* All ops under this bound? */
static bool fits(struct filler *f, double bound) {
    int at = 0;
    f->longest = 0;
    for (int k = 0; k < f->c->n_stages; k++)
        at = f->ends[k] = fill(f, k, at, bound);
    return at == f->s->p.model->n_ops && f->longest <= bound;
}

static void prepare(struct filler *f) {
    struct search *s = f->s;
    int64_t limit = s->p.memory_bytes;
    int rank = 0;
    f->micro_batches = s->p.batch / f->c->micro_batch;
    /* What neighbours send and ties are not counted here: a little room for them. */
    f->memory = limit ? limit - s->reserve_bytes - limit / 64 : 0;
    for (int k = 0; k < f->c->n_stages; k++) {
        f->stage[k].rank = rank;
        f->stage[k].plain =
            search_table(s, &f->c->stages[k], f->c->micro_batch, rank, false);
        f->stage[k].in_flight =
            schedule_in_flight(f->c->schedule, k, f->c->n_stages, f->micro_batches);
        rank += f->c->stages[k].devices;
    }
}

/* Takes over the cuts that were found last. */
static void apply(const struct filler *f, struct candidate *c) {
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *st = &c->stages[k];
        st->first = k ? f->ends[k - 1] : 0;
        st->end = f->ends[k];
        st->recompute_blocks = f->blocks[k];
    }
}

bool search_balance(struct search *s, struct candidate *c) {
    struct filler f = {.s = s, .c = c};
    prepare(&f);
    if (!fits(&f, INFINITY))
        return false;
    double low = 0, high = f.longest;
    apply(&f, c);
    for (int i = 0; i < 30 && low < high * 0.9995; i++) {
        double bound = low > 0 ? (low + high) / 2 : high * 0.6;
        if (fits(&f, bound)) {
            high = f.longest;
            apply(&f, c);
        } else {
            low = bound;
        }
    }
    return true;
}
