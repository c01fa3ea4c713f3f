/* gpu-train.c - training on GPUs that are not there: lib/cuda and lib/nccl as they are, on fakes of the
 * CUDA runtime, of NCCL and of the kernels (tests/fake).
 *
 * Streams advance in several orders, NCCL takes its time, and losses, norms and parameters must have
 * the bits of the CPU. (Kernels and sums of the fakes are the CPU's.) No rule of NCCL may be broken
 * and nothing may be left.
 *
 * usage: mpirun -n 2|4 gpu-train own|pairs|one     each rank has a GPU, or two share one, or all do
 */
#include "common/progress.h"
#include "cuda/cuda.h"
#include "device/cpu.h"
#include "fake/cudart.h"
#include "fake/nccl.h"
#include "nccl/nccl.h"
#include "tap_ranks.h"
#include "trained.h"

#include <stdlib.h>
#include <string.h>

/* What on_span has told of. */
struct spans {
    int64_t instrs, captured, expected;
    double end_s, seconds;
    bool wrong; /* a time that cannot be */
};

static void on_span(void *ctx, const struct exec_span *s) {
    struct spans *all = ctx;
    all->instrs += s->n;
    all->captured += s->captured ? s->n : 0;
    all->seconds += s->end_s - s->start_s;
    all->wrong |= !s->instr || s->n < 1 || s->end_s < s->start_s || s->start_s < all->end_s;
}

/* Instructions of one step of this rank. */
static int64_t instrs_of_step(const struct exec *x) {
    int64_t n = 0;
    for (int64_t i = 0; i < schedule_actions(&x->schedule); i++) {
        const struct action a = schedule_action(&x->schedule, i);
        const struct span s = program_segment(&x->g->stages[a.stage], a.segment);
        /* Behind the step: the next one is another. */
        if (a.segment >= SEG_PAIR && x->step % x->g->plan->average_every)
            continue;
        n += s.end - s.first;
    }
    return n;
}

static int train(const struct program *g, struct data *data,
                 const struct device_backend *device, struct spans *spans,
                 struct result *out, struct err *err) {
    struct exec_options o = exec_defaults();
    o.on_span = spans ? on_span : NULL;
    o.on_instr_ctx = spans;
    static float *shared;
    enum { ARENA = 4 << 20 };
    if (!shared && !(shared = comm_alloc(comm, ARENA, err)))
        return -1;
    o.device = device;
    o.arena = shared;
    o.arena_bytes = ARENA;
    o.warmup = 0;
    o.clip = 0.5;
    struct exec *x = exec_create(g, comm, data, &o, err);
    int rc = x ? exec_init(x, err) : -1;
    for (int s = 0; s < STEPS && rc == 0; s++) {
        struct exec_metrics m;
        if (spans)
            spans->end_s = now_s(); /* nothing that is told of was before the step */
        rc = exec_step(x, &m, err);
        /* The first is watched, and of every eight that follow the first. */
        if (spans)
            spans->expected += s < 2 ? instrs_of_step(x) : 0;
        out->mark[2 * s] = m.loss;
        out->mark[2 * s + 1] = m.grad_norm;
    }
    if (rc == 0)
        rc = exec_validate(x, 0, 1, go_on, NULL, &out->mark[2 * STEPS], err);
    if (rc == 0)
        rc = exec_drain(x, err);
    if (rc == 0)
        rc = read_back(x, out, err);
    exec_destroy(x);
    return rc;
}

static void check_orders(const struct program *g, struct data *data, const char *name,
                         const struct result *cpu) {
    static const struct {
        enum fake_order order;
        int turns;
        const char *what;
    } ways[] = {{FAKE_OLDEST_FIRST, -1, "old streams first: the bits of the CPU"},
                {FAKE_NEWEST_FIRST, 5, "new streams first, NCCL slow: the bits of the CPU"},
                {FAKE_DRAWN, 50, "in any order, NCCL slower: the bits of the CPU"}};
    for (int k = 0; k < 3; k++) {
        struct err err = {0};
        struct result r = {0};
        struct cuda_backend cuda = cuda_backend(&(struct cuda_options){
            .program = g, .rank = comm_rank(comm), .deterministic = true});
        fake_cuda.order = ways[k].order;
        fake_cuda.seed = (uint64_t)comm_rank(comm);
        fake_nccl.busy_turns = ways[k].turns;
        must(train(g, data, &cuda.backend, NULL, &r, &err), &err);
        ok_all(equal(cpu, &r), "%s: %s", name, ways[k].what);
        free(r.params);
    }
    ok_all(fake_nccl.broken == 0 && fake_cuda.bytes == 0,
           "%s: no rule of NCCL is broken, no memory of the GPU is left", name);
    ok_all(fake_cuda.waits_for_works == 0,
           "%s: no graph is made and no kernel loaded beside works of NCCL", name);
}

/* Watched steps have the bits of others, and tell of every instruction once. */
static void check_watched(const struct program *g, struct data *data, const char *name,
                          const struct result *cpu) {
    struct err err = {0};
    struct result r = {0};
    struct spans spans = {0};
    struct cuda_backend cuda = cuda_backend(&(struct cuda_options){
        .program = g, .rank = comm_rank(comm), .deterministic = true});
    fake_cuda.order = FAKE_DRAWN;
    must(train(g, data, &cuda.backend, &spans, &r, &err), &err);
    ok_all(equal(cpu, &r), "%s, watched: the bits of the CPU", name);
    ok_all(spans.instrs == spans.expected && spans.captured > spans.expected / 8 &&
               !spans.wrong && spans.seconds > 0,
           "%s: every instruction of a watched step has its time, %lld of %lld, %lld in "
           "captured regions",
           name, (long long)spans.instrs, (long long)spans.expected,
           (long long)spans.captured);
    free(r.params);
}

static struct program *compile(const char *text, struct plan **plan) {
    struct err err = {0};
    json_error_t where;
    json_t *doc = json_loads(text, 0, &where);
    *plan = plan_from_json(doc, &err);
    struct program *g = *plan ? program_compile(*plan, &err) : NULL;
    must(g ? 0 : -1, &err);
    json_decref(doc);
    return g;
}

/* First all plans on the CPU, since a job has one backend at a time. */
struct example {
    const char *name, *text;
    struct plan *plan;
    struct program *program;
    struct data *data;
    struct result cpu;
};

static void run_on_cpu(struct example *e) {
    struct err err = {0};
    struct data_spec spec = {.source = "synthetic",
                             .validation = 0.1,
                             .seed = 7,
                             .kind = DATA_TOKENS,
                             .seq = 8,
                             .vocab = 256};
    e->program = compile(e->text, &e->plan);
    must(data_open(&e->data, &spec, &err), &err);
    must(train(e->program, e->data, NULL, NULL, &e->cpu, &err), &err);
}

static void run_on_gpus(struct example *e, bool all_nccl) {
    int64_t before = fake_nccl.overlapped;
    check_orders(e->program, e->data, e->name, &e->cpu);
    check_watched(e->program, e->data, e->name, &e->cpu);
    if (all_nccl && e->plan->overlap)
        ok_all(fake_nccl.overlapped > before, "%s: it computes while NCCL is at work",
               e->name);
    free(e->cpu.params);
    data_close(e->data);
    program_destroy(e->program);
    plan_destroy(e->plan);
}

#define GPT(sizes)                                                                         \
    "{\"format\": \"weft-plan/1\", \"model\": \"gpt:nano\", \"batch\": 8, "                \
    "\"set\": \"layers=2,hidden=24,heads=2,seq=8" sizes "\", \"micro_batch\": 2, "

static struct example of_two[] = {
    {.name = "overlapped",
     .text = GPT(
         ",dropout=0.1") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2\", \"layout\": "
                         "{\"dp\": \"batch\"}, \"except\": [{\"ops\": \"layer.0.*\", "
                         "\"layout\": {}}]}]}"},
    {.name = "zero",
     .text = GPT("") "\"stages\": [{\"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"}, "
                     "\"zero\": 1}]}"},
    {.name = "zero3",
     .text = GPT(",dropout=0.1") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2\", "
                                 "\"layout\": {\"dp\": \"batch\"}, \"zero\": 3}]}"},
    {.name = "offloaded",
     .text = GPT(
         "") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2\", \"layout\": {\"dp\": "
             "\"batch\"}, \"offload\": [\"activations\"], \"except\": [{\"ops\": [\"wte\", "
             "\"loss\"], \"offload\": []}]}]}"},
    {.name = "pipeline",
     .text = GPT("") "\"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0\"]}, {}]}"},
    {.name = "interleaved",
     .text = GPT(
         "") "\"schedule\": \"interleaved\", \"stages\": [{\"group\": 0, \"ops\": [\"wte\", "
             "\"wpe\"]}, {\"group\": 1, \"ops\": \"layer.0\"}, {\"group\": 0, \"ops\": "
             "\"layer.1\"}, {\"group\": 1}]}"},
    {.name = "zero-bubble",
     .text = GPT("") "\"schedule\": \"zero-bubble\", \"stages\": [{\"ops\": [\"wte\", "
                     "\"wpe\", \"layer.0\"]}, {}]}"},
    {.name = "ring",
     .text =
         "{\"format\": \"weft-plan/1\", \"model\": \"llama:nano\", \"batch\": 8, \"set\": "
         "\"layers=2,hidden=24,heads=4,kv_heads=2,ffn=32,seq=8,vocab=256\", "
         "\"micro_batch\": 2, \"stages\": [{\"mesh\": \"cp:2\", \"ring\": true, "
         "\"layout\": {\"cp\": \"seq\"}}]}"}};

static struct example of_four[] = {
    {.name = "data and tensor",
     .text = GPT("") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2 tp:2\", "
                     "\"layout\": {\"dp\": \"batch\", \"tp\": [\"heads\", \"ffn\", "
                     "\"vocab\"]}, \"zero\": 1}]}"},
    {.name = "pipeline of different stages",
     .text = GPT(
         "") "\"overlap\": true, \"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0\"], "
             "\"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"}}, {\"mesh\": \"tp:2\", "
             "\"layout\": {\"tp\": [\"heads\", \"ffn\", \"vocab\"]}}]}"},
    {.name = "bf16",
     .text = GPT(
         "") "\"dtype\": \"bf16\", \"overlap\": true, \"stages\": [{\"mesh\": \"dp:2 tp:2\", \"layout\": {\"dp\": \"batch\", \"tp\": [\"heads\", \"ffn\"]}, \"zero\": 2}]}"},
    {.name = "apart, pairs",
     .text = GPT("") "\"average\": \"pairs\", \"stages\": [{\"mesh\": \"dp:2 tp:2\", "
                     "\"layout\": {\"dp\": \"batch\", \"tp\": [\"heads\", \"ffn\"]}}]}"},
    {.name = "apart, bf16",
     .text =
         GPT("") "\"dtype\": \"bf16\", \"average\": \"all\", \"average_every\": 2, "
                 "\"stages\": [{\"mesh\": \"dp:2 tp:2\", \"layout\": {\"dp\": \"batch\", "
                 "\"tp\": [\"heads\", \"ffn\"]}, \"zero\": 1}]}"}};

int main(int argc, char **argv) {
    struct err err = {0};
    int status = begin_job("gpu-train", &argc, &argv, NULL);
    if (status)
        return status;
    bool two = comm_size(comm) == 2;
    struct example *e = two ? of_two : of_four;
    size_t n = two ? sizeof of_two / sizeof *of_two : sizeof of_four / sizeof *of_four;
    struct nccl_report report;
    for (size_t i = 0; i < n; i++)
        run_on_cpu(&e[i]);
    fake_cuda.first_gpu = fake_cuda_gpu_of(argv[1], job_rank);
    must(comm_use(comm, &comm_backend_gpu, &(struct nccl_options){.report = &report}, &err),
         &err);
    bool own = !strcmp(argv[1], "own"), one = !strcmp(argv[1], "one");
    for (size_t i = 0; i < n; i++)
        run_on_gpus(&e[i], own);
    ok_all(report.sharing == (own ? 0 : comm_size(comm)), "%s: who shares is known",
           argv[1]);
    ok_all(one == (fake_nccl.collectives == 0),
           "%s: NCCL has the groups whose ranks have GPUs of their own", argv[1]);
    ok_all(one == (fake_cuda.first_streams == 0),
           "%s: what NCCL is given goes before what computes", argv[1]);
    comm_destroy(comm);
    comm = NULL;
    ok_here(fake_nccl.open == 0, "every communicator is ended");
    ok_here(report.communicators == fake_nccl.destroys, "and was counted: %d",
            report.communicators);
    return end_job();
}
