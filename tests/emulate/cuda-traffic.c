/* What kernels make of the memory's bandwidth: on shapes of GPT-2 in bf16 the accesses of warps are counted
 * (watch.h), sectors of global memory and transactions of shared memory beside the fewest that would do.
 * They may be 5 % more, or as much as stands with the instruction. make check-long prints the places that
 * waste most. */
#include "../unit/tap.h"
#include "../unit/trial_call.h"
#include "cuda/cuda_compute.h"
#include "emulate.h"
#include "watch.h"

/* Few rows, of the width that matters; by how many percent transactions may be more than the fewest. */
static const struct {
    enum opcode code;
    int64_t shape[INSTR_MAX_SHAPE];
    int sectors, shared; /* 0: 5 */
} shapes[] = {
    {I_embedding, {64, 1000, 768}, 0, 0},
    {I_embedding_dw, {64, 1000, 768}, 0, 0},
    {I_bias, {64 * 2304, 2304}, 0, 0},
    /* sums of chunks in floats, of columns in vectors of 16 bits: lanes write every second vector */
    {I_bias_dw, {64 * 2304, 2304}, 10, 0},
    {I_layernorm, {32, 768, 1}, 0, 0},
    {I_layernorm, {8, 2048, 1}, 0, 0},
    /* the same of sums of rows, in shared memory too */
    {I_layernorm_bwd, {32, 768, 768}, 30, 100},
    {I_layernorm_bwd, {8, 2048, 2048}, 30, 100},
    {I_rmsnorm, {8, 2048, 2048}, 0, 0},
    {I_rmsnorm_bwd, {8, 2048, 2048}, 30, 100},
    {I_rotary, {1, 32, 12, 64, 0}, 0, 0},
    {I_gelu, {64 * 3072}, 0, 0},
    {I_gelu_dx, {64 * 3072}, 0, 0},
    {I_swiglu, {64 * 3072}, 0, 0},
    {I_swiglu_bwd, {64 * 3072}, 0, 0},
    {I_add, {64 * 768}, 0, 0},
    {I_scale, {64 * 768}, 0, 0},
    {I_cross_entropy, {4, 50304}, 0, 0},
    {I_cross_entropy_dx, {4, 50304}, 0, 0},
    {I_widen, {64 * 768}, 0, 0},
    {I_narrow, {64 * 768}, 0, 0},
    {I_sum_squares, {64 * 768}, 0, 0},
    {I_adamw, {64 * 768}, 0, 0},
    /* results leave the registers of mma.sync four bytes a lane: half a sector of a row */
    {I_attention, {1, 1, 1, 1, 256, 256, 64, 1, 0, 1, 0}, 25, 0},
    {I_attention_bwd, {1, 1, 1, 1, 256, 256, 64, 1, 0, 1, 0}, 25, 0},
};

enum { MOST_PLACES = 4096, PRINTED = 12 };

static struct emu_traffic all[MOST_PLACES];
static int places;

/* Of a kind of memory. */
struct sum {
    long long moved, least;
};

static struct sum sum_of(const struct emu_traffic *p, int n, bool shared) {
    struct sum s = {0, 0};
    for (int i = 0; i < n; i++)
        if (p[i].shared == shared)
            s.moved += p[i].moved, s.least += p[i].least;
    return s;
}

static bool little(struct sum s, int percent) {
    return s.moved * 100 <= s.least * (100 + (percent ? percent : 5));
}

/* Runs it once, and adds what it uses to `all`. */
static int count(struct trial *t, struct err *err) {
    struct cuda_device dev = {.arch = 90, .processors = 132, .shared_bytes = 227 << 10};
    struct cuda_call c = trial_call(&dev, t, err);
    trial_results(t, -1);
    const struct cuda_given g = trial_given(t);
    emu_traffic(true);
    const int status = cuda_compute(&c, g.code, &g.n, &g.in, &g.out);
    emu_traffic(false);
    emu_forget();
    free(c.workspace);
    return status;
}

static void test_shape(size_t i) {
    struct err err = {0};
    struct trial t;
    char name[256];
    trial_begin_shape(&t, shapes[i].code, DTYPE_bf16, 1, shapes[i].shape);
    const int status = count(&t, &err);
    const int n = emu_traffic_places(all + places, MOST_PLACES - places);
    const struct sum global = sum_of(all + places, n, false);
    const struct sum shared = sum_of(all + places, n, true);
    places += n;
    ok(status == 0 && global.moved > 0 && little(global, shapes[i].sectors) &&
           little(shared, shapes[i].shared),
       "%s: %lld sectors for %lld, %lld transactions of shared memory for %lld "
       "%s",
       trial_name(&t, name, sizeof name), global.moved, global.least, shared.moved,
       shared.least, err.msg);
    trial_end(&t);
}

static int by_waste(const void *a, const void *b) {
    const struct emu_traffic *x = a, *y = b;
    const int64_t more = (y->moved - y->least) - (x->moved - x->least);
    return more > 0 ? 1 : more < 0 ? -1 : (x->place > y->place) - (x->place < y->place);
}

/* For who makes kernels faster: shown at the end of make check-long. */
static void print_worst(void) {
    if (!getenv("WEFT_LONG"))
        return;
    printf("#| transactions of CUDA kernels, beyond the fewest that their bytes need:\n");
    qsort(all, (size_t)places, sizeof *all, by_waste);
    for (int i = 0; i < places && i < PRINTED && all[i].moved > all[i].least; i++) {
        char where[256];
        emu_place(all[i].place, where, sizeof where);
        printf("#| %s memory: %lld transactions for %lld: %s at %s\n",
               all[i].shared ? "shared" : "global", (long long)all[i].moved,
               (long long)all[i].least, all[i].kernel, where);
    }
}

int main(int argc, char **argv) {
    struct err err = {0};
#ifdef __clang__
    printf("1..0 # SKIP clang takes vectors apart\n");
    return 0;
#endif
    if (kernel_init(1, &err) < 0)
        return 4;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (argc < 2 || strstr(opcode_name(shapes[i].code), argv[1]))
            test_shape(i);
    print_worst();
    kernel_release();
    return done_testing();
}
