/* A residual's sum in one pass with the norm behind it, or the gradient of a norm with the sum behind that
 * (cuda_pair.h), by the emulator: on random shapes the bits are those of the two kernels one by one, wherever
 * results may lie; and what is no such pair is none. In cuda-residual-watched no access is a race (watch.h). */
#include "../unit/tap.h"
#include "../unit/trial_call.h"
#include "cuda/cuda_norm.h"
#include "cuda/cuda_pair.h"
#include "emulate.h"
#include "watch.h"

/* Weak: without a compiler of C++ they are not there. */
#pragma weak cuda_add
#pragma weak cuda_layernorm
#pragma weak cuda_layernorm_bwd
#pragma weak cuda_rmsnorm
#pragma weak cuda_rmsnorm_bwd
#pragma weak cuda_pair_norm_fits
#pragma weak cuda_pair_norm_give

/* The norm's operands and the sum's; results may have the places of operands. */
struct both {
    struct trial norm, add;
    bool forward;
    struct cuda_given first, second;
};

/* Where the last of the three large results lies: alone; where the sum's first or second operand does;
 * backward, also where x or dy of the norm does. */
enum place { ALONE, ON_A, ON_B, ON_X, PLACES };

/* Rows that are not split have no sums of other parts. */
static void make_whole(struct trial *t) {
    const int last = t->info->n_in - 1;
    if (t->code == I_layernorm)
        t->n.layernorm.parts = 1;
    else if (t->code == I_rmsnorm)
        t->n.rmsnorm.total = t->n.rmsnorm.n;
    else
        return;
    instr_work(t->code, &t->n, &t->work);
    free(t->in[last]);
    t->in[last] = NULL;
}

/* With the norm's own results elsewhere; then the sum and the norm share what is between them. */
static void begin(struct both *p, enum opcode code, enum dtype dtype, uint64_t seed,
                  bool swapped, bool in_place) {
    p->forward = code == I_layernorm || code == I_rmsnorm;
    trial_begin(&p->norm, code, dtype, seed);
    make_whole(&p->norm);
    trial_results(&p->norm, p->forward || !in_place ? -1 : 3); /* dx in the place of dy */
    trial_begin(&p->add, I_add, dtype, seed);
    p->add.n.add.elems = p->norm.n.v[0] * p->norm.n.v[1];
    instr_work(I_add, &p->add.n, &p->add.work);
    for (int k = 0; k < 2; k++) {
        free(p->add.in[k]);
        p->add.in[k] = trial_bytes(trial_in_bytes(&p->add, k));
        trial_fill(&p->add, k);
    }
    trial_results(&p->add, p->forward && in_place ? 0 : -1);
    struct cuda_given norm = trial_given(&p->norm), add = trial_given(&p->add);
    if (p->forward)
        norm.in.v[0] = add.out.v[0];
    else
        add.in.v[swapped] = norm.out.v[0];
    p->first = p->forward ? add : norm;
    p->second = p->forward ? norm : add;
}

static void end(struct both *p) {
    trial_end(&p->norm);
    trial_end(&p->add);
}

/* Gives the second's first result another place; false: there is none such. */
static bool place(struct both *p, enum place where) {
    const struct cuda_given *add = p->forward ? &p->first : &p->second;
    const void *at[PLACES] = {p->second.out.v[0], add->in.v[0], add->in.v[1],
                              p->forward ? NULL : p->first.in.v[0]};
    if (!at[where] || (p->forward && at[where] == p->first.out.v[0]))
        return false;
    p->second.out.v[0] = (void *)at[where];
    return true;
}

/* ---- running ------------------------------------------------------------------------------ */

static int one(struct cuda_call *c, const struct cuda_given *g) {
    c->args = &g->args;
    switch (g->code) {
    case I_add: return cuda_add(c, &g->n.add, &g->in.add, &g->out.add);
    case I_layernorm:
        return cuda_layernorm(c, &g->n.layernorm, &g->in.layernorm, &g->out.layernorm);
    case I_rmsnorm: return cuda_rmsnorm(c, &g->n.rmsnorm, &g->in.rmsnorm, &g->out.rmsnorm);
    case I_layernorm_bwd:
        return cuda_layernorm_bwd(c, &g->n.layernorm_bwd, &g->in.layernorm_bwd,
                                  &g->out.layernorm_bwd);
    default:
        return cuda_rmsnorm_bwd(c, &g->n.rmsnorm_bwd, &g->in.rmsnorm_bwd,
                                &g->out.rmsnorm_bwd);
    }
}

static int run(struct both *p, bool in_one, struct err *err) {
    static struct cuda_device dev = {.arch = 80, .processors = 4};
    struct cuda_call c = trial_call(&dev, &p->norm, err);
    emu_buffer("the workspace", c.workspace, c.workspace_bytes, true);
    int rc = in_one                   ? cuda_pair_norm_give(&c, &p->first, &p->second)
             : one(&c, &p->first) < 0 ? -1
                                      : one(&c, &p->second);
    emu_forget();
    free(c.workspace);
    return rc;
}

static bool equal(const struct trial *a, const struct cuda_given *x,
                  const struct cuda_given *y) {
    bool same = true;
    for (int k = 0; k < a->info->n_out; k++)
        if (trial_out_bytes(a, k)) /* a norm may have no bias */
            same &= !memcmp(x->out.v[k], y->out.v[k], (size_t)trial_out_bytes(a, k));
    return same;
}

static void on_cpu(const struct cuda_given *g) {
    cpu_exec(g->code, &g->n, &g->in, &g->out, &g->args);
}

/* How far the results are from what the CPU makes of the two; each has a place of its own. */
static double from_cpu(const struct both *got, uint64_t seed, bool in_place) {
    struct both cpu;
    begin(&cpu, got->norm.code, got->norm.dtype, seed, seed % 2, in_place);
    on_cpu(&cpu.first), on_cpu(&cpu.second);
    const double far =
        fmax(trial_distance(&got->norm, &cpu.norm), trial_distance(&got->add, &cpu.add));
    end(&cpu);
    return far;
}

static double bound(enum dtype dtype) {
    return dtype == DTYPE_f32 ? 1e-5 : dtype == DTYPE_bf16 ? 2e-2 : 4e-3;
}

/* NULL, or what is wrong. */
static const char *try(enum opcode code, enum dtype dtype, uint64_t seed, enum place where,
                       bool in_place, int *tried) {
    static struct err err;
    struct both got, want;
    const char *wrong = NULL;
    const bool swapped = seed % 2;
    begin(&got, code, dtype, seed, swapped, in_place);
    begin(&want, code, dtype, seed, swapped, in_place);
    if (place(&got, where) && place(&want, where)) {
        const int64_t before = emu_launches();
        if (!cuda_pair_norm_fits(&got.first, &got.second))
            wrong = "is no pair";
        else if (run(&want, false, &err) < 0)
            wrong = err.msg;
        const int64_t apart = emu_launches() - before;
        emu_order((int)(seed / 2 % 2));
        if (!wrong && run(&got, true, &err) < 0)
            wrong = err.msg;
        emu_order(0);
        if (!wrong && emu_launches() - before != 2 * apart - 1)
            wrong = "is not one launch less";
        if (!wrong &&
            !(equal(got.forward ? &got.add : &got.norm, &got.first, &want.first) &&
              equal(got.forward ? &got.norm : &got.add, &got.second, &want.second)))
            wrong = "has other bits";
        if (!wrong && where == ALONE && from_cpu(&got, seed, in_place) > bound(dtype))
            wrong = "is not what the CPU computes";
        if (emu_findings() > 0)
            wrong = "uses memory as it may not";
        ++*tried;
    }
    end(&got), end(&want);
    return wrong;
}

static void test_bits(enum opcode code, enum dtype dtype) {
    const uint64_t seeds = getenv("WEFT_LONG") ? 24 : emu_watched() ? 1 : 3;
    const char *wrong = NULL;
    int tried = 0;
    uint64_t seed = 0;
    enum place where = ALONE;
    bool in_place = false;
    for (seed = 0; seed < seeds && !wrong; seed++)
        for (int way = 0; way < 2 * PLACES && !wrong; way++) {
            where = way / 2, in_place = way % 2;
            wrong = try(code, dtype, seed, where, in_place, &tried);
        }
    ok(!wrong && tried > (int)seeds, "%s %s: %d with a sum in one %s", opcode_name(code),
       dtype_name(dtype), tried, wrong ? wrong : "");
    if (wrong)
        printf("# seed %llu, place %d, in place %d\n", (unsigned long long)seed - 1, where,
               in_place);
}

/* ---- what is no pair ---------------------------------------------------------------------- */

static void not(const struct cuda_given *first, const struct cuda_given *second,
                const char *why) {
    ok(!cuda_pair_norm_fits(first, second), "%s, %s: %s", opcode_name(first->code),
       opcode_name(second->code), why);
}

static void *further(const void *p, int64_t bytes) {
    return (char *)p + bytes;
}

static void test_forward_others(enum opcode code) {
    struct both p;
    begin(&p, code, DTYPE_f32, 8, false, false);
    struct cuda_given add = p.first, norm = p.second;
    norm.in.v[0] = add.in.add.a;
    not(&add, &norm, "the norm of something else");
    norm = p.second, norm.n.v[0]++;
    not(&add, &norm, "of more rows");
    norm = p.second, norm.n.v[2]++; /* parts, or columns of the whole row */
    not(&add, &norm, "of rows that are split");
    norm = p.second, norm.out.v[0] = further(add.in.add.b, 16);
    not(&add, &norm, "on other rows of what is summed up");
    norm = p.second, norm.out.v[1] = (void *)add.in.add.a;
    not(&add, &norm, "statistics on what is summed up");
    norm = p.second, add.in.add.b = further(add.in.add.b, 4);
    not(&add, &norm, "operands where no vectors begin");
    end(&p);
}

static void test_backward_others(enum opcode code) {
    struct both p;
    uint64_t seed = 8;
    begin(&p, code, DTYPE_f32, seed, false, true);
    while (p.norm.n.v[0] < 2) { /* The weights of a single row are as large as the row. */
        end(&p);
        begin(&p, code, DTYPE_f32, ++seed, false, true);
    }
    struct cuda_given norm = p.first, add = p.second;
    add.in.add.a = add.out.add.y;
    not(&norm, &add, "a sum of something else");
    add = p.second, add.n.add.elems--;
    not(&norm, &add, "a sum of a part");
    add = p.second, add.in.add.b = add.in.add.a;
    not(&norm, &add, "the gradient twice");
    add = p.second, add.in.add.b = norm.out.v[1];
    not(&norm, &add, "a sum with a gradient of weights");
    add = p.second, add.out.add.y = (void *)norm.in.v[1];
    not(&norm, &add, "on the weights");
    add = p.second, add.out.add.y = further(norm.in.v[0], 16);
    not(&norm, &add, "on other rows of what is read");
    add = p.second, add.out.add.y = further(norm.out.v[0], 16);
    not(&norm, &add, "on other rows of the gradient");
    end(&p);
}

int main(void) {
    static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    static const enum opcode codes[] = {I_layernorm, I_rmsnorm, I_layernorm_bwd,
                                        I_rmsnorm_bwd};
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        return 4;
    if (!cuda_pair_norm_fits) {
        printf("1..0 # SKIP the kernels are not there: no compiler of C++\n");
        return 0;
    }
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++)
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            test_bits(codes[k], types[i]);
    test_forward_others(I_layernorm), test_forward_others(I_rmsnorm);
    test_backward_others(I_layernorm_bwd), test_backward_others(I_rmsnorm_bwd);
    kernel_release();
    return done_testing();
}
