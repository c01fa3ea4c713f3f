/* kernel-shapes.h - what kernel-bench measures for elements of type T: included for each type, under
 * names that TYPED makes. */

#define OPERANDS                                                                           \
    T *a = TYPED(operands).a, *b = TYPED(operands).b, *c = TYPED(operands).c;              \
    T *d = TYPED(operands).d;                                                              \
    (void)a, (void)b, (void)c, (void)d

static struct { T *a, *b, *c, *d; } TYPED(operands);

/* One linear layer, forward and both gradients. */
static double TYPED(linear)(const char *name, int64_t m, int64_t n, int64_t k, bool wt,
                            bool bias) {
    OPERANDS;
    char what[80];
    double s, all = 0;
    const double count = 2.0 * (double)m * (double)n * (double)k;
    snprintf(what, sizeof what, "%s %dx%dx%d%s", name, (int)m, (int)n, (int)k,
             bias ? " + bias" : "");
    BEST(s, kernel_linear(m, n, k, a, b, wt, bias ? d : NULL, c));
    flops(what, count, s);
    all += s;
    snprintf(what, sizeof what, "%s dX", name);
    BEST(s, kernel_linear_dx(m, n, k, c, b, wt, (T *)e));
    flops(what, count, s);
    all += s;
    snprintf(what, sizeof what, "%s dW%s", name, bias ? " + db" : "");
    BEST(s, kernel_linear_dw(m, n, k, a, c, wt, 1, f);
         if (bias) kernel_add_param_dw(m, n, c, g));
    flops(what, count, s);
    return all + s;
}

static void TYPED(gemm)(void) {
    double s = 0, small = 0;
    s += TYPED(linear)("gpt-6x384 qkv", 2048, 1152, 384, false, true);
    s += TYPED(linear)("gpt-6x384 proj", 2048, 384, 384, false, true);
    s += TYPED(linear)("gpt-6x384 fc", 2048, 1536, 384, false, true);
    s += TYPED(linear)("gpt-6x384 fc2", 2048, 384, 1536, false, true);
    small = 6.0 * 2048 * 384 * (1152 + 384 + 1536 + 1536);
    flops("gpt-6x384 layer, all products", small, s);
    TYPED(linear)("gpt-6x384 head", 2048, 1024, 384, true, false);
    s = TYPED(linear)("gpt2 qkv", 2048, 2304, 768, false, true);
    s += TYPED(linear)("gpt2 proj", 2048, 768, 768, false, true);
    s += TYPED(linear)("gpt2 fc", 2048, 3072, 768, false, true);
    s += TYPED(linear)("gpt2 fc2", 2048, 768, 3072, false, true);
    flops("gpt2 layer, all products", 6.0 * 2048 * 768 * (2304 + 768 + 3072 + 3072), s);
    TYPED(linear)("gpt2 head", 2048, 50257, 768, true, false);
}

/* Keys part by part, as they go round among ranks. */
static void TYPED(attention_parts)(const struct kernel_attention *whole, int parts) {
    OPERANDS;
    struct kernel_attention t = *whole;
    t.kv_len /= parts;
    for (int p = 0; p < parts; p++) {
        const T *k = a + t.heads * t.dim + p * t.kv_len * t.kv_seq;
        t.first_key = p * t.kv_len;
        t.first = -t.first_key;
        t.more = p > 0;
        kernel_attention(&t, a, k, k + t.heads * t.dim, b, g);
    }
}

static void TYPED(attention_parts_bwd)(const struct kernel_attention *whole, int parts) {
    OPERANDS;
    T *dq = (T *)e;
    struct kernel_attention t = *whole;
    t.kv_len /= parts;
    for (int p = 0; p < parts; p++) {
        const int64_t at = t.heads * t.dim + p * t.kv_len * t.kv_seq, v = t.heads * t.dim;
        t.first_key = p * t.kv_len;
        t.first = -t.first_key;
        t.more = p > 0;
        kernel_attention_bwd(&t,
                             &(struct kernel_attention_bwd){a, a + at, a + at + v, b, g, c,
                                                            dq, dq + at, dq + at + v, f});
    }
}

static void TYPED(attention_shape)(int64_t batch, int64_t heads, int64_t len, int64_t dim,
                                   bool causal, int64_t buckets, int parts) {
    OPERANDS;
    const int64_t hidden = heads * dim;
    const struct kernel_attention t = {.batch = batch,
                                       .heads = heads,
                                       .q_len = len,
                                       .kv_len = len,
                                       .dim = dim,
                                       .value = dim,
                                       .kv_heads = heads,
                                       .group = 1,
                                       .q_batch = len * 3 * hidden,
                                       .q_seq = 3 * hidden,
                                       .kv_batch = len * 3 * hidden,
                                       .kv_seq = 3 * hidden,
                                       .v_batch = len * 3 * hidden,
                                       .v_seq = 3 * hidden,
                                       .o_batch = len * hidden,
                                       .o_seq = hidden,
                                       .causal = causal,
                                       .scale = 1.0f / sqrtf((float)dim),
                                       .positions = buckets ? a : NULL,
                                       .buckets = buckets,
                                       .distance = 128};
    const double pairs =
        (double)(batch * heads) *
        (causal ? 0.5 * (double)len * (double)(len + 1) : (double)len * (double)len);
    char what[80];
    double fwd, bwd;
    snprintf(what, sizeof what, "attention b=%d h=%d s=%d d=%d%s%s", (int)batch, (int)heads,
             (int)len, (int)dim, causal ? " causal" : "", buckets ? " positions" : "");
    if (parts > 1)
        snprintf(what + strlen(what), sizeof what - strlen(what), " in %d", parts);
    BEST(fwd, TYPED(attention_parts)(&t, parts));
    flops(what, 4 * pairs * (double)dim, fwd);
    BEST(bwd, TYPED(attention_parts_bwd)(&t, parts));
    flops("  backward, 5 products", 10 * pairs * (double)dim, bwd);
    flops("  both, 7 products", 14 * pairs * (double)dim, fwd + bwd);
}

static void TYPED(attention)(void) {
    TYPED(attention_shape)(8, 6, 256, 64, true, 0, 1);
    TYPED(attention_shape)(4, 12, 1024, 64, true, 0, 1);
    TYPED(attention_shape)(4, 12, 1024, 64, false, 0, 1);
    TYPED(attention_shape)(4, 12, 1024, 64, false, 0, 4);
    TYPED(attention_shape)(2, 16, 2048, 128, true, 0, 1);
    TYPED(attention_shape)(1, 1, 2048, 64, true, 0, 1);
    TYPED(attention_shape)(4, 12, 1024, 64, false, 32, 1);
}

static void TYPED(rmsnorm)(int64_t rows, int64_t n) {
    OPERANDS;
    const double all = sizeof(T) * (double)rows * (double)n;
    const struct device_args args = {.dtype = TYPE, .eps = 1e-5f};
    const union instr_n numbers = {.rmsnorm = {.rows = rows, .n = n, .total = n}};
    const union instr_src in = {.rmsnorm = {.x = a, .gamma = d}};
    const union instr_dst out = {.rmsnorm = {.y = c, .stat = e}};
    const union instr_src back = {.rmsnorm_bwd = {.x = a, .gamma = d, .stat = e, .dy = b}};
    const union instr_dst slopes = {.rmsnorm_bwd = {.dx = c, .dgamma = f}};
    double s;
    BEST(s, cpu_exec(I_rmsnorm, &numbers, &in, &out, &args));
    bytes("rms norm", 2 * all, s);
    BEST(s, cpu_exec(I_rmsnorm_bwd, &numbers, &back, &slopes, &args));
    bytes("rms norm backward", 3 * all, s);
}

static void TYPED(rows_shape)(int64_t rows, int64_t n, int64_t vocab) {
    OPERANDS;
    const double all = sizeof(T) * (double)rows * (double)n;
    const double logits = sizeof(T) * (double)rows * (double)vocab;
    double s;
    printf("# " NAME ": %d rows of %d, vocabulary %d\n", (int)rows, (int)n, (int)vocab);
    const struct kernel_layernorm norm = {rows, n, n, 1e-5f, 0};
    float *const grads[] = {f, f + n};
    BEST(s, kernel_layernorm(&norm, NULL, a, d, d, c, e));
    bytes("layernorm", 2 * all, s);
    BEST(s, kernel_layernorm_bwd(&norm, NULL, a, d, e, b, c, grads));
    bytes("layernorm backward", 3 * all, s);
    TYPED(rmsnorm)(rows, n);
    BEST(s, kernel_act(KERNEL_GELU, rows * 4 * n, a, c));
    bytes("gelu, 4 x as wide", 8 * all, s);
    BEST(s, kernel_act_dx(KERNEL_GELU, rows * 4 * n, a, b, c));
    bytes("gelu backward", 12 * all, s);
    BEST(s, kernel_swiglu(rows * 4 * n, a, b, c));
    bytes("swiglu, 4 x as wide", 12 * all, s);
    BEST(s, kernel_swiglu_bwd(rows * 4 * n, a, b, c, c, (T *)e));
    bytes("swiglu backward", 20 * all, s);
    const struct rotary_angles angles = {
        .log2_base = log2(1e4), .turned = 64, .factor = 1, .gain = 1};
    const struct kernel_rotary turn = {rows / 256, 256, n / 64, 64, 0, angles, false};
    BEST(s, kernel_rotary(&turn, a, c));
    bytes("rotary", 2 * all, s);
    BEST(s, kernel_add(rows * n, a, b, c));
    bytes("add", 3 * all, s);
    BEST(s, kernel_add_param_dw(rows, 4 * n, b, f));
    bytes("bias gradient, 4 x as wide", 4 * all, s);
    const struct kernel_targets target = {id, -1, 0};
    BEST(s, kernel_cross_entropy(rows, vocab, a, &target, e));
    bytes("cross-entropy", logits, s);
    BEST(s, kernel_cross_entropy_dx(rows, vocab, a, &target, e, 0.1f, c));
    bytes("cross-entropy backward", 2 * logits, s);
    BEST(s, kernel_embedding(rows, vocab, n, id, 0, b, c));
    bytes("embedding", 2 * all, s);
    BEST(s, kernel_embedding_dw(rows, vocab, n, id, 0, b, e));
    bytes("embedding backward", 3 * all, s);
    const struct kernel_box box = {.rank = 2, .size = {rows, n}, .whole = {rows, n}};
    BEST(s, kernel_dropout(&box, 0.1f, 1, 2, a, c));
    bytes("dropout", 2 * all, s);
    BEST(s, kernel_normal(&box, 0.02f, 1, 2, c));
    bytes("initial values", all, s);
    const int64_t params = 12 * n * n;
    memset(e, 0, (size_t)params * sizeof *e);
    memset(f, 0, (size_t)params * sizeof *f);
    const struct kernel_adamw adamw = {1, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 10};
    BEST(s, kernel_adamw(&adamw, params, operands.b, wide, e, f));
    bytes("adamw, a layer's parameters", 28.0 * (double)params, s);
    volatile double sink; /* the sum must be made */
    BEST(s, sink = kernel_sum_squares(params, wide));
    (void)sink;
    bytes("sum of squares", 4.0 * (double)params, s);
}

static void TYPED(rows)(void) {
    TYPED(rows_shape)(2048, 384, 1024);
    TYPED(rows_shape)(2048, 768, 50257);
}

/* A convolution that keeps the size, or halves it, and both gradients. */
static void TYPED(conv_shape)(int64_t batch, int64_t size, int64_t cin, int64_t cout,
                              int64_t taps, int64_t stride) {
    OPERANDS;
    const int64_t pad = taps / 2, out = (size + 2 * pad - taps) / stride + 1;
    const struct kernel_conv s = {batch, size, size, cin,    out, out,
                                  cout,  taps, taps, stride, pad, pad};
    const double count =
        2.0 * (double)(batch * out * out * cout) * (double)(taps * taps * cin);
    char what[80];
    double y, dx, dw;
    snprintf(what, sizeof what, "conv %dx %dx%d, %d to %d, %dx%d%s", (int)batch, (int)size,
             (int)size, (int)cin, (int)cout, (int)taps, (int)taps,
             stride > 1 ? " / 2" : "");
    BEST(y, kernel_conv(&s, a, b, c));
    flops(what, count, y);
    BEST(dx, kernel_conv_dx(&s, c, b, (T *)e));
    flops("  dX", count, dx);
    BEST(dw, kernel_conv_dw(&s, a, c, f));
    flops("  dW", count, dw);
}

/* Batch norm and the maximum of 3x3 over maps of n channels, in groups of all samples. */
static void TYPED(map_shape)(int64_t batch, int64_t size, int64_t n) {
    OPERANDS;
    const struct kernel_batchnorm t = {batch, size * size, n, 1, batch, 0, 1e-5f};
    const struct kernel_pool p = {batch, size, size, n, size / 2, size / 2, 3, 2, 1, 1};
    const int64_t total = batch * size * size;
    const double all = sizeof(T) * (double)(total * n);
    float *stat = g, *sums = g + 2 * n, *grads = g + 4 * n;
    double s;
    printf("# " NAME ": %d maps of %dx%d, %d channels\n", (int)batch, (int)size, (int)size,
           (int)n);
    BEST(s, kernel_batchnorm_moments(&t, a, sums, sums + n));
    bytes("batchnorm moments", all, s);
    kernel_batchnorm_stat(n, 1, total, sums, sums + n, stat);
    BEST(s, kernel_batchnorm(&t, a, d, d, stat, c));
    bytes("batchnorm", 2 * all, s);
    BEST(s, kernel_batchnorm_bwd_sums(&t, a, stat, b, sums, grads, grads + n));
    bytes("batchnorm backward, sums", 2 * all, s);
    BEST(s, kernel_batchnorm_bwd(&t, total, a, d, stat, b, sums, c));
    bytes("batchnorm backward", 3 * all, s);
    BEST(s, kernel_maxpool(&p, a, c));
    bytes("maximum of 3x3 / 2", 1.25 * all, s);
    BEST(s, kernel_maxpool_dx(&p, a, b, c));
    bytes("maximum of 3x3 / 2, backward", 2.25 * all, s);
}

static void TYPED(conv)(void) {
    TYPED(conv_shape)(8, 224, 3, 64, 7, 2);
    TYPED(conv_shape)(8, 56, 64, 64, 3, 1);
    TYPED(conv_shape)(8, 56, 64, 256, 1, 1);
    TYPED(conv_shape)(8, 56, 256, 512, 1, 2);
    TYPED(conv_shape)(8, 28, 128, 128, 3, 1);
    TYPED(conv_shape)(8, 14, 256, 256, 3, 1);
    TYPED(conv_shape)(8, 7, 512, 512, 3, 1);
    TYPED(conv_shape)(8, 7, 512, 2048, 1, 1);
    TYPED(conv_shape)(64, 32, 16, 16, 3, 1);
    TYPED(map_shape)(8, 56, 256);
    TYPED(map_shape)(8, 14, 1024);
}

#undef OPERANDS
