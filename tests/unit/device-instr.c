/* The device keeps to the table of instructions: each opcode runs over buffers of exactly the
 * elements that instr_work says (a sanitizer sees one more), writes every element of its results,
 * and gives the same bits where a result takes an operand's place. */
#include "device.h"

#include "device/device.h"

enum { SHAPES = 4 };

static struct device_stream *stream;

/* Numbers by their names; "inner" divides "elems". Four sets: small and odd, one block, uneven
 * blocks, ones. */
static int64_t number(const char *name, int shape) {
    static const struct {
        const char *name;
        int64_t value[SHAPES];
    } numbers[] = {
        {"m", {5, 64, 33, 1}},          {"n", {7, 32, 130, 1}},
        {"k", {3, 48, 65, 1}},          {"wt", {0, 1, 1, 0}},
        {"bias", {1, 0, 1, 1}},         {"rows", {5, 64, 33, 1}},
        {"vocab", {11, 64, 37, 1}},     {"width", {7, 48, 19, 1}},
        {"elems", {21, 4096, 1001, 1}}, {"inner", {7, 64, 13, 1}},
        {"parts", {3, 2, 4, 1}},        {"total", {14, 64, 390, 1}},
        {"batch", {2, 1, 3, 1}},        {"heads", {3, 2, 1, 1}},
        {"seq", {5, 32, 17, 1}},        {"outer", {2, 1, 3, 1}},
        {"groups", {2, 1, 3, 1}},       {"tokens", {5, 32, 17, 1}},
        {"experts", {3, 8, 5, 1}},      {"choices", {2, 2, 1, 1}},
        {"capacity", {3, 16, 5, 1}},    {"normalize", {0, 1, 0, 0}},
        {"limit", {3, 20, 16, 1}},      {"ih", {5, 16, 9, 1}},
        {"iw", {6, 16, 7, 1}},          {"oh", {3, 16, 4, 1}},
        {"ow", {3, 16, 3, 1}},          {"kh", {3, 3, 2, 1}},
        {"kw", {3, 3, 2, 1}},           {"ph", {1, 1, 0, 0}},
        {"pw", {1, 1, 0, 0}},           {"stride", {2, 1, 2, 1}},
        {"kernel", {3, 3, 2, 1}},       {"cin", {7, 16, 33, 1}},
        {"cout", {5, 32, 17, 1}},       {"c", {5, 64, 37, 1}},
        {"places", {6, 16, 5, 1}},      {"samples", {4, 8, 6, 1}},
        {"group", {2, 8, 2, 1}},        {"sent", {2, 3, 4, 1}},
        {"got", {2, 3, 4, 1}},          {"window", {6, 66, 37, 2}},
        {"causal", {0, 1, 1, 0}},       {"dim", {4, 16, 8, 2}},
        {"kv_heads", {2, 2, 2, 1}},     {"kv_seq", {9, 32, 17, 1}},
        {"buckets", {8, 0, 6, 0}},      {"packed", {0, 1, 0, 1}},
        {"back", {0, 1, 1, 0}},         {"lengths", {1, 0, 1, 0}},
        {"capped", {0, 1, 1, 0}},       {"front", {2, 1, 3, 1}},
        {"extra", {2, 0, 4, 1}},        {"columns", {3, 48, 65, 1}},
        {"starts", {0, 1, 0, 0}},       {"sloped", {1, 0, 1, 0}},
        {"value", {5, 0, 24, 0}},       {"few", {3, 2, 3, 1}},
        {"behind", {3, 16, 5, 1}},      {"sigmoid", {1, 0, 0, 1}},
        {"parts", {0, 2, 0, 0}},        {"kept", {0, 1, 0, 0}},
        {"best", {0, 2, 0, 0}},         {"biased", {1, 1, 0, 0}},
        {"plain", {0, 1, 0, 1}},        {"document", {0, 4, 0, 3}},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(numbers[i].name, name))
            return numbers[i].value[shape];
    ok(0, "a size for \"%s\"", name);
    return 1;
}

/* Exactly so many bytes, aligned as in an arena; NULL for none. */
static void *exactly(int64_t bytes) {
    void *p = NULL;
    if (bytes && posix_memalign(&p, 64, (size_t)bytes))
        abort();
    return p;
}

/* One instruction with its operands, as they are before it runs. */
struct trial {
    enum opcode code;
    enum dtype dtype;    /* of the instruction */
    enum dtype rounding; /* a type that holds all numbers of operands that have its type */
    const struct instr_info *info;
    union instr_n n;
    struct instr_work work;
    struct device_args args;
    struct matrices matrices;
    struct scalars now;
    double per_target;
    int64_t size[2], stride[2]; /* of a copy */
    struct halo_piece piece;    /* of halo_*: the rows of one message */
    void *in[INSTR_MAX_IN], *out[INSTR_MAX_OUT];
};

static int64_t in_bytes(const struct trial *t, int k) {
    return t->work.in[k] * dtype_size(operand_dtype(&t->info->in[k], t->dtype));
}

static int64_t out_bytes(const struct trial *t, int k) {
    return t->work.out[k] * dtype_size(operand_dtype(&t->info->out[k], t->dtype));
}

static float rounded(enum dtype dtype, float x) {
    uint32_t room;
    kernel_narrow(1, dtype, &x, &room);
    kernel_widen(1, dtype, &room, &x);
    return x;
}

/* A number of an operand or result, whatever its type. */
static void set_number(const struct trial *t, const struct operand_info *o, void *p,
                       int64_t i, float x) {
    const enum dtype dtype = operand_dtype(o, t->dtype);
    x = rounded(operand_dtype(o, t->rounding), x);
    kernel_narrow(1, dtype, &x, (char *)p + i * dtype_size(dtype));
}

static float get_number(const struct trial *t, const struct operand_info *o, const void *p,
                        int64_t i) {
    const enum dtype dtype = operand_dtype(o, t->dtype);
    float x;
    kernel_widen(1, dtype, (const char *)p + i * dtype_size(dtype), &x);
    return x;
}

/* Whole numbers, or positive ones: variances, second moments and sums of exponentials are. */
static void fill_operand(struct trial *t, int k) {
    const struct operand_info *o = &t->info->in[k];
    const bool ids = o->flags & OPERAND_IDS;
    for (int64_t i = 0; i < t->work.in[k]; i++) {
        uint64_t id = ids ? rng_bits(3, 0, (uint64_t)i) : (uint64_t)i;
        if (o->flags & OPERAND_STARTS) /* documents of three tokens */
            ((int32_t *)t->in[k])[i] = (int32_t)(i % t->work.below[k] / 3 * 3);
        else if (ids || o->flags & OPERAND_SLOTS)
            ((int32_t *)t->in[k])[i] = (int32_t)(id % (uint64_t)t->work.below[k]);
        else
            set_number(t, o, t->in[k], i,
                       0.5f + fabsf(rng_normal(7, (uint64_t)k, (uint64_t)i)));
    }
}

/* What goes to or comes from another rank stands first, in a window what is own behind it. */
static void begin_halo(struct trial *t) {
    const union instr_n *n = &t->n;
    bool packs = t->code == I_halo_pack;
    int64_t own = n->halo_join.window - n->halo_join.got, rows = n->halo_join.rows;
    t->piece = (struct halo_piece){0, packs ? n->halo_pack.sent : n->halo_join.got};
    t->args.halo =
        (struct kernel_halo){.outer = n->halo_join.outer,
                             .inner = n->halo_join.inner,
                             .own = {0, n->halo_join.got, own < rows ? own : rows},
                             .pieces = &t->piece,
                             .n_pieces = 1};
}

static void begin(struct trial *t, enum opcode code, int shape, enum dtype dtype,
                  enum dtype rounding) {
    *t = (struct trial){
        .code = code, .dtype = dtype, .rounding = rounding, .info = instr_info(code)};
    for (int k = 0; k < t->info->n_shape; k++)
        t->n.v[k] = number(t->info->shape[k], shape);
    instr_work(code, &t->n, &t->work);
    for (int k = 0; k < t->info->n_in; k++)
        if ((t->in[k] = exactly(in_bytes(t, k))))
            fill_operand(t, k);
    int64_t elems = t->work.out[0], inner = code == I_copy ? t->n.copy.inner : 1;
    t->matrices = matrices_dense(&t->n.matmul);
    t->size[0] = elems / inner;
    t->size[1] = t->stride[0] = inner;
    t->stride[1] = 1;
    t->now = (struct scalars){
        .lr = 0.1f, .grad_scale = 1, .loss_scale = 1, .updates = 1, .seed = 1};
    t->per_target = 1;
    t->args = (struct device_args){.dtype = dtype,
                                   .scalars = &t->now,
                                   .matrices = &t->matrices,
                                   .counts = true,
                                   .per_target = &t->per_target,
                                   .weight = 1,
                                   .ignore = -1,
                                   .eps = 1e-5f,
                                   .scale = code == I_softcap_dx ? 3 : 0.1f,
                                   .angles = {.log2_base = log2(1e4),
                                              .turned = t->n.rotary.dim / 2 * 2,
                                              .factor = 1,
                                              .gain = 1},
                                   .distance = 16,
                                   .cap = 0.7f,
                                   .box = {.rank = 1, .size = {elems}, .whole = {elems}},
                                   .rate = 0.5f,
                                   .copy = {2, t->size, t->stride, t->stride},
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .opt_eps = 1e-8f,
                                   .decay = 0.1f,
                                   .momentum = 0.9f};
    begin_halo(t);
}

static void end(struct trial *t) {
    for (int k = 0; k < INSTR_MAX_IN; k++)
        free(t->in[k]);
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        free(t->out[k]);
}

/* Runs it; the first result takes the place of operand `over`, if that is not -1. What is added
 * to begins with numbers, all else with NaN. Results are left in t->out. Returns what it added to
 * the sums. */
static double run(struct trial *t, int over) {
    union instr_src src = {{NULL}};
    union instr_dst dst = {{NULL}};
    void *taken = NULL;
    if (over >= 0 && (taken = exactly(in_bytes(t, over))))
        memcpy(taken, t->in[over], (size_t)in_bytes(t, over));
    for (int k = 0; k < t->info->n_in; k++)
        src.v[k] = k == over ? taken : t->in[k];
    for (int k = 0; k < t->info->n_out; k++) {
        const struct operand_info *o = &t->info->out[k];
        t->out[k] = k == 0 && taken ? taken : exactly(out_bytes(t, k));
        for (int64_t i = 0; i < t->work.out[k] && t->out[k] != taken; i++)
            set_number(t, o, t->out[k], i,
                       o->flags & OPERAND_ADD &&
                               !(t->args.fresh && o->flags & OPERAND_FRESH)
                           ? fabsf(rng_normal(9, (uint64_t)k, (uint64_t)i))
                           : NAN);
        dst.v[k] = t->out[k];
    }
    if (device_launch(stream, t->code, &t->n, &src, &dst, &t->args, NULL) < 0)
        return NAN;
    double sum = t->now.loss_sum + t->now.norm_squared;
    for (int k = 0; k < METRIC_COUNT; k++)
        sum += t->now.metrics[k];
    return sum;
}

static bool finite_results(const struct trial *t) {
    for (int k = 0; k < t->info->n_out; k++)
        for (int64_t i = 0; i < t->work.out[k]; i++)
            if (!isfinite(get_number(t, &t->info->out[k], t->out[k], i)))
                return false;
    return true;
}

/* The operands are as they were: the instruction wrote to its results alone. */
static bool operands_kept(const struct trial *t, const struct trial *fresh) {
    for (int k = 0; k < t->info->n_in; k++)
        if (t->work.in[k] && memcmp(t->in[k], fresh->in[k], (size_t)in_bytes(t, k)) != 0)
            return false;
    return true;
}

/* Where its sums begin, what is there is not read. */
static void test_fresh(enum opcode code, int shape, enum dtype dtype, const char *key) {
    struct trial t;
    begin(&t, code, shape, dtype, dtype);
    for (int k = 0; k < t.info->n_out; k++)
        t.args.fresh |= (t.info->out[k].flags & OPERAND_FRESH) != 0;
    if (t.args.fresh) {
        run(&t, -1);
        ok(finite_results(&t), "%s %s: begins its sums", t.info->name, key);
    }
    end(&t);
}

static void test_shape(enum opcode code, int shape, enum dtype dtype) {
    struct trial t, other;
    char key[80];
    begin(&t, code, shape, dtype, dtype);
    begin(&other, code, shape, dtype, dtype);
    instr_shape_format(code, &t.n, key, sizeof key);
    snprintf(key + strlen(key), sizeof key - strlen(key), " %s", dtype_name(dtype));
    double sum = run(&t, -1);
    ok(finite_results(&t) && isfinite(sum) && operands_kept(&t, &other),
       "%s %s: writes its results, all of them, and nothing else", t.info->name, key);
    end(&other);
    for (int k = 0; k < t.info->n_in; k++) {
        if (!(t.info->in[k].flags & OPERAND_OVER))
            continue;
        begin(&other, code, shape, dtype, dtype);
        bool equal = run(&other, k) == sum;
        for (int o = 0; o < t.info->n_out; o++)
            equal &= !t.work.out[o] ||
                     memcmp(t.out[o], other.out[o], (size_t)out_bytes(&t, o)) == 0;
        ok(equal, "%s %s: the same bits in the place of %s", t.info->name, key,
           t.info->in[k].name);
        end(&other);
    }
    end(&t);
    test_fresh(code, shape, dtype, key);
}

/* The largest distance of a result from what it is in 32 bits, in units of the rounding of the
 * number and of the root of the mean square of all: results and what they are made of are rounded. */
static double distance(const struct trial *t, const struct trial *exact, int k) {
    const struct operand_info *o = &t->info->out[k];
    const double unit = t->dtype == DTYPE_bf16 ? 0x1p-8 : 0x1p-11;
    double squares = 0, most = 0;
    for (int64_t i = 0; i < t->work.out[k]; i++)
        squares += pow(get_number(exact, o, exact->out[k], i), 2);
    const double scale = sqrt(squares / (double)t->work.out[k]);
    for (int64_t i = 0; i < t->work.out[k]; i++) {
        double want = get_number(exact, o, exact->out[k], i);
        double apart = fabs(get_number(t, o, t->out[k], i) - want);
        most = fmax(most, apart / (unit * (fabs(want) + scale) + 1e-30));
    }
    return most;
}

/* In 16 bits an instruction does what it does in 32 with the same numbers, up to rounding. */
static void test_half(enum opcode code, int shape, enum dtype dtype) {
    struct trial t, exact;
    double most = 0;
    test_shape(code, shape, dtype);
    begin(&t, code, shape, dtype, dtype);
    begin(&exact, code, shape, DTYPE_f32, dtype);
    double sum = run(&t, -1), exact_sum = run(&exact, -1);
    for (int k = 0; k < t.info->n_out; k++)
        if (t.work.out[k])
            most = fmax(most, distance(&t, &exact, k));
    ok(most <= 2 && fabs(sum - exact_sum) <= 1e-5 * fabs(exact_sum),
       "%s %s: off by %.2f units, sum %g for %g", t.info->name, dtype_name(dtype), most,
       sum, exact_sum);
    end(&t);
    end(&exact);
}

static bool adds(enum opcode code) {
    return code == I_cross_entropy || code == I_cross_entropy_finish ||
           code == I_sum_squares || code == I_balance || code == I_router_z ||
           code == I_dropped;
}

/* Losses, norms and metrics go to the scalars: on top of what is there, weighted, where they count. */
static void test_sums(enum opcode code) {
    struct trial t;
    double sum[3];
    for (int k = 0; k < 3; k++) {
        begin(&t, code, 2, DTYPE_f32, DTYPE_f32);
        t.now.loss_sum = k == 1 ? 1000 : 0;
        t.args.counts = k < 2;
        t.per_target = t.args.weight = k == 1 ? 0.5 : 1;
        sum[k] = run(&t, -1);
        end(&t);
    }
    double weight = code == I_sum_squares ? 1 : 0.5;
    ok(sum[0] != 0 && fabs(sum[1] - (1000 + weight * sum[0])) < 1e-9 && sum[2] == 0,
       "%s adds %g to the sum, and nothing where it does not count", opcode_name(code),
       sum[0]);
}

static void test_opcode(enum opcode code) {
    if (!opcode_computes(code))
        return;
    for (int shape = 0; shape < SHAPES; shape++) {
        test_shape(code, shape, DTYPE_f32);
        test_half(code, shape, DTYPE_bf16);
        test_half(code, shape, DTYPE_f16);
    }
    if (adds(code))
        test_sums(code);
}

/* Dropout draws anew for each step, op, seed and place in the batch, and not while evaluating. */
static void test_dropout_scalars(void) {
    struct trial base, other;
    begin(&base, I_dropout, 1, DTYPE_f32, DTYPE_f32);
    run(&base, -1);
    for (int k = 0; k < 6; k++) {
        begin(&other, I_dropout, 1, DTYPE_f32, DTYPE_f32);
        other.now.step = k == 1;
        other.now.seed += k == 2;
        other.now.first_sample = k == 3 ? 64 : 0;
        other.args.op = k == 4;
        other.now.evaluating = k == 5;
        other.args.batch_dims = 1;
        run(&other, -1);
        int64_t n = other.work.out[0];
        bool equal = same(n, base.out[0], other.out[0]);
        bool whole = same(n, other.in[0], other.out[0]);
        ok(equal == (k == 0) && whole == (k == 5), "dropout by its scalars (%d)", k);
        end(&other);
    }
    end(&base);
}

static void test_device(int threads) {
    struct err err = {0};
    struct device *dev = device_create(&device_backend_cpu, 0, threads, &err);
    stream = dev ? device_stream_create(dev, &err) : NULL;
    ok(stream != NULL, "a device with %d threads %s", threads, err.msg);
    for (int c = 0; c < OPCODE_COUNT && stream; c++)
        test_opcode((enum opcode)c);
    test_dropout_scalars();
    device_stream_destroy(stream);
    device_destroy(dev);
}

int main(void) {
    struct err err = {0};
    for (int threads = 1; threads <= 2; threads++)
        test_device(threads);
    ok(!device_create(&device_backend_cpu, 0, 0, &err), "no threads are refused: %s",
       err.msg);
    return done_testing();
}
