/* gpu-kernels [SEEDS [OPCODE]] - every instruction on a GPU does what it does on the CPU: on
 * random shapes, in 32 and in 16 bits, launched and replayed from a graph, and with a result
 * in the place of an operand. Operands stay as they are. Where there is no GPU it says so.
 *
 * What is compared is rounded to the type of the instruction on both sides: 1e-5 for f32,
 * 2e-2 for bf16 and 4e-3 for f16, of a number and the root of the mean square of its tensor. */
#include "../unit/tap.h"
#include "../unit/trial.h"
#include "cuda/cuda.h"
#include "device/cpu.h"
#include "program/workspace.h"

static struct device *dev;
static struct device_stream *stream;

/* On the device: the trial's operands, results, scalars and factor. */
struct there {
    union instr_src in;
    union instr_dst out;
    struct scalars *now;
    double *per_target;
};

static void *up(const void *from, int64_t bytes, struct err *err) {
    void *p = bytes ? device_alloc(dev, bytes, err) : NULL;
    if (p && device_upload(stream, p, from, bytes, err) < 0)
        return NULL;
    return p;
}

/* HOST operands lie in memory of the host that the device reads by itself. */
static void *up_operand(const struct operand_info *o, const void *from, int64_t bytes,
                        struct err *err) {
    if (!(o->flags & OPERAND_HOST) || !bytes)
        return up(from, bytes, err);
    void *p = device_alloc_host(dev, bytes, err);
    return p ? memcpy(p, from, (size_t)bytes) : NULL;
}

static bool move_up(const struct trial *t, struct there *d, struct err *err) {
    bool good = true;
    *d = (struct there){.now = up(&t->now, sizeof t->now, err),
                        .per_target = up(&t->per_target, sizeof t->per_target, err)};
    for (int k = 0; k < t->info->n_in; k++) {
        d->in.v[k] = up_operand(&t->info->in[k], t->in[k], trial_in_bytes(t, k), err);
        good &= d->in.v[k] || !trial_in_bytes(t, k);
    }
    for (int k = 0; k < t->info->n_out; k++) {
        bool over = k == 0 && t->over >= 0;
        d->out.v[k] =
            over ? d->in.v[t->over]
                 : up_operand(&t->info->out[k], t->out[k], trial_out_bytes(t, k), err);
        good &= d->out.v[k] || !trial_out_bytes(t, k);
    }
    return good && d->now && d->per_target;
}

static int down(const struct operand_info *o, void *to, const void *from, int64_t bytes,
                struct err *err) {
    if (!bytes)
        return 0;
    if (o->flags & OPERAND_HOST)
        return memcpy(to, from, (size_t)bytes) ? 0 : -1;
    return device_download(stream, to, from, bytes, err);
}

static int move_down(struct trial *t, const struct there *d, struct err *err) {
    int rc = device_download(stream, &t->now, d->now, sizeof t->now, err);
    for (int k = 0; k < t->info->n_in && rc == 0; k++)
        rc = down(&t->info->in[k], t->in[k], d->in.v[k], trial_in_bytes(t, k), err);
    for (int k = t->over >= 0; k < t->info->n_out && rc == 0; k++)
        rc = down(&t->info->out[k], t->out[k], d->out.v[k], trial_out_bytes(t, k), err);
    return rc;
}

static void drop(const struct operand_info *o, void *p) {
    if (o->flags & OPERAND_HOST)
        device_free_host(dev, p);
    else
        device_free(dev, p);
}

static void release(const struct trial *t, struct there *d) {
    for (int k = t->over >= 0; k < t->info->n_out; k++)
        drop(&t->info->out[k], d->out.v[k]);
    for (int k = 0; k < t->info->n_in; k++)
        drop(&t->info->in[k], d->in.v[k]);
    device_free(dev, d->now);
    device_free(dev, d->per_target);
}

/* Launched, or recorded and then replayed. */
static int give(const struct trial *t, const struct there *d,
                const struct device_args *args, bool records, struct err *err) {
    if (!records)
        return device_launch(stream, t->code, &t->n, &d->in, &d->out, args, err);
    if (device_record_begin(stream, err) < 0)
        return -1;
    int rc = device_launch(stream, t->code, &t->n, &d->in, &d->out, args, err);
    struct device_recording *r = device_record_end(stream, rc < 0 ? NULL : err);
    if (rc == 0)
        rc = r ? device_replay(r, stream, err) : -1;
    if (rc == 0)
        rc = device_synchronize(stream, err);
    device_recording_destroy(r);
    return rc;
}

static int on_gpu(struct trial *t, bool records, struct err *err) {
    struct there d;
    struct device_args args = t->args;
    int rc = move_up(t, &d, err) ? 0 : -1;
    args.scalars = d.now;
    args.per_target = d.per_target;
    if (rc == 0)
        rc = give(t, &d, &args, records, err);
    if (rc == 0)
        rc = move_down(t, &d, err);
    release(t, &d);
    return rc;
}

static bool same_operands(const struct trial *a, const struct trial *b) {
    bool same = true;
    for (int k = 0; k < a->info->n_in; k++)
        same &= k == b->over || !a->work.in[k] ||
                !memcmp(a->in[k], b->in[k], (size_t)trial_in_bytes(a, k));
    return same;
}

/* NULL, or what is wrong. */
static const char *judge(struct trial *want, struct trial *got, int over, bool records,
                         double most, double *apart, struct err *err) {
    trial_results(want, -1);
    trial_results(got, over);
    trial_on_cpu(want);
    if (on_gpu(got, records, err) < 0)
        return err->msg;
    *apart = trial_distance(got, want);
    if (!(*apart <= most))
        return over < 0 ? "is not what the CPU computes" : "is not right in place";
    return same_operands(want, got) ? NULL : "changes operands";
}

/* One seed: launched, replayed, and in the place of each operand that allows it. Launched
 * first, for libraries choose before streams are captured. */
static const char *try_seed(enum opcode code, enum dtype dtype, uint64_t seed, double most,
                            double *worst, char *name, size_t size, struct err *err) {
    const struct instr_info *info = instr_info(code);
    const char *wrong = NULL;
    for (int way = 0; way < info->n_in + 2 && !wrong; way++) {
        const int over = way - 2;
        const bool records = way == 1;
        struct trial want, got;
        double apart = 0;
        if (over >= 0 && !(info->in[over].flags & OPERAND_OVER))
            continue;
        trial_begin(&want, code, dtype, seed);
        trial_begin(&got, code, dtype, seed);
        trial_name(&want, name, size);
        if (over < 0 || want.work.in[over])
            wrong = judge(&want, &got, over < 0 ? -1 : over, records, most, &apart, err);
        *worst = fmax(*worst, apart);
        trial_end(&want);
        trial_end(&got);
    }
    return wrong;
}

static void test_opcode(enum opcode code, enum dtype dtype, int seeds, const char *by) {
    const double most = dtype == DTYPE_f32 ? 1e-5 : dtype == DTYPE_bf16 ? 2e-2 : 4e-3;
    double worst = 0;
    char name[256] = "", bad[1500] = "";
    const char *wrong = NULL;
    for (int seed = 1; seed <= seeds && !wrong; seed++) {
        struct err err = {0};
        wrong =
            try_seed(code, dtype, (uint64_t)seed, most, &worst, name, sizeof name, &err);
        if (wrong)
            snprintf(bad, sizeof bad, "; seed %d, %s: %s", seed, name, wrong);
    }
    ok(!wrong, "%s %s%s: at most %.1e apart%s", opcode_name(code), dtype_name(dtype), by,
       worst, bad);
}

static bool computes(enum opcode code) {
    return opcode_key(code) == KEY_SHAPE || opcode_key(code) == KEY_CURVE;
}

static bool is_convolution(enum opcode code) {
    return code == I_conv2d || code == I_conv2d_dx || code == I_conv2d_dw;
}

/* All instructions with weft's own kernels for convolutions, or these alone by cuDNN. */
static void test_device(int seeds, const char *name, bool cudnn) {
    static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    struct err err = {0};
    struct cuda_backend cuda = cuda_backend(&(struct cuda_options){
        .workspace_bytes = 256 << 20, .convolution = cudnn ? "cudnn" : "own"});
    dev = device_create(&cuda.backend, 0, 2, &err);
    stream = dev ? device_stream_create(dev, &err) : NULL;
    ok(stream != NULL, "a GPU %s", err.msg);
    for (int c = 0; c < OPCODE_COUNT && stream; c++) {
        const enum opcode code = (enum opcode)c;
        if (!computes(code) || (cudnn && !is_convolution(code)) ||
            !strstr(opcode_name(code), name))
            continue;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            test_opcode(code, types[i], seeds, cudnn ? " by cuDNN" : "");
    }
    device_stream_destroy(stream);
    device_destroy(dev);
}

int main(int argc, char **argv) {
    struct err err = {0};
    int seeds = argc > 1 ? atoi(argv[1]) : 10;
    const char *name = argc > 2 ? argv[2] : "";
    int gpus = cuda_count(&err);
    if (gpus <= 0) {
        printf("1..0 # SKIP no GPU: %s\n", gpus < 0 ? err.msg : "none is to be seen");
        return 0;
    }
    if (kernel_init(2, &err) < 0)
        return 4;
    test_device(seeds, name, false);
    test_device(seeds, name, true);
    kernel_release();
    return done_testing();
}
