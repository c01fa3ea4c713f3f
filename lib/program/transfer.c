/* Transfers between meshes: which box goes from which rank to which.
 *
 * Every rank derives the same list, so matching sends and receives agree without talking. A
 * receiver takes each part of its block from one of the ranks that hold it; receivers spread over
 * the replicas, so that no sender serves all of them. */
#include "program/emit.h"

#include <stdlib.h>

static void add_transfer(struct transfer **list, int *n, int *cap, struct transfer t) {
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 16;
        *list = mem_grow(*list, (size_t)*cap, sizeof **list);
    }
    t.from_place = t.to_place = placement_replicate();
    (*list)[(*n)++] = t;
}

/* Both directions of what stage `to` needs from stage `from`. */
static void add_pair(struct transfer **list, int *n, int *cap, int tensor, int param,
                     int from, int to) {
    for (int i = 0; i < *n; i++)
        if ((*list)[i].tensor == tensor && (*list)[i].param == param &&
            (*list)[i].from == from && (*list)[i].to == to)
            return;
    add_transfer(
        list, n, cap,
        (struct transfer){.tensor = tensor, .param = param, .from = from, .to = to});
    add_transfer(
        list, n, cap,
        (struct transfer){
            .tensor = tensor, .param = param, .gradient = true, .from = to, .to = from});
}

void transfers_list(const struct plan *plan, struct transfer **out, int *n) {
    const struct model *m = plan->model;
    int cap = 0;
    *out = NULL;
    *n = 0;
    for (int i = 0; i < m->n_ops && plan->n_stages > 1; i++) {
        const struct model_op *op = &m->ops[i];
        int s = plan->stage_of[i];
        for (int k = 0; k < op->n_in; k++) {
            int producer = m->tensors[op->in[k]].producer;
            if (producer >= 0 && plan->stage_of[producer] != s)
                add_pair(out, n, &cap, op->in[k], -1, plan->stage_of[producer], s);
        }
        for (int k = 0; k < op->n_param; k++) {
            int home = plan->stage_of[m->params[op->param[k]].first_op];
            if (home != s)
                add_pair(out, n, &cap, -1, op->param[k], home, s);
        }
    }
}

const struct shape *transfer_shape(const struct program *g, const struct transfer *t) {
    const struct model *m = g->plan->model;
    return t->tensor >= 0 ? &m->tensors[t->tensor].shape : &m->params[t->param].shape;
}

static bool intersect(const struct shape *s, const struct block *a, const struct block *b,
                      struct block *out) {
    for (int i = 0; i < s->rank; i++) {
        int64_t lo = a->first[i] > b->first[i] ? a->first[i] : b->first[i];
        int64_t a_end = a->first[i] + a->size[i], b_end = b->first[i] + b->size[i];
        int64_t hi = a_end < b_end ? a_end : b_end;
        if (lo >= hi)
            return false;
        out->first[i] = lo;
        out->size[i] = hi - lo;
    }
    return true;
}

/* The member of `from`'s mesh that serves device `dst` with the shard at these coordinates: the
 * coordinates on replicated axes are chosen by dst. */
static void choose_replica(const struct mesh *mesh, struct placement p, int dst,
                           int coord[MESH_MAX_AXES]) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        if (p.at[a] >= 0)
            continue;
        coord[a] = dst % mesh->size[a];
        dst /= mesh->size[a];
    }
}

/* Steps through the shards of a placement: coordinates on sharded axes. */
static bool next_shard(const struct mesh *mesh, struct placement p,
                       int coord[MESH_MAX_AXES]) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        if (p.at[a] < 0)
            continue;
        if (++coord[a] < mesh->size[a])
            return true;
        coord[a] = 0;
    }
    return false;
}

static void push_piece(struct piece **pieces, int *n, struct piece p,
                       const struct shape *s) {
    p.elems = 1;
    for (int i = 0; i < s->rank; i++)
        p.elems *= p.box.size[i];
    if ((*n & (*n - 1)) == 0)
        *pieces = mem_grow(*pieces, *n ? 2 * (size_t)*n : 1, sizeof **pieces);
    (*pieces)[(*n)++] = p;
}

/* What device d of the receiving mesh gets, all or only from the sender `only`. */
static void pieces_into(const struct program *g, const struct transfer *t, int d, int only,
                        struct piece **pieces, int *n) {
    const struct shape *s = transfer_shape(g, t);
    const struct stage *from = &g->plan->stages[t->from], *to = &g->plan->stages[t->to];
    int coord[MESH_MAX_AXES] = {0}, src[MESH_MAX_AXES] = {0};
    mesh_coords(&to->mesh, d, coord);
    struct block want = placement_block(&to->mesh, s, &g->sizes, t->to_place, coord);
    choose_replica(&from->mesh, t->from_place, d, src);
    do {
        struct block have = placement_block(&from->mesh, s, &g->sizes, t->from_place, src);
        struct piece p = {.src = from->first_rank + mesh_rank(&from->mesh, src),
                          .dst = to->first_rank + d};
        if ((only < 0 || p.src == only) && intersect(s, &have, &want, &p.box))
            push_piece(pieces, n, p, s);
    } while (next_shard(&from->mesh, t->from_place, src));
}

int transfer_pieces(const struct program *g, const struct transfer *t, int rank,
                    bool as_source, struct piece **pieces) {
    const struct stage *from = &g->plan->stages[t->from], *to = &g->plan->stages[t->to];
    int n = 0, senders = mesh_devices(&from->mesh), receivers = mesh_devices(&to->mesh);
    *pieces = NULL;
    if (as_source ? rank < from->first_rank || rank >= from->first_rank + senders
                  : rank < to->first_rank || rank >= to->first_rank + receivers)
        return 0;
    if (!as_source)
        pieces_into(g, t, rank - to->first_rank, -1, pieces, &n);
    else
        for (int d = 0; d < receivers; d++)
            pieces_into(g, t, d, rank, pieces, &n);
    return n;
}

/* Is the box one run of memory inside the block? */
static bool contiguous(const struct shape *s, const struct block *block,
                       const struct block *box) {
    int i = s->rank - 1;
    while (i > 0 && box->size[i] == block->size[i])
        i--;
    for (i--; i >= 0; i--)
        if (box->size[i] != 1)
            return false;
    return true;
}

bool piece_is_contiguous(const struct program *g, const struct transfer *t,
                         const struct piece *p) {
    const struct stage *to = &g->plan->stages[t->to];
    int coord[MESH_MAX_AXES];
    mesh_coords(&to->mesh, p->dst - to->first_rank, coord);
    const struct shape *s = transfer_shape(g, t);
    struct block block = placement_block(&to->mesh, s, &g->sizes, t->to_place, coord);
    return contiguous(s, &block, &p->box);
}

void transfer_link(struct program *g, struct transfer *t) {
    const struct stage *from = &g->plan->stages[t->from], *to = &g->plan->stages[t->to];
    struct piece *pieces = NULL;
    int senders = mesh_devices(&from->mesh), receivers = mesh_devices(&to->mesh);
    int64_t *sent = mem_array((size_t)senders, sizeof *sent);
    for (int d = 0; d < receivers; d++) {
        int n = 0;
        int64_t staged = 0, received = 0;
        pieces_into(g, t, d, -1, &pieces, &n);
        for (int i = 0; i < n; i++) {
            sent[pieces[i].src - from->first_rank] += pieces[i].elems;
            received += pieces[i].elems;
            if (!piece_is_contiguous(g, t, &pieces[i]))
                staged += pieces[i].elems;
        }
        free(pieces);
        pieces = NULL;
        if (received > t->max_recv)
            t->max_recv = received;
        if (staged > t->recv_staging)
            t->recv_staging = staged;
    }
    for (int i = 0; i < senders; i++)
        if (sent[i] > t->max_send)
            t->max_send = sent[i];
    t->send_staging = t->max_send;
    int64_t apart = t->to > t->from ? t->to - t->from : t->from - t->to;
    int64_t m = plan_micro_batches(g->plan);
    t->depth = t->tensor < 0 ? 1 : apart < m ? apart : m;
    free(sent);
}
