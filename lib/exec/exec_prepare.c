/* Resolving a program for one rank: everything that depends on its coordinates. */
#include "common/mem.h"
#include "exec/exec_impl.h"

#include <stdlib.h>
#include <string.h>

/* The groups of a job, in one order on every rank: of every stage, along every set of axes
 * that its program communicates over. */
struct group_list {
    ARR(int) ranks; /* of all, one after the other */
    ARR(struct comm_ranks) sets;
    ARR(struct own_group) own; /* those that this rank is in */
};
struct own_group {
    int64_t set;
    int stage;
    unsigned axes;
};

/* Every group of the stage along every set of axes that an instruction uses. */
static void list_stage(const struct exec *x, int stage, struct group_list *out) {
    const struct stage_program *sp = &x->g->stages[stage];
    int first = x->g->plan->stages[stage].first_rank, devices = mesh_devices(sp->mesh);
    int *ranks = mem_array((size_t)devices, sizeof *ranks);
    bool wanted[1 << MESH_MAX_AXES] = {false};
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        if (opcode_is_collective(ins->code))
            wanted[ins->axes] = true;
    }
    for (unsigned axes = 1; axes < 1u << sp->mesh->n_axes; axes++)
        for (int r = 0; wanted[axes] && r < devices; r++) {
            int n = mesh_group(sp->mesh, axes, r, ranks);
            if (ranks[0] != r) /* a group is listed by its first member */
                continue;
            for (int i = 0; i < n; i++) {
                arr_push(&out->ranks, first + ranks[i]);
                if (first + ranks[i] == x->rank)
                    arr_push(&out->own, (struct own_group){out->sets.n, stage, axes});
            }
            arr_push(&out->sets, (struct comm_ranks){.n = n});
        }
    free(ranks);
}

/* All ranks, for messages between stages: the list's first. */
static void list_everyone(const struct exec *x, struct group_list *out) {
    int n = comm_size(x->comm);
    for (int r = 0; r < n; r++)
        arr_push(&out->ranks, r);
    arr_push(&out->sets, (struct comm_ranks){.n = n});
}

/* All ranks make all groups, also those they are not in. */
static int make_groups(struct exec *x, struct err *err) {
    struct group_list list = {.own = {0}};
    list_everyone(x, &list);
    for (int s = 0; s < x->g->n_stages; s++)
        list_stage(x, s, &list);
    for (int64_t i = 0, at = 0; i < list.sets.n; at += list.sets.p[i++].n)
        list.sets.p[i].ranks = list.ranks.p + at;
    struct comm_group **groups = mem_array((size_t)list.sets.n + 1, sizeof *groups);
    int rc = comm_groups_create(x->comm, list.sets.p, (int)list.sets.n, groups, err);
    x->everyone = groups[0];
    for (int64_t i = 0; i < list.own.n; i++) {
        const struct own_group *o = &list.own.p[i];
        exec_chunk_of(x, o->stage)->groups[o->axes] = groups[o->set];
    }
    free(groups);
    arr_release(&list.own);
    arr_release(&list.ranks);
    arr_release(&list.sets);
    return rc;
}

struct box exec_box(const struct exec_chunk *c, const struct shape *s, struct placement p) {
    const struct plan *plan = c->rp.g->plan;
    struct extents n = model_extents(plan->model, s, plan->micro_batch);
    return placement_box(c->sp->mesh, &n, p, c->rp.coord);
}

static void mark_regions(struct exec_chunk *c) {
    for (int s = 0; s < SEG_COUNT; s++)
        for (int i = c->sp->seg[s], n; i < c->sp->seg[s + 1]; i += n ? n : 1) {
            struct exec_instr *r = &c->ready[i];
            for (n = 0; i + n < c->sp->seg[s + 1] && exec_repeats(&c->sp->instrs[i + n]) &&
                        c->sp->instrs[i + n].trains == c->sp->instrs[i].trains;)
                r->fresh |= c->sp->instrs[i + n++].fresh;
            r->region = n;
            if (n > 1)
                r->captured = mem_array((size_t)c->rhythm + 1, sizeof *r->captured);
            if (n > 1)
                r->watched =
                    mem_array((size_t)c->rhythm + 1, sizeof(struct exec_watched *));
        }
}

/* Room for initial parameters at least in rows. */
static void need_host_room(struct exec *x, const struct exec_chunk *c) {
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        struct box b = exec_box(c, &x->g->plan->model->params[p->param].shape, p->place);
        int64_t bytes = dtype_size(DTYPE_f32) * c->sp->buffers[p->buffer].elems / b.size[0];
        x->host_bytes = bytes > x->host_bytes ? bytes : x->host_bytes;
    }
}

static int64_t slot_bytes(const struct exec_chunk *c, int pool) {
    return c->sp->slots[pool].bytes + c->sp->slots[pool].host_bytes;
}

static void find_rhythm(struct exec_chunk *c) {
    c->rhythm = 1;
    for (int p = 0; p < POOL_COUNT; p++) {
        int64_t a = c->rhythm, b = slot_bytes(c, p) ? c->sp->slots[p].n : 1;
        for (int64_t rest; b; a = b, b = rest)
            rest = a % b;
        if (slot_bytes(c, p))
            c->rhythm *= c->sp->slots[p].n / a;
    }
}

static int prepare_chunk(struct exec *x, struct exec_chunk *c, struct err *err) {
    c->works = exec_make_works(x, c->sp->n_works + 1, err);
    c->going = exec_make_works(x, c->sp->n_works + 1, err);
    c->exchanged = exec_make_works(x, 2 * mesh_devices(c->sp->mesh), err);
    if (!c->works || !c->going || !c->exchanged)
        return -1;
    c->ready = mem_array((size_t)c->sp->n_instrs, sizeof *c->ready);
    for (int i = 0; i < c->sp->n_instrs; i++)
        exec_prepare_instr(x, c, &c->sp->instrs[i], &c->ready[i]);
    find_rhythm(c);
    if (x->captures)
        mark_regions(c);
    need_host_room(x, c);
    return 0;
}

int exec_prepare(struct exec *x, struct err *err) {
    for (int i = 0; i < EXEC_STREAMS; i++)
        if (!(x->streams[i] = device_stream_create(x->device, err)))
            return -1;
    if (!(x->computed = device_event_create(x->device, err)) || make_groups(x, err) < 0)
        return -1;
    x->scalars = exec_address(x, x->chunks->sp->scalars, sizeof *x->scalars);
    exec_prepare_losses(x);
    x->on_streams = comm_on_streams(x->everyone);
    if ((x->opt.on_span || x->opt.times) && device_can_mark(x->device) &&
        !(x->watch = exec_watch_create(x, err)))
        return -1;
    x->captures = device_can_capture(x->device) && (x->watch || !x->opt.on_instr);
    x->host_bytes = 1 << 20; /* at least */
    for (int i = 0; i < x->n_chunks; i++)
        if (prepare_chunk(x, &x->chunks[i], err) < 0)
            return -1;
    x->sums =
        mem_array((size_t)(2 + METRIC_COUNT + exec_suspects_numbers(x)), sizeof *x->sums);
    exec_suspects_prepare(x);
    x->host = mem_alloc((size_t)x->host_bytes);
    x->rounded = mem_alloc((size_t)x->host_bytes / 2);
    if (exec_prefetch_create(x, err) < 0)
        return -1;
    return exec_prepare_transfers(x, err);
}

static void release_instr(const struct exec_chunk *c, struct exec_instr *r) {
    for (int64_t i = 0; r->captured && i <= c->rhythm; i++)
        device_region_destroy(r->captured[i]);
    free(r->captured);
    free(r->watched);
    free(r->pieces);
}

static void release_chunk(struct exec_chunk *c) {
    for (int i = 0; c->ready && i < c->sp->n_instrs; i++)
        release_instr(c, &c->ready[i]);
    free(c->ready);
    exec_free_works(c->works, c->sp->n_works + 1);
    exec_free_works(c->going, c->sp->n_works + 1);
    exec_free_works(c->exchanged, 2 * mesh_devices(c->sp->mesh));
    for (int i = 0; i < 1 << MESH_MAX_AXES; i++)
        comm_group_destroy(c->groups[i]);
}

void exec_release(struct exec *x) {
    exec_prefetch_destroy(x->prefetch, x->device);
    for (int i = 0; i < x->n_chunks; i++)
        release_chunk(&x->chunks[i]);
    exec_watch_destroy(x->watch);
    free(x->losses);
    free(x->counts);
    free(x->inverse);
    free(x->sums);
    exec_suspects_release(x);
    exec_release_transfers(x);
    comm_group_destroy(x->everyone);
    device_event_destroy(x->computed);
    for (int i = 0; i < EXEC_STREAMS; i++)
        device_stream_destroy(x->streams[i]);
    free(x->host);
    free(x->rounded);
}
