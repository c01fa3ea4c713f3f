/* exec-streams.c - the executor on a device whose streams run apart, made of nothing but the
 * headers of device and comm.
 *
 * The device of this test only notes what it is given. When the executor waits for it, it works
 * off its streams in the worst orders that events allow: either what is between ranks as early as
 * possible, or as late. Its collectives and messages (a backend of comm on streams) are done in
 * that order too. So a wait that the executor forgot changes the training, which else has the bits
 * of the CPU. The device can record, and its memory is not the host's.
 *
 * With "stage", works between ranks go by way of the hosts (comm/comm_stage.h) instead: in the same
 * orders, with the same bits.
 *
 * usage: mpirun -n 2 exec-streams FOLDER [stage]
 */
#include "comm/comm_backend.h"
#include "comm/comm_stage.h"
#include "device/cpu.h"
#include "device/device_backend.h"
#include "tap_ranks.h"
#include "trained.h"
#include "waited.h"

#include <stdlib.h>

static bool staged; /* works between ranks go by way of the hosts */

/* ---- the device ----------------------------------------------------------------------------- */

enum op_kind { OP_LAUNCH, OP_UPLOAD, OP_UNPACK, OP_RECORD, OP_WAIT, OP_WORK };

struct event {
    int64_t given, reached; /* how often it was recorded, and how many of those were done */
};

struct op {
    enum op_kind kind;
    enum opcode code;
    union instr_n n;
    union instr_src in;
    union instr_dst out;
    struct device_args args;
    void *dst, *data; /* of upload; the data are owned */
    int64_t bytes;    /* numbers, of unpack, */
    const void *src;  /* which reads them when its turn comes */
    enum dtype from, to;
    struct event *event;
    int64_t mark; /* of the event */
    struct comm_work work;
};

typedef ARR(struct op) op_list;

struct stream {
    op_list ops;
    int64_t done;
    bool capturing;
    op_list recorded;
};

static struct {
    bool late; /* what is between ranks goes last, not first */
    bool deaf; /* waits for events are ignored: this must be seen */
    /* In the order in which they were made: the executor's first. */
    ARR(struct stream *) streams;
    int launches, works, replays; /* given by the executor */
    int overlapped;               /* launches given while a collective was under way */
    int under_way;
} fake;

static struct op *give(struct device_stream *s, enum op_kind kind) {
    struct stream *q = s->state;
    op_list *to = q->capturing ? &q->recorded : &q->ops;
    arr_push(to, (struct op){.kind = kind});
    return &to->p[to->n - 1];
}

static int do_work(struct comm_work *w, struct err *err) {
    struct comm_group *world = comm_world(w->group->comm);
    switch (w->op) {
    case COMM_all_reduce: return waited_all_reduce(world, w->out, w->count, w->dtype, err);
    case COMM_all_gather:
        return comm_all_gather(world, w->in, w->out, w->count, w->dtype, err);
    case COMM_reduce_scatter:
        return waited_reduce_scatter(world, (void *)w->in, w->out, w->count, w->dtype, err);
    case COMM_send:
        return comm_send(world, w->in, w->count, w->dtype, w->peer, w->tag, err);
    case COMM_recv:
        return comm_recv(world, w->out, w->count, w->dtype, w->peer, w->tag, err);
    default: return err_system(err, "%s is not expected", comm_op_name(w->op));
    }
}

static int run_op(struct op *op, struct err *err) {
    switch (op->kind) {
    case OP_LAUNCH: cpu_exec(op->code, &op->n, &op->in, &op->out, &op->args); return 0;
    case OP_UPLOAD:
        memcpy(op->dst, op->data, (size_t)op->bytes);
        free(op->data);
        return 0;
    case OP_UNPACK: kernel_unpack(op->bytes, op->from, op->src, op->to, op->dst); return 0;
    case OP_RECORD: op->event->reached = op->mark; return 0;
    case OP_WAIT: return 0;
    case OP_WORK: return do_work(&op->work, err);
    }
    return -1;
}

static bool can_go_on(const struct stream *q) {
    if (q->done == q->ops.n)
        return false;
    const struct op *op = &q->ops.p[q->done];
    return op->kind != OP_WAIT || fake.deaf || op->event->reached >= op->mark;
}

/* The k-th stream to look at. Sends go before receives, for this process does one work at a time and
 * its peer waits for it; streams that are not the executor's are a backend's between ranks. */
static struct stream *in_turn(int64_t k) {
    static const enum exec_stream order[EXEC_STREAMS] = {
        STREAM_host, STREAM_sends, STREAM_collectives, STREAM_receives, STREAM_compute};
    static const enum exec_stream late[EXEC_STREAMS] = {
        STREAM_compute, STREAM_sends, STREAM_collectives, STREAM_receives, STREAM_host};
    int64_t others = fake.streams.n - EXEC_STREAMS;
    if (fake.late)
        return fake.streams.p[k < EXEC_STREAMS ? late[k] : k];
    return fake.streams.p[k < others ? EXEC_STREAMS + k : order[k - others]];
}

static bool is_done(const struct stream *q) {
    return q->done == q->ops.n;
}

/* As late as possible, copies from and to the host's memory are done when the stream that is waited for
 * needs them. */
static bool may_stay(const struct stream *q, const struct stream *waited) {
    return fake.late && waited && is_done(waited) && q == fake.streams.p[STREAM_host];
}

/* Works off streams, always the first that can go on, for the one that is waited for; NULL: for all. */
static int work_off(const struct stream *waited, struct err *err) {
    for (int64_t k = 0; k < fake.streams.n;) {
        struct stream *q = in_turn(k++);
        if (!can_go_on(q) || may_stay(q, waited))
            continue;
        if (run_op(&q->ops.p[q->done++], err) < 0)
            return -1;
        k = 0;
    }
    for (int64_t k = 0; k < fake.streams.n; k++) {
        struct stream *q = fake.streams.p[k];
        if (is_done(q))
            q->done = q->ops.n = 0;
        else if (!may_stay(q, waited))
            return err_system(err, "stream %lld waits for ever", (long long)k);
    }
    return 0;
}

static bool all_done(void) {
    for (int64_t k = 0; k < fake.streams.n; k++)
        if (!is_done(fake.streams.p[k]))
            return false;
    return true;
}

static int fake_create(struct device *dev, struct err *err) {
    return kernel_init(dev->threads, err);
}

static void fake_destroy(struct device *dev) {
    (void)dev;
    kernel_release();
}

static void *fake_alloc(struct device *dev, int64_t bytes, struct err *err) {
    return device_backend_cpu.alloc(dev, bytes, err);
}

static void fake_free(struct device *dev, void *p) {
    device_backend_cpu.free(dev, p);
}

static int stream_create(struct device_stream *s, struct err *err) {
    (void)err;
    s->state = mem_alloc(sizeof(struct stream));
    arr_push(&fake.streams, s->state);
    return 0;
}

static void stream_destroy(struct device_stream *s) {
    struct stream *q = s->state;
    int64_t kept = 0;
    for (int64_t i = 0; i < fake.streams.n; i++)
        if (fake.streams.p[i] != q)
            fake.streams.p[kept++] = fake.streams.p[i];
    fake.streams.n = kept;
    arr_release(&q->ops);
    arr_release(&q->recorded);
    free(q);
}

static int synchronize(struct device_stream *s, struct err *err) {
    return work_off(s->state, err);
}

static int event_create(struct device_event *e, struct err *err) {
    (void)err;
    e->state = mem_alloc(sizeof(struct event));
    return 0;
}

static void event_destroy(struct device_event *e) {
    free(e->state);
}

static int event_record(struct device_event *e, struct device_stream *s, struct err *err) {
    struct op *op = give(s, OP_RECORD);
    (void)err;
    op->event = e->state;
    op->mark = ++op->event->given;
    return 0;
}

static int event_wait(struct device_event *e, struct device_stream *s, struct err *err) {
    struct op *op = give(s, OP_WAIT);
    (void)err;
    op->event = e->state;
    op->mark = op->event->given;
    return 0;
}

static int event_reached(struct device_event *e, struct err *err) {
    const struct event *event = e->state;
    if (event->reached < event->given)
        return work_off(NULL, err); /* so that it is, the next time */
    return 1;
}

static int upload(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err) {
    struct op *op = give(s, OP_UPLOAD);
    (void)err;
    op->dst = dst;
    op->bytes = bytes;
    op->data = mem_alloc((size_t)bytes);
    memcpy(op->data, src, (size_t)bytes);
    return 0;
}

static int unpack(struct device_stream *s, void *dst, enum dtype to, const void *src,
                  enum dtype from, int64_t n, struct err *err) {
    (void)err;
    *give(s, OP_UNPACK) = (struct op){
        .kind = OP_UNPACK, .dst = dst, .to = to, .src = src, .from = from, .bytes = n};
    return 0;
}

static int download(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                    struct err *err) {
    if (synchronize(s, err) < 0)
        return -1;
    memcpy(dst, src, (size_t)bytes);
    return 0;
}

static int launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                  const union instr_src *in, const union instr_dst *out,
                  const struct device_args *args, struct err *err) {
    struct op *op = give(s, OP_LAUNCH);
    (void)err;
    *op = (struct op){
        .kind = OP_LAUNCH, .code = code, .n = *n, .in = *in, .out = *out, .args = *args};
    fake.launches += s->state == fake.streams.p[STREAM_compute] || !staged;
    fake.overlapped += fake.under_way > 0;
    return 0;
}

static int capture_begin(struct device_stream *s, struct err *err) {
    struct stream *q = s->state;
    (void)err;
    q->capturing = true;
    return 0;
}

static int capture_end(struct device_stream *s, struct device_region *r, struct err *err) {
    struct stream *q = s->state;
    op_list *kept = mem_alloc(sizeof *kept);
    (void)err;
    *kept = q->recorded;
    memset(&q->recorded, 0, sizeof q->recorded);
    q->capturing = false;
    r->state = kept;
    return 0;
}

static int replay(struct device_region *r, struct device_stream *s, struct err *err) {
    op_list *kept = r->state;
    (void)err;
    for (int64_t i = 0; i < kept->n; i++)
        *give(s, OP_LAUNCH) = kept->p[i];
    fake.replays++;
    return 0;
}

static void region_destroy(struct device_region *r) {
    op_list *kept = r->state;
    arr_release(kept);
    free(kept);
}

static const struct device_backend apart = {.name = "apart",
                                            .create = fake_create,
                                            .destroy = fake_destroy,
                                            .alloc = fake_alloc,
                                            .free = fake_free,
                                            .alloc_host = fake_alloc,
                                            .free_host = fake_free,
                                            .stream_create = stream_create,
                                            .stream_destroy = stream_destroy,
                                            .synchronize = synchronize,
                                            .event_create = event_create,
                                            .event_destroy = event_destroy,
                                            .event_record = event_record,
                                            .event_wait = event_wait,
                                            .event_reached = event_reached,
                                            .upload = upload,
                                            .download = download,
                                            .unpack = unpack,
                                            .launch = launch};

/* ---- what is between ranks ------------------------------------------------------------------ */

static void *open_job(struct comm *job, void *arg, struct err *err) {
    (void)arg, (void)err;
    return job;
}

static void close_job(void *job) {
    (void)job;
}

static int open_groups(void *job, struct comm_group **groups, int n, struct err *err) {
    for (int i = 0; i < n; i++)
        if (groups[i] && groups[i]->n != comm_size(job))
            return err_system(err, "groups of all ranks only");
    return 0;
}

static void close_group(struct comm_group *group) {
    (void)group;
}

/* On the CPU's streams it is done at once, on the fake ones in its turn. */
static int start(struct comm_work *work, struct err *err) {
    work->state = WORK_STARTED;
    if (work->stream->device->backend == &device_backend_cpu)
        return do_work(work, err);
    give(work->stream, OP_WORK)->work = *work;
    fake.works++;
    fake.under_way += work->op < COMM_broadcast;
    return 0;
}

static int wait_given(struct comm_work *work, struct err *err) {
    (void)err;
    if (work->state == WORK_STARTED && work->op < COMM_broadcast)
        fake.under_way--;
    work->state = WORK_NONE;
    return 0;
}

static const struct comm_backend on_streams = {.name = "apart",
                                               .streams = true,
                                               .open = open_job,
                                               .close = close_job,
                                               .open_groups = open_groups,
                                               .close_group = close_group,
                                               .start = start,
                                               .wait = wait_given};

/* ---- training ------------------------------------------------------------------------------- */

static const char *folder; /* of checkpoints */

/* The arena of the CPU: a job has few. */
enum { ARENA_BYTES = 1 << 22 };
static void *shared;

static bool drained; /* nothing was under way behind exec_drain, in the last training */

/* What was saved is there again in a fresh executor. */
static int save_and_load(struct exec **x, struct err *err) {
    const struct checkpoint_info about = {.run = 1};
    const struct program *g = (*x)->g;
    struct exec_options o = (*x)->opt;
    const struct data *data = (*x)->data;
    struct checkpoint *ck = NULL;
    char *path = NULL;
    if (exec_save(*x, &(struct exec_folder){folder, .keep = 1}, &about, err) != 0)
        return -1;
    exec_destroy(*x);
    *x = exec_create(g, comm, data, &o, err);
    int rc = *x && checkpoint_latest(folder, &path, err) > 0 ? 0 : -1;
    if (rc == 0)
        rc = checkpoint_open(&ck, path, err);
    if (rc == 0)
        rc = exec_load(*x, ck, err);
    checkpoint_close(ck);
    free(path);
    return rc;
}

static int drain(struct exec *x, struct err *err) {
    int rc = exec_drain(x, err);
    drained &= all_done();
    return rc;
}

static int train(const struct program *g, struct data *data,
                 const struct device_backend *device, struct result *out, struct err *err) {
    struct exec_options o = exec_defaults();
    o.device = device;
    o.arena = shared;
    o.arena_bytes = ARENA_BYTES;
    o.warmup = 0;
    o.clip = 0.5;
    struct exec *x = exec_create(g, comm, data, &o, err);
    int rc = x ? exec_init(x, err) : -1;
    drained = true;
    for (int s = 0; s < STEPS && rc == 0; s++) {
        struct exec_metrics m;
        rc = exec_step(x, &m, err);
        out->mark[2 * s] = m.loss;
        out->mark[2 * s + 1] = m.grad_norm;
    }
    if (rc == 0)
        rc = drain(x, err);
    if (rc == 0)
        rc = exec_validate(x, 0, 1, go_on, NULL, &out->mark[2 * STEPS], err);
    if (rc == 0)
        rc = drain(x, err);
    if (rc == 0)
        rc = save_and_load(&x, err);
    if (rc == 0)
        rc = read_back(x, out, err);
    exec_destroy(x);
    return rc;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* The device afresh; what it records is a copy of the backend that also can. */
static int train_apart(const struct program *g, struct data *data, bool late, bool deaf,
                       bool records, struct result *out, struct err *err) {
    struct device_backend backend = apart;
    arr_release(&fake.streams);
    memset(&fake, 0, sizeof fake);
    fake.late = late;
    fake.deaf = deaf;
    if (records) {
        backend.capture_begin = capture_begin;
        backend.capture_end = capture_end;
        backend.replay = replay;
        backend.region_destroy = region_destroy;
    }
    return train(g, data, &backend, out, err);
}

/* Every rank sees its own part of the difference. */
static bool any_differs(bool same) {
    struct err err = {0};
    double differs = !same;
    must(comm_max_double(comm_world(comm), &differs, 1, &err), &err);
    return differs > 0;
}

static void check_orders(const struct program *g, struct data *data, const char *name,
                         const struct result *cpu) {
    static const char *const what[4] = {"works early: the bits of the CPU",
                                        "works late: the bits of the CPU",
                                        "works early, recorded: the bits of the CPU",
                                        "works late, recorded: the bits of the CPU"};
    struct err err = {0};
    int launches[4];
    for (int k = 0; k < 4; k++) {
        struct result r = {0};
        must(train_apart(g, data, k & 1, false, k > 1, &r, &err), &err);
        ok_here(equal(cpu, &r), "%s: %s", name, what[k]);
        ok_here(drained, "%s: nothing is under way behind exec_drain", name);
        launches[k] = fake.launches;
        free(r.params);
        if (k == 3)
            /* Copies that are only started part what could be recorded as one. */
            ok_here(fake.replays > 0 &&
                        launches[3] < launches[1] / (g->stages[0].host_bytes ? 1 : 2),
                    "%s: and what is replayed is not launched again", name);
    }
}

static void check_plan(const char *text, const char *name) {
    struct err err = {0};
    json_error_t where;
    json_t *doc = json_loads(text, 0, &where);
    struct plan *plan = plan_from_json(doc, &err);
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    struct data *data = NULL;
    struct data_spec spec = {.source = "synthetic",
                             .validation = 0.1,
                             .seed = 7,
                             .kind = DATA_TOKENS,
                             .seq = 8,
                             .vocab = 256};
    must(g ? data_open(&data, &spec, &err) : -1, &err);
    struct result cpu = {0}, r = {0};
    must(train(g, data, NULL, &cpu, &err), &err);
    check_orders(g, data, name, &cpu);
    if (g->n_stages == 1) { /* messages in a wrong order would wait for ever */
        must(train_apart(g, data, false, true, false, &r, &err), &err);
        ok_here(any_differs(equal(&cpu, &r)),
                "%s: without the waits it is another training", name);
    }
    if (plan->overlap && g->n_stages == 1 && !staged)
        ok_here(fake.works > 0 && fake.overlapped > 0,
                "%s: launches are given while collectives are under way", name);
    free(cpu.params);
    free(r.params);
    data_close(data);
    program_destroy(g);
    plan_destroy(plan);
    json_decref(doc);
}

#define GPT(sizes)                                                                         \
    "{\"format\": \"weft-plan/1\", \"model\": \"gpt:nano\", \"batch\": 8, "                \
    "\"set\": \"layers=2,hidden=24,heads=2,seq=8" sizes "\", \"micro_batch\": 2, "

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm_options options = COMM_OPTIONS_DEFAULT;
    struct comm_stage_options pieces = {.piece_bytes = 4096, .direct = COMM_STAGE_COPY};
    staged = argc > 2 && !strcmp(argv[2], "stage");
    options.backend = staged ? &comm_backend_stage : &on_streams;
    options.backend_arg = staged ? &pieces : NULL;
    int status = begin_job("exec-streams", &argc, &argv, &options);
    if (status)
        return status;
    folder = argv[1];
    shared = comm_alloc(comm, ARENA_BYTES, &err);
    must(shared ? 0 : -1, &err);
    /* layer.0, which both ranks do whole, parts the gradients into two reductions. */
    check_plan(
        GPT(",dropout=0.1") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2\", \"layout\": {\"dp\": "
                            "\"batch\"}, \"except\": [{\"ops\": \"layer.0.*\", \"layout\": {}}]}]}",
        "overlapped");
    check_plan(GPT("") "\"stages\": [{\"mesh\": \"dp:2\", \"layout\": {\"dp\": \"batch\"}, "
                       "\"zero\": 1}]}",
               "zero");
    check_plan(GPT(",dropout=0.1") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2\", "
                                   "\"layout\": {\"dp\": \"batch\"}, \"zero\": 3}]}",
               "zero3");
    /* Ids of tokens stay: without the waits they would be any number. */
    check_plan(
        GPT("") "\"overlap\": true, \"stages\": [{\"mesh\": \"dp:2\", \"layout\": {\"dp\": "
                "\"batch\"}, \"offload\": [\"activations\"], "
                "\"except\": [{\"ops\": [\"wte\", \"loss\"], \"offload\": []}, "
                "{\"ops\": \"layer.0.*\", \"layout\": {}}]}]}",
        "offloaded");
    check_plan(
        GPT("") "\"overlap\": true, \"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0\"], "
                "\"offload\": [\"optimizer\", \"parameters\"]}, "
                "{\"offload\": [\"optimizer\", \"parameters\", \"activations\"]}]}",
        "offloaded pipeline");
    check_plan(GPT("") "\"stages\": [{\"ops\": [\"wte\", \"wpe\", \"layer.0\"]}, {}]}",
               "pipeline");
    check_plan(
        GPT("") "\"schedule\": \"interleaved\", \"stages\": ["
                "{\"group\": 0, \"ops\": [\"wte\", \"wpe\"]}, {\"group\": 1, \"ops\": \"layer.0\"},"
                "{\"group\": 0, \"ops\": \"layer.1\"}, {\"group\": 1}]}",
        "interleaved");
    check_plan(GPT("") "\"schedule\": \"zero-bubble\", \"stages\": ["
                       "{\"ops\": [\"wte\", \"wpe\", \"layer.0\"]}, {}]}",
               "zero-bubble");
    check_plan("{\"format\": \"weft-plan/1\", \"model\": \"llama:nano\", \"batch\": 8, "
               "\"set\": \"layers=2,hidden=24,heads=4,kv_heads=2,ffn=32,seq=8,vocab=256\", "
               "\"micro_batch\": 2, \"stages\": [{\"mesh\": \"cp:2\", \"ring\": true, "
               "\"layout\": {\"cp\": \"seq\"}}]}",
               "ring");
    return end_job();
}
