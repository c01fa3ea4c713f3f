/* The memory plan: what shares bytes, and that nothing does which must not. */
#include "program-random.h"

#include "program/passes/pass.h"

/* ---- small programs by hand --------------------------------------------------------------- */

enum {
    N = 100,
    BYTES = 448
}; /* elements of a value, and what it takes: 400 rounded up to 64 */

struct hand {
    struct emit e;
    struct stage_program sp;
    struct plan plan;
    struct mesh mesh;
};

static void begin(struct hand *h) {
    *h = (struct hand){.mesh = {0}};
    h->e = (struct emit){.plan = &h->plan,
                         .mesh = &h->mesh,
                         .op = -1,
                         .param = -1,
                         .slots = {1, 1, 1},
                         .out = &h->sp};
}

static int value(struct hand *h) {
    return emit_buffer(&h->e, N, DTYPE_f32, MEM_temporaries);
}

/* A value from nothing. */
static int given(struct hand *h) {
    int y = value(h);
    emit_instr(&h->e, I_input)->out.input.y = y;
    return y;
}

/* Reads operands (-1 = none), writes a new value. */
static int then(struct hand *h, enum opcode code, int a, int b) {
    int y = value(h);
    struct instr *i = emit_instr(&h->e, code);
    i->in.v[0] = a;
    i->in.v[1] = b;
    i->out.v[0] = y;
    return y;
}

/* A reader that ends a value's life. */
static void use(struct hand *h, int x) {
    emit_instr(&h->e, I_sum_squares)->in.sum_squares.g = x;
}

static void start_backward(struct hand *h) {
    h->e.seg_first[SEG_BACKWARD] = (int)h->e.instrs.n;
}

/* Everything so far is forward unless a backward was begun; then the plan is made. */
static void end(struct hand *h) {
    int *first = h->e.seg_first, n = (int)h->e.instrs.n;
    for (int s = SEG_BACKWARD; s <= SEG_COUNT; s++)
        first[s] = first[s] ? first[s] : n;
    pass_persistent(&h->e);
    pass_reuse(&h->e);
    pass_memory(&h->e);
}

static void release(struct hand *h) {
    arr_release(&h->e.instrs);
    arr_release(&h->e.buffers);
    arr_release(&h->e.lives);
}

/* Which operand the first result of instruction i took the bytes of, or -1. */
static int taken(const struct hand *h, int i) {
    const struct instr *ins = &h->e.instrs.p[i];
    for (int k = 0; k < INSTR_MAX_IN; k++)
        if (ins->in.v[k] >= 0 && ins->in.v[k] == ins->out.v[0])
            return k;
    return -1;
}

static void test_in_place(void) {
    struct hand h;
    begin(&h);
    use(&h, then(&h, I_gelu, then(&h, I_relu, given(&h), -1), -1));
    end(&h);
    ok(taken(&h, 1) == 0 && taken(&h, 2) == 0 && h.sp.bytes[MEM_temporaries] == BYTES,
       "elementwise results take the place of operands that die");
    release(&h);

    begin(&h);
    int x = given(&h), y = then(&h, I_gelu, x, -1);
    use(&h, y);
    use(&h, x);
    end(&h);
    ok(taken(&h, 1) == -1 && h.sp.bytes[MEM_temporaries] == 2 * BYTES,
       "not of one that is read later");
    release(&h);

    begin(&h);
    x = given(&h);
    use(&h, then(&h, I_copy, x, -1));
    end(&h);
    ok(taken(&h, 1) == -1, "not where the table does not say so: copy");
    release(&h);

    begin(&h);
    x = given(&h), y = given(&h);
    use(&h, then(&h, I_gelu_dx, x, y));
    end(&h);
    ok(taken(&h, 2) == 1, "gelu_dx takes the gradient's place, not x's");
    release(&h);

    begin(&h);
    x = given(&h), y = given(&h);
    use(&h, then(&h, I_add, x, y));
    use(&h, x);
    end(&h);
    ok(taken(&h, 2) == 1, "of two operands, the one that dies");
    release(&h);

    begin(&h);
    x = given(&h);
    use(&h, then(&h, I_add, x, x));
    end(&h);
    ok(taken(&h, 1) == 0 && h.sp.bytes[MEM_temporaries] == BYTES,
       "x + x in the place of x");
    release(&h);
}

static void test_in_place_classes(void) {
    struct hand h;
    begin(&h);
    int p = emit_buffer(&h.e, N, DTYPE_f32, MEM_parameters);
    use(&h, then(&h, I_gelu, p, -1));
    end(&h);
    ok(taken(&h, 0) == -1 && h.sp.bytes[MEM_parameters] == BYTES, "never of a parameter");
    release(&h);

    begin(&h);
    int x = given(&h), small = emit_buffer(&h.e, N / 2, DTYPE_f32, MEM_temporaries);
    struct instr *i = emit_instr(&h.e, I_gelu);
    i->in.gelu.x = x;
    i->out.gelu.y = small;
    use(&h, small);
    end(&h);
    ok(taken(&h, 1) == -1, "never of one of another size");
    release(&h);

    begin(&h);
    x = given(&h);
    int y = then(&h, I_linear, x, -1);
    start_backward(&h);
    use(&h, then(&h, I_gelu_dx, y, then(&h, I_gelu, x, -1)));
    end(&h);
    ok(taken(&h, 2) == 0 && h.sp.bytes[MEM_activations] == 2 * BYTES &&
           h.sp.bytes[MEM_temporaries] == 0,
       "what the forward pass kept may be overwritten where it dies");
    release(&h);
}

/* Without sharing in place: the bytes of what died are used again. */
static void test_reuse(void) {
    struct hand h;
    begin(&h);
    int x = given(&h);
    for (int i = 0; i < 6; i++)
        x = then(&h, I_linear, x, -1);
    use(&h, x);
    end(&h);
    ok(h.sp.bytes[MEM_temporaries] == 2 * BYTES, "a chain of products needs two values");
    release(&h);

    begin(&h);
    int big = emit_buffer(&h.e, 4 * N, DTYPE_f32, MEM_temporaries);
    emit_instr(&h.e, I_input)->out.input.y = big;
    int keep = then(&h, I_linear, big, -1); /* behind big */
    int a = given(&h), b = given(&h);       /* where big was */
    use(&h, a);
    use(&h, b);
    use(&h, keep);
    end(&h);
    ok(h.sp.bytes[MEM_temporaries] == 1600 + BYTES,
       "small values share the place of a large one");
    release(&h);

    begin(&h);
    x = given(&h);
    int y = then(&h, I_linear, x, -1);
    use(&h, x);
    start_backward(&h);
    use(&h, then(&h, I_linear_dx, given(&h), y));
    end(&h);
    ok(h.sp.bytes[MEM_activations] == BYTES && h.sp.bytes[MEM_temporaries] == 2 * BYTES,
       "only what the backward pass reads is kept for it");
    release(&h);
}

/* ---- all programs ---------------------------------------------------------------------------- */

/* A part of a buffer is of its whole. */
static void note(const struct stage_program *sp, struct life *lives, const struct instr *i,
                 int at) {
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(i, b);
    for (int k = 0; k < n; k++) {
        struct life *l = &lives[buffer_whole(sp->buffers, b[k])];
        l->first = l->first < 0 ? at : l->first;
        l->last = at;
    }
}

/* When each buffer is written first and touched last while these segments run one after another. */
static void find_lives(const struct stage_program *sp, const enum segment *segments, int n,
                       struct life *lives) {
    int at = 0;
    for (int b = 0; b < sp->n_buffers; b++)
        lives[b] = (struct life){-1, -1};
    for (int s = 0; s < n; s++)
        FOR_SEGMENT(sp, segments[s], i) {
            note(sp, lives, i, at++);
        }
}

static bool shares_bytes(const struct buffer *a, const struct buffer *b) {
    return a->offset < b->offset + buffer_bytes(b) &&
           b->offset < a->offset + buffer_bytes(a);
}

static bool planned(const struct buffer *b) {
    return b->mem == MEM_activations || b->mem == MEM_temporaries;
}

/* Two values that live at once in a byte that they share: how many pairs. */
static int count_overlaps(const struct stage_program *sp, const enum segment *segments,
                          int n) {
    struct life *lives = mem_array((size_t)sp->n_buffers, sizeof *lives);
    int found = 0;
    find_lives(sp, segments, n, lives);
    for (int a = 0; a < sp->n_buffers; a++)
        for (int b = 0; b < a && planned(&sp->buffers[a]) && lives[a].first >= 0; b++)
            found += planned(&sp->buffers[b]) && lives[b].first >= 0 &&
                     lives[a].first <= lives[b].last && lives[b].first <= lives[a].last &&
                     shares_bytes(&sp->buffers[a], &sp->buffers[b]);
    free(lives);
    return found;
}

/* Parameters, their gradients and the optimizer's state hold their bytes alone. */
static int count_fixed_overlaps(const struct stage_program *sp) {
    ARR(int) fixed = {0};
    int found = 0;
    for (int i = 0; i < sp->n_params; i++)
        arr_push(&fixed, sp->params[i].buffer);
    for (int i = 0; i < sp->n_grads; i++)
        arr_push(&fixed, sp->grads[i].buffer);
    for (int i = 0; i < sp->n_states; i++)
        arr_push(&fixed, sp->states[i].buffer);
    for (int64_t a = 0; a < fixed.n; a++)
        for (int64_t b = 0; b < a; b++)
            found += shares_bytes(&sp->buffers[fixed.p[a]], &sp->buffers[fixed.p[b]]);
    arr_release(&fixed);
    return found;
}

/* Buffers outside the region of their class; and temporaries that are planned too large. Of those,
 * `top` is how far any stage of the group has come. */
static int count_strays(const struct stage_program *sp, bool last, int64_t *top) {
    int64_t start[MEM_COUNT + 1] = {0};
    int found = 0;
    for (int c = 0; c < MEM_COUNT; c++)
        start[c + 1] = start[c] + sp->bytes[c];
    for (int b = 0; b < sp->n_buffers; b++) {
        const struct buffer *x = &sp->buffers[b];
        if (x->mem >= MEM_COUNT) /* merged into another */
            continue;
        const struct pool_slots *s = &sp->slots[x->part];
        int64_t end = x->offset + buffer_bytes(x);
        if (x->mem == MEM_activations)
            end += (s->n - 1) * (x->host ? s->host_bytes : s->bytes);
        /* At a step's end nothing is kept: what is temporary then begins where that was. */
        const bool late = x->mem == MEM_temporaries && x->part;
        int64_t from = x->host ? HOST_ARENA : start[late ? MEM_activations : x->mem];
        int64_t to = x->host ? HOST_ARENA + sp->host_bytes : start[x->mem + 1];
        found += x->offset < from || end > to || x->offset % 64 != 0;
        if (x->mem == MEM_temporaries && end > *top)
            *top = end;
    }
    return found + (start[MEM_COUNT] != sp->arena_bytes) +
           (last && sp->bytes[MEM_temporaries] && *top != start[MEM_temporaries + 1]);
}

/* An operand that is a result too, where the table does not let it. */
static int count_wrong_places(const struct stage_program *sp) {
    int found = 0;
    for (const struct instr *i = sp->instrs; i < sp->instrs + sp->n_instrs; i++) {
        const struct instr_info *info = instr_info(i->code);
        bool reduces = i->code == I_all_reduce || i->code == I_wait;
        for (int k = 0; k < info->n_in; k++)
            for (int o = 0; o < info->n_out; o++)
                found += i->in.v[k] >= 0 && i->in.v[k] == i->out.v[o] && !reduces &&
                         (o || !(info->in[k].flags & OPERAND_OVER));
    }
    return found;
}

static void check_program(const struct program *g, int faults[4]) {
    static const enum segment passes[2][3] = {
        {SEG_FORWARD, SEG_BACKWARD, SEG_WEIGHTS},
        {SEG_FORWARD, SEG_LAST_BACKWARD, SEG_LAST_WEIGHTS}};
    static const enum segment end[] = {SEG_REDUCE, SEG_NORM, SEG_UPDATE};
    const struct plan *p = g->plan;
    int64_t *top = mem_array((size_t)p->n_groups, sizeof *top);
    for (int s = 0; s < g->n_stages; s++) {
        const struct stage_program *sp = &g->stages[s];
        int group = p->stages[s].group;
        bool last = p->chunks[p->first_chunk[group + 1] - 1] == s;
        faults[0] += count_overlaps(sp, passes[0], 3) + count_overlaps(sp, passes[1], 3) +
                     count_overlaps(sp, end, 3);
        faults[1] += count_fixed_overlaps(sp);
        faults[2] += count_strays(sp, last, &top[group]);
        faults[3] += count_wrong_places(sp);
    }
    free(top);
}

static void test_random_plans(void) {
    int faults[4] = {0}, n = 0;
    for (uint64_t k = 0; k < 60; k++) {
        struct compiled c = random_program(5, k);
        if (c.g)
            check_program(c.g, faults);
        n += c.g != NULL;
        compiled_release(&c);
    }
    ok(n == 60, "%d random plans are compiled", n);
    ok(!faults[0], "values that live at once share no byte (%d do)", faults[0]);
    ok(!faults[1], "parameters, gradients, states share no byte (%d do)", faults[1]);
    ok(!faults[2],
       "every buffer lies in its class's region, which is no larger (%d faults)",
       faults[2]);
    ok(!faults[3], "in place only where the table says so (%d not)", faults[3]);
}

int main(void) {
    test_in_place();
    test_in_place_classes();
    test_reuse();
    test_random_plans();
    return done_testing();
}
