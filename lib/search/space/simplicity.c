/* Simplicity: how many words describe a candidate.
 *
 * People port, debug and trust a plan that they can describe in one breath: "pp 4, tp
 * 2, dp 2, everything recomputed". So neighbouring stages that are equal are described
 * once. A stage needs one word for its number of blocks, for each end inside a block,
 * for its devices, for each form of parallelism in its preset, for ZeRO, for
 * regathering, for recompute (two if only some of its blocks do it), and for every op
 * whose layout is not the preset's. */
#include "search/graph/graph.h"
#include "search/space/space.h"

#include <string.h>

/* The description of a stage, except ops that differ from its preset. */
struct saying {
    int blocks, devices, zero, recompute_level;
    bool begins_inside, ends_inside, some_blocks, regather;
    struct preset preset;
    const struct mesh *mesh;
};

static int ops_that_differ(const struct space *sp, const struct search_stage *st,
                           int64_t micro_batch, struct preset preset) {
    const struct blocks *b = &sp->blocks;
    struct search_stage plain = *st;
    int n = 0;
    space_apply_preset(sp, &plain, micro_batch, preset);
    if (plain.layouts == st->layouts && plain.mesh == st->mesh)
        return 0;
    for (int i = st->first; i < st->end;
         i = structure_next_distinct(&sp->blocks.s, st->first, i)) {
        int node = b->x.node_of[b->x.of[i]];
        n += plain.mesh != st->mesh ||
             memcmp(&plain.layouts[node], &st->layouts[node], sizeof *st->layouts) != 0;
    }
    return n;
}

struct preset space_nearest_preset(const struct space *sp, const struct search_stage *st,
                                   int64_t micro_batch, int *differ) {
    struct preset best = space_preset_of(sp, st), other;
    *differ = ops_that_differ(sp, st, micro_batch, best);
    for (int i = 0; *differ > 0 && space_preset(sp, st, i, &other); i++) {
        int n = ops_that_differ(sp, st, micro_batch, other);
        if (n < *differ) {
            *differ = n;
            best = other;
        }
    }
    return best;
}

/* differ: receives the number of ops whose layout is not the preset's. */
static struct saying saying_of(const struct space *sp, const struct search_stage *st,
                               int64_t micro_batch, int *differ) {
    const struct structure *s = &sp->blocks.s;
    int blocks = space_stage_blocks(sp, st);
    bool recomputes = st->recompute_level && st->recompute_blocks;
    struct saying say = {.blocks = blocks, .devices = st->devices, .mesh = st->mesh};
    say.zero = search_zero_of(st);
    say.regather = st->regather;
    say.begins_inside = space_block_begin(sp, st->first) != st->first;
    say.ends_inside = st->end < s->n_ops && space_block_begin(sp, st->end) != st->end;
    say.recompute_level = recomputes ? st->recompute_level : 0;
    say.some_blocks = recomputes && st->recompute_blocks < blocks;
    say.preset = space_nearest_preset(sp, st, micro_batch, differ);
    return say;
}

static bool same_preset(const struct preset *a, const struct preset *b) {
    return a->model_axes == b->model_axes && a->inner == b->inner &&
           a->sequence == b->sequence && a->outer == b->outer &&
           a->ascending == b->ascending && a->context_axes == b->context_axes &&
           a->expert_axes == b->expert_axes;
}

static bool same(const struct saying *a, const struct saying *b) {
    return a->blocks == b->blocks && a->devices == b->devices && a->zero == b->zero &&
           a->recompute_level == b->recompute_level &&
           a->begins_inside == b->begins_inside && a->ends_inside == b->ends_inside &&
           a->some_blocks == b->some_blocks && a->regather == b->regather &&
           a->mesh == b->mesh && same_preset(&a->preset, &b->preset);
}

static int words_of(const struct saying *say) {
    const struct preset *p = &say->preset;
    int words = 2; /* blocks and devices */
    words += say->begins_inside + say->ends_inside + (say->zero > 0) + say->regather;
    words += (say->recompute_level > 0) + say->some_blocks;
    words += (p->model_axes > 0) + (p->model_axes > 0 && p->sequence) + p->outer;
    return words + (p->context_axes > 0) + (p->expert_axes > 0);
}

/* Equal stages in a row are described once. */
int space_words(const struct space *sp, const struct candidate *c) {
    int words = c->n_groups < c->n_stages; /* several stages on each group */
    struct saying before = {0};
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        int differ;
        struct saying now = saying_of(sp, st, c->micro_batch, &differ);
        bool new = !k || !same(&now, &before);
        words += new ? words_of(&now) : 0;
        if (new || st->layouts != c->stages[k - 1].layouts)
            words += differ;
        words += st->place > 0; /* groups in another order than the pipeline's */
        before = now;
    }
    return words;
}
