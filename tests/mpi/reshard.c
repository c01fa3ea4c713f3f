/* Every reshard of the algebra, exactly: on each mesh, and from each mesh to each other.
 *
 *   mpirun -n N reshard all | SEED...
 *
 * Tensors of rank 1 to 4 hold their own global index, so that a value at a wrong place
 * is seen. Of a Partial placement every rank holds whole numbers that add up to the
 * index. A program that converts between many pairs of placements is compiled by the
 * compiler's own means (emit_convert, pass_memory) and run by the executor; each rank
 * then compares its block with the dense tensor, bit for bit. Meshes are all grids of at
 * most three axes with N devices; between stages, all grids whose devices are N
 * together. `all` takes all pairs, a SEED draws some. */
#include "../unit/placement-text.h"
#include "../unit/tap.h"

#include "common/rng.h"
#include "exec/exec_impl.h"
#include "program/link.h"
#include "program/passes/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RANK = 4,
    MAX_MESHES = 16,
    MAX_PLACEMENTS = 216, /* Partial, Replicate or one of four dims on three axes */
    ARENA_BYTES = 24 << 20,
    BATCH_ELEMS = 2 << 20, /* of the tensors of one program */
    PAIRS_DRAWN = 36,      /* of one mesh and rank, by each seed */
    ROUNDS = 2,            /* a program with drawn pairs runs twice, with other values */
};

struct job {
    struct comm *comm;
    float *arena;
    bool all;
    int n_seeds;
    uint64_t *seeds;
};

static int fail(const char *what, const struct err *err) {
    printf("Bail out! %s: %s\n", what, err->msg);
    fflush(stdout);
    return -1;
}

/* ---- tensors and placements ---------------------------------------------------------- */

/* A model that is nothing but four dims and a tensor of each rank. */
static struct model_tensor tensors[MAX_RANK] = {
    {.name = "x1", .shape = {1, {0}}, .producer = -1},
    {.name = "x2", .shape = {2, {0, 1}}, .producer = -1},
    {.name = "x3", .shape = {3, {0, 1, 2}}, .producer = -1},
    {.name = "x4", .shape = {4, {0, 1, 2, 3}}, .producer = -1}};
static struct model_dim dims[] = {{"i", 0}, {"j", 0}, {"k", 0}, {"l", 0}, {"batch", 0}};
static struct model model = {.name = "reshard",
                             .n_dims = MAX_RANK + 1,
                             .dims = dims,
                             .batch = MAX_RANK,
                             .n_tensors = MAX_RANK,
                             .tensors = tensors};

static int common_multiple(int a, int b) {
    int m = a;
    while (m % b)
        m += a;
    return m;
}

/* Gives the dims sizes for meshes of a and b devices: some that split over all of either; or
 * only few that do, over some of the axes. */
static void set_sizes(int a, int b, bool tight) {
    static const int64_t few[9][MAX_RANK] = {{1, 1, 1, 1}, {3, 1, 2, 5}, {2, 5, 4, 1},
                                             {3, 1, 5, 6}, {2, 4, 3, 2}, {5, 10, 2, 3},
                                             {2, 3, 6, 4}, {7, 3, 6, 2}, {4, 2, 8, 3}};
    int both = common_multiple(a, b), larger = a > b ? a : b;
    const int64_t many[MAX_RANK] = {both, a == b ? 2 * both : both, a, b};
    for (int d = 0; d < MAX_RANK; d++)
        dims[d].size = tight ? few[larger][d] : many[d];
}

static struct extents extents_of(int tensor) {
    return model_extents(&model, &tensors[tensor].shape, 1);
}

/* All grids of n devices with at most three axes, and some with an axis of one device. */
static int list_meshes(int n, struct mesh out[MAX_MESHES]) {
    static const int extra[][3] = {{1, 0, 0}, {2, 1, 0}, {2, 1, 2}};
    int count = 0;
    for (int a = 2; a <= n; a++)
        for (int b = 1; a * b <= n; b++)
            for (int c = 1; a * b * c <= n; c++)
                if (a * b * c == n && (b > 1 || c == 1))
                    out[count++] = (struct mesh){.n_axes = c > 1   ? 3
                                                           : b > 1 ? 2
                                                                   : 1,
                                                 .size = {a, b, c}};
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        int axes = extra[i][2] ? 3 : extra[i][1] ? 2 : 1, devices = 1;
        for (int a = 0; a < axes; a++)
            devices *= extra[i][a];
        if (devices == n)
            out[count++] = (struct mesh){.n_axes = axes,
                                         .size = {extra[i][0], extra[i][1], extra[i][2]}};
    }
    if (n == 1)
        out[count++] = (struct mesh){0};
    for (int i = 0; i < count; i++)
        for (int a = 0; a < out[i].n_axes; a++)
            snprintf(out[i].name[a], MESH_MAX_NAME, "%c", 'a' + a);
    return count;
}

/* Does every shard come out even? */
static bool even(const struct mesh *mesh, const struct extents *x, struct placement p) {
    int64_t left[MAX_RANK];
    memcpy(left, x->size, sizeof left);
    for (int a = 0; a < mesh->n_axes; a++) {
        if (p.at[a] < 0)
            continue;
        if (left[p.at[a]] % mesh->size[a])
            return false;
        left[p.at[a]] /= mesh->size[a];
    }
    return true;
}

static int list_placements(const struct mesh *mesh, int tensor, bool partial,
                           struct placement out[MAX_PLACEMENTS]) {
    struct extents x = extents_of(tensor);
    int n = 0, lowest = partial ? PLACE_PARTIAL : PLACE_REPLICATE,
        choices = x.rank - lowest;
    int total = 1;
    for (int a = 0; a < mesh->n_axes; a++)
        total *= choices;
    for (int i = 0; i < total; i++) {
        struct placement p = placement_replicate();
        for (int a = 0, rest = i; a < mesh->n_axes; a++, rest /= choices)
            p.at[a] = (int8_t)(rest % choices + lowest);
        if (even(mesh, &x, p))
            out[n++] = p;
    }
    return n;
}

/* ---- what a rank holds --------------------------------------------------------------- */

/* One of `parts` whole numbers whose sum is v. */
static int64_t part_of(int64_t v, int part, int parts) {
    int64_t others = 0;
    if (part < parts - 1)
        return (v * 31 + part * 977) % 2003 - 1001;
    for (int i = 0; i < parts - 1; i++)
        others += part_of(v, i, parts);
    return v - others;
}

/* The value at one element after summing over the axes that are Partial in `from` and no
 * more so in `to`. With from == to: what the rank has at first. */
static float value_at(const struct mesh *mesh, struct placement from, struct placement to,
                      const int *coord, int64_t v) {
    unsigned partial = placement_axes(mesh, from, PLACE_PARTIAL);
    int parts = mesh_group_size(mesh, partial);
    int64_t sum = 0;
    for (int i = 0; i < parts; i++) {
        bool mine = true;
        for (int a = mesh->n_axes - 1, rest = i; a >= 0; a--) {
            if (!(partial >> a & 1))
                continue;
            mine &= to.at[a] != PLACE_PARTIAL || rest % mesh->size[a] == coord[a];
            rest /= mesh->size[a];
        }
        if (mine)
            sum += part_of(v, i, parts);
    }
    return (float)sum;
}

/* A tensor before or after its reshard, as one rank holds it. */
struct view {
    const struct mesh *mesh;
    struct extents x;
    struct placement from, at; /* where the values came from; how they lie here */
    const int *coord;
    int64_t base; /* added to the index: another for each round */
};

/* Fills the block, or counts the elements that are not what they should be. */
static int64_t visit(const struct view *v, float *block, bool fill) {
    struct box b = placement_box(v->mesh, &v->x, v->at, v->coord);
    int64_t n = 1, wrong = 0;
    for (int i = 0; i < v->x.rank; i++)
        n *= b.size[i];
    for (int64_t i = 0; i < n; i++) {
        int64_t index = v->base, rest = i, stride = 1;
        for (int d = v->x.rank - 1; d >= 0; d--) {
            index += (b.first[d] + rest % b.size[d]) * stride;
            rest /= b.size[d];
            stride *= v->x.size[d];
        }
        float want = fill ? value_at(v->mesh, v->at, v->at, v->coord, index)
                          : value_at(v->mesh, v->from, v->at, v->coord, index);
        if (fill)
            block[i] = want;
        else
            wrong += memcmp(&block[i], &want, sizeof want) != 0;
    }
    return wrong;
}

/* ---- programs of many reshards ------------------------------------------------------- */

struct pair {
    struct placement from, to;
    int tensor;
    int in, out; /* buffers */
};

/* One stage, or two with a transfer for each pair; all of it in the forward segment. */
struct batch {
    struct job *job;
    struct mesh mesh[2];
    int n_stages;
    ARR(struct pair) pairs;
    int64_t elems;         /* of the pairs so far */
    int64_t tested, wrong; /* over all programs */
};

static void set_fixed(struct emit *e, int buffer) {
    e->buffers.p[buffer].mem = MEM_parameters;
}

static int fixed_buffer(struct emit *e, const struct shape *s, struct placement p) {
    return emit_buffer(e, emit_elements(e, s, p), DTYPE_f32, MEM_parameters);
}

/* Every other conversion is told where to put its result. */
static void emit_pair(struct emit *e, struct pair *p, int i) {
    const struct shape *s = &tensors[p->tensor].shape;
    p->in = fixed_buffer(e, s, p->from);
    p->out =
        emit_convert(e, s, p->in, p->from, p->to, i % 2 ? fixed_buffer(e, s, p->to) : -1);
    set_fixed(e, p->out);
}

static void emit_message(struct emit *e, struct pair *p, int i, int stage) {
    const struct shape *s = &tensors[p->tensor].shape;
    int buffer = fixed_buffer(e, s, stage ? p->to : p->from);
    struct instr *ins = emit_instr(e, stage ? I_recv : I_send);
    if (stage)
        p->out = ins->out.recv.y = buffer, ins->n.recv.elems = e->buffers.p[buffer].elems;
    else
        p->in = ins->in.send.x = buffer, ins->n.send.elems = e->buffers.p[buffer].elems;
    ins->tensor = p->tensor;
    ins->transfer = i;
}

static void compile(struct batch *b, const struct plan *plan, int stage,
                    struct stage_program *out) {
    struct emit e = {.plan = plan,
                     .m = &model,
                     .mesh = &b->mesh[stage],
                     .stage = stage,
                     .op = -1,
                     .param = -1,
                     .slots = {1, 1, 1},
                     .out = out};
    for (int i = 0; i < b->pairs.n; i++)
        if (b->n_stages == 1)
            emit_pair(&e, &b->pairs.p[i], i);
        else
            emit_message(&e, &b->pairs.p[i], i, stage);
    for (int s = SEG_BACKWARD; s <= SEG_COUNT; s++)
        e.seg_first[s] = (int)e.instrs.n;
    *out = (struct stage_program){.stage = stage, .mesh = &b->mesh[stage]};
    pass_persistent(&e);
    pass_reuse(&e);
    pass_memory(&e);
    arr_release(&e.lives);
    out->instrs = e.instrs.p;
    out->n_instrs = (int)e.instrs.n;
    out->buffers = e.buffers.p;
    out->n_buffers = (int)e.buffers.n;
    memcpy(out->seg, e.seg_first, sizeof out->seg);
}

/* Every receiver gets each element of its block once, and both ends list the same
 * messages. */
static bool lists_agree(const struct program *g, const struct transfer *t) {
    const struct stage *from = &g->plan->stages[0], *to = &g->plan->stages[1];
    struct extents x = transfer_extents(g, t);
    bool good = true;
    for (int d = 0; d < mesh_devices(&to->mesh); d++) {
        struct piece *in, *out;
        int64_t elems = 0;
        int dst = to->first_rank + d, n = transfer_pieces(g, t, dst, false, &in);
        for (int i = 0; i < n; i++)
            elems += in[i].elems;
        good &= elems == placement_elements(&to->mesh, &x, t->to_place);
        for (int src = 0; src < mesh_devices(&from->mesh); src++) {
            int k = transfer_pieces(g, t, src, true, &out), i = 0;
            for (int j = 0; j < n; j++) {
                if (in[j].src != src)
                    continue;
                while (i < k && out[i].dst != dst)
                    i++;
                good &= i < k && !memcmp(&out[i++], &in[j], sizeof *in);
            }
            while (i < k)
                good &= out[i++].dst != dst;
            free(out);
        }
        free(in);
    }
    return good;
}

static void print_pair(const struct batch *b, const struct pair *p, const char *what) {
    char from[64], to[64], mesh[2][64];
    int last = b->n_stages - 1;
    const struct shape *s = &tensors[p->tensor].shape;
    placement_format(&model, s, &b->mesh[0], p->from, from, sizeof from);
    placement_format(&model, s, &b->mesh[last], p->to, to, sizeof to);
    mesh_format(&b->mesh[0], mesh[0], sizeof mesh[0]);
    mesh_format(&b->mesh[last], mesh[1], sizeof mesh[1]);
    printf("# rank %d: %s: tensor of rank %d, sizes", comm_rank(b->job->comm), what,
           p->tensor + 1);
    for (int d = 0; d <= p->tensor; d++)
        printf(" %lld", (long long)dims[d].size);
    printf(", %s on %s -> %s on %s\n", from, mesh[0], to, mesh[1]);
}

static struct view view_of(const struct exec *x, const struct pair *p, bool result,
                           int round) {
    return (struct view){.mesh = x->chunks->sp->mesh,
                         .x = extents_of(p->tensor),
                         .from = p->from,
                         .at = result ? p->to : p->from,
                         .coord = x->chunks->rp.coord,
                         .base = round * 5};
}

static float *buffer_at(const struct exec *x, int id) {
    return (float *)(x->arena + buffer_offset(x->chunks->sp, id, 0));
}

static int run_round(struct batch *b, struct exec *x, int round, struct err *err) {
    int stage = x->chunks->rp.stage;
    bool source = stage == 0, target = stage == b->n_stages - 1;
    for (int64_t i = 0; i < x->chunks->sp->arena_bytes / 4; i++)
        ((float *)x->arena)[i] = NAN; /* what nobody wrote is seen */
    for (int i = 0; i < b->pairs.n && source; i++) {
        struct view v = view_of(x, &b->pairs.p[i], false, round);
        visit(&v, buffer_at(x, b->pairs.p[i].in), true);
    }
    /* A peer may read this arena as soon as it gets to the first collective. */
    if (comm_barrier(comm_world(b->job->comm), err) < 0 ||
        exec_run(x, (struct action){SEG_FORWARD, stage, 0}, err) < 0 ||
        exec_drain(x, err) < 0)
        return -1;
    for (int i = 0; i < b->pairs.n && target; i++) {
        /* A transfer's values are whole: no rank of another mesh holds a part of them. */
        struct view v = view_of(x, &b->pairs.p[i], true, round);
        if (b->n_stages > 1)
            v.from = v.at;
        int64_t wrong = visit(&v, buffer_at(x, b->pairs.p[i].out), false);
        if (wrong && b->wrong < 5)
            print_pair(b, &b->pairs.p[i], "wrong");
        b->wrong += wrong;
    }
    return comm_barrier(comm_world(b->job->comm), err);
}

static int run_program(struct batch *b, struct program *g, struct err *err) {
    struct exec_options o = exec_defaults();
    o.arena = b->job->arena;
    o.arena_bytes = ARENA_BYTES;
    struct exec *x = exec_create(g, b->job->comm, NULL, &o, err);
    int rc = x ? 0 : -1;
    for (int round = 0; round < (b->job->all ? 1 : ROUNDS) && rc == 0; round++)
        rc = run_round(b, x, round, err);
    if (rc == 0 && x->high_water > x->chunks->sp->arena_bytes) {
        printf("# the arena has %lld bytes, %lld were used\n",
               (long long)x->chunks->sp->arena_bytes, (long long)x->high_water);
        b->wrong++;
    }
    exec_destroy(x);
    return rc;
}

/* Compiles and runs what has been gathered. */
static int flush(struct batch *b, struct err *err) {
    if (!b->pairs.n)
        return 0;
    struct stage stages[2] = {{.mesh = b->mesh[0]}, {.mesh = b->mesh[1]}};
    stages[1].first_rank = mesh_devices(&b->mesh[0]);
    stages[1].group = 1;
    struct plan plan = {.model = &model,
                        .batch = 1,
                        .micro_batch = 1,
                        .n_stages = b->n_stages,
                        .stages = stages,
                        .n_groups = b->n_stages,
                        .chunks = (int[]){0, 1},
                        .first_chunk = (int[]){0, 1, 2},
                        .devices = comm_size(b->job->comm)};
    struct stage_program sp[2] = {{0}};
    struct program g = {.plan = &plan, .n_stages = b->n_stages, .stages = sp};
    for (int s = 0; s < b->n_stages; s++)
        compile(b, &plan, s, &sp[s]);
    if (b->n_stages > 1) {
        g.n_transfers = (int)b->pairs.n;
        g.transfers = mem_array((size_t)b->pairs.n, sizeof *g.transfers);
        for (int i = 0; i < b->pairs.n; i++)
            g.transfers[i] = (struct transfer){.tensor = b->pairs.p[i].tensor,
                                               .param = -1,
                                               .to = 1,
                                               .from_place = b->pairs.p[i].from,
                                               .to_place = b->pairs.p[i].to};
        transfers_place(&g);
        for (int i = 0; i < b->pairs.n && comm_rank(b->job->comm) == 0; i++)
            if (!lists_agree(&g, &g.transfers[i])) {
                print_pair(b, &b->pairs.p[i], "messages do not match");
                b->wrong++;
            }
    }
    int rc = run_program(b, &g, err);
    b->tested += b->pairs.n;
    b->pairs.n = b->elems = 0;
    for (int s = 0; s < b->n_stages; s++)
        stage_program_release(&sp[s]);
    free(g.transfers);
    return rc;
}

/* ---- which pairs --------------------------------------------------------------------- */

/* Is this one of about PAIRS_DRAWN pairs of n for one of the seeds? */
static bool drawn(const struct job *job, uint64_t where, int64_t i, int64_t n,
                  int64_t wanted) {
    bool yes = job->all;
    for (int k = 0; k < job->n_seeds; k++)
        yes |= rng_bits(job->seeds[k], where, (uint64_t)i) % (uint64_t)n < (uint64_t)wanted;
    return yes;
}

static int add_pair(struct batch *b, struct pair p, struct err *err) {
    struct extents x = extents_of(p.tensor);
    b->elems += placement_elements(&b->mesh[0], &x, p.from) +
                placement_elements(&b->mesh[b->n_stages - 1], &x, p.to);
    arr_push(&b->pairs, p);
    return b->elems > BATCH_ELEMS || b->pairs.n >= 400 ? flush(b, err) : 0;
}

/* All pairs of placements of a tensor; Partial only inside a stage, and then it may stay
 * so. */
static int add_pairs(struct batch *b, int tensor, uint64_t where, int64_t wanted,
                     struct err *err) {
    static struct placement from[MAX_PLACEMENTS], to[MAX_PLACEMENTS];
    bool partial = b->n_stages == 1;
    int n = list_placements(&b->mesh[0], tensor, partial, from);
    int m = list_placements(&b->mesh[b->n_stages - 1], tensor, partial, to);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < m; k++) {
            bool legal = true;
            for (int a = 0; a < b->mesh[0].n_axes && partial; a++)
                legal &= to[k].at[a] != PLACE_PARTIAL || from[i].at[a] == PLACE_PARTIAL;
            if (!legal || !drawn(b->job, where, (int64_t)i * m + k, (int64_t)n * m, wanted))
                continue;
            if (add_pair(b, (struct pair){.from = from[i], .to = to[k], .tensor = tensor},
                         err) < 0)
                return -1;
        }
    }
    return 0;
}

static void report(struct batch *b, const char *name) {
    double wrong = (double)b->wrong;
    comm_max_double(comm_world(b->job->comm), &wrong, 1, NULL);
    if (comm_rank(b->job->comm) == 0)
        ok(wrong == 0, "%s: %lld pairs of placements", name, (long long)b->tested);
    b->wrong = b->tested = 0;
}

/* Both sets of sizes and all ranks of tensors, between meshes that are set. */
static int test_meshes(struct batch *b, uint64_t where, const char *name, struct err *err) {
    int wanted = b->n_stages > 1 ? PAIRS_DRAWN / 6 : PAIRS_DRAWN;
    for (int tight = 0; tight < 2; tight++) {
        set_sizes(mesh_devices(&b->mesh[0]), mesh_devices(&b->mesh[b->n_stages - 1]),
                  tight);
        for (int t = 0; t < MAX_RANK; t++)
            if (add_pairs(b, t, where * 16 + (uint64_t)(tight * MAX_RANK + t), wanted,
                          err) < 0)
                return -1;
        if (flush(b, err) < 0)
            return -1;
    }
    report(b, name);
    return 0;
}

static int test_conversions(struct job *job, struct err *err) {
    struct mesh list[MAX_MESHES];
    struct batch b = {.job = job, .n_stages = 1};
    int n = list_meshes(comm_size(job->comm), list), rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        char mesh[64], name[96];
        b.mesh[0] = list[i];
        mesh_format(&b.mesh[0], mesh, sizeof mesh);
        snprintf(name, sizeof name, "on %s", mesh);
        rc = test_meshes(&b, (uint64_t)(comm_size(job->comm) * 64 + i), name, err);
    }
    arr_release(&b.pairs);
    return rc;
}

static int test_transfers(struct job *job, struct err *err) {
    struct mesh first[MAX_MESHES], second[MAX_MESHES];
    struct batch b = {.job = job, .n_stages = 2};
    int devices = comm_size(job->comm), rc = 0;
    for (int left = 1; left < devices; left++) {
        int n = list_meshes(left, first), m = list_meshes(devices - left, second);
        for (int i = 0; i < n * m && rc == 0; i++) {
            char mesh[2][64], name[160];
            b.mesh[0] = first[i / m];
            b.mesh[1] = second[i % m];
            mesh_format(&b.mesh[0], mesh[0], sizeof mesh[0]);
            mesh_format(&b.mesh[1], mesh[1], sizeof mesh[1]);
            snprintf(name, sizeof name, "from %s to %s",
                     mesh[0][0] ? mesh[0] : "one device",
                     mesh[1][0] ? mesh[1] : "one device");
            rc = test_meshes(&b, (uint64_t)(devices * 4096 + left * 256 + i), name, err);
        }
    }
    arr_release(&b.pairs);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct job job = {.all = argc == 2 && !strcmp(argv[1], "all")};
    if (argc < 2) {
        fprintf(stderr, "usage: reshard all | SEED...\n");
        return EXIT_USAGE;
    }
    job.n_seeds = job.all ? 0 : argc - 1;
    job.seeds = mem_array((size_t)argc, sizeof *job.seeds);
    for (int i = 0; i < job.n_seeds; i++)
        job.seeds[i] = strtoull(argv[i + 1], NULL, 10);
    job.comm = comm_create(NULL, NULL, NULL, &err);
    job.arena = job.comm ? comm_alloc(job.comm, ARENA_BYTES, &err) : NULL;
    if (!job.arena || test_conversions(&job, &err) < 0 || test_transfers(&job, &err) < 0) {
        fail("reshard", &err);
        if (job.comm)
            comm_abort(job.comm, 1);
        return 1;
    }
    int status = comm_rank(job.comm) == 0 ? done_testing() : 0;
    comm_destroy(job.comm);
    free(job.seeds);
    return status;
}
