/* gpu-pairs.c - what a recording makes of a sum and the norm behind it, and of a norm's gradient and the sum
 * behind that (lib/cuda/cuda_pair.h), on the fake of CUDA: one kernel where they stand together, two where
 * something is between them, and the CPU's bits.
 *
 * usage: gpu-pairs
 */
#include "../unit/tap.h"
#include "../unit/trial.h"
#include "cuda/cuda.h"
#include "fake/cudart.h"

enum { MOST = 3 };

static struct device *dev;
static struct device_stream *stream;

/* Instructions one behind the other. */
struct chain {
    int count;
    struct trial t[MOST];
    struct cuda_given given[MOST];
};

/* Rows that are not split have no sums of other parts. */
static void make_whole(struct trial *t) {
    const int last = t->info->n_in - 1;
    if (t->code == I_layernorm)
        t->n.layernorm.parts = 1;
    else
        t->n.rmsnorm.total = t->n.rmsnorm.n;
    free(t->in[last]);
    t->in[last] = NULL;
}

static void append(struct chain *c, enum opcode code, const struct trial *like) {
    struct trial *t = &c->t[c->count];
    trial_begin(t, code, DTYPE_f32, 8);
    if (code == I_layernorm || code == I_rmsnorm)
        make_whole(t);
    if (like) {
        t->n.add.elems = like->n.v[0] * like->n.v[1];
        instr_work(code, &t->n, &t->work);
        for (int k = 0; k < t->info->n_in; k++) {
            free(t->in[k]);
            t->in[k] = trial_bytes(trial_in_bytes(t, k));
            trial_fill(t, k);
        }
    }
    instr_work(code, &t->n, &t->work);
    trial_results(t, -1);
    struct cuda_given *g = &c->given[c->count++];
    *g = (struct cuda_given){.code = code, .n = t->n, .args = t->args};
    memcpy(g->in.v, t->in, sizeof g->in.v);
    memcpy(g->out.v, t->out, sizeof g->out.v);
}

static void swap(struct chain *c, int i, int k) {
    const struct trial t = c->t[i];
    const struct cuda_given g = c->given[i];
    c->t[i] = c->t[k], c->t[k] = t;
    c->given[i] = c->given[k], c->given[k] = g;
}

/* A norm, or a gradient, with its sum; `between` has nothing to do with either. */
static void begin(struct chain *c, enum opcode norm, bool between) {
    const bool forward = norm == I_layernorm || norm == I_rmsnorm;
    c->count = 0;
    append(c, norm, NULL);
    if (between)
        append(c, I_scale, &c->t[0]);
    append(c, I_add, &c->t[0]);
    const int last = c->count - 1;
    if (forward) {
        c->given[0].in.v[0] = c->given[last].out.v[0];
        swap(c, 0, last);
    } else {
        c->given[last].in.v[0] = c->given[0].out.v[0];
    }
}

static void end(struct chain *c) {
    for (int i = 0; i < c->count; i++)
        trial_end(&c->t[i]);
}

static int record(struct chain *c, struct err *err) {
    if (device_record_begin(stream, err) < 0)
        return -1;
    int rc = 0;
    for (int i = 0; i < c->count && rc == 0; i++) {
        const struct cuda_given *g = &c->given[i];
        rc = device_launch(stream, g->code, &g->n, &g->in, &g->out, &g->args, err);
    }
    struct device_recording *r = device_record_end(stream, rc < 0 ? NULL : err);
    if (rc == 0)
        rc = r ? device_replay(r, stream, err) : -1;
    if (rc == 0)
        rc = device_synchronize(stream, err);
    device_recording_destroy(r);
    return rc;
}

static void test(enum opcode norm, bool between) {
    struct chain gpu, cpu;
    struct err err = {0};
    begin(&gpu, norm, between), begin(&cpu, norm, between);
    const int64_t before = fake_cuda.done;
    const int rc = record(&gpu, &err);
    const int64_t kernels = fake_cuda.done - before, wanted = between ? 3 : 1;
    bool same = true;
    for (int i = 0; i < cpu.count; i++) {
        const struct cuda_given *g = &cpu.given[i];
        cpu_exec(g->code, &g->n, &g->in, &g->out, &g->args);
    }
    for (int i = 0; i < cpu.count; i++)
        same &= trial_distance(&gpu.t[i], &cpu.t[i]) == 0;
    ok(rc == 0 && same && kernels == wanted, "%s%s: %lld kernels, the bits of the CPU %s",
       opcode_name(norm), between ? ", something between" : "", (long long)kernels,
       err.msg);
    end(&gpu), end(&cpu);
}

int main(void) {
    static const enum opcode norms[] = {I_layernorm, I_rmsnorm, I_layernorm_bwd,
                                        I_rmsnorm_bwd};
    struct err err = {0};
    struct cuda_backend cuda =
        cuda_backend(&(struct cuda_options){.workspace_bytes = 64 << 20});
    dev = device_create(&cuda.backend, 0, 1, &err);
    stream = dev ? device_stream_create(dev, &err) : NULL;
    ok(stream != NULL, "a GPU %s", err.msg);
    for (size_t i = 0; i < sizeof norms / sizeof *norms && stream; i++)
        test(norms[i], false), test(norms[i], true);
    device_stream_destroy(stream);
    device_destroy(dev);
    return done_testing();
}
