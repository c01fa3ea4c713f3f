/* Transfers between meshes: which box goes from which rank to which.
 *
 * Every rank derives the same list, so matching sends and receives agree without talking. A
 * receiver takes each part of its box from one of the ranks that hold it; receivers spread over
 * the replicas, so that no sender serves all of them. */
#include "program/link.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

const struct shape *transfer_shape(const struct program *g, const struct transfer *t) {
    const struct model *m = g->plan->model;
    return t->tensor >= 0 ? &m->tensors[t->tensor].shape : &m->params[t->param].shape;
}

struct extents transfer_extents(const struct program *g, const struct transfer *t) {
    return model_extents(g->plan->model, transfer_shape(g, t), g->plan->micro_batch);
}

/* What two boxes have in common; false if nothing. */
static bool intersect(int rank, const struct box *a, const struct box *b, struct box *out) {
    for (int i = 0; i < rank; i++) {
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

/* The receivers, numbered by what they want: copies of one box follow each other, so that
 * replicas of the sender which take turns serve equally many of them. */
static int receiver_number(const struct mesh *mesh, struct placement p, int dst) {
    int coord[MESH_MAX_AXES], shard = 0, copy = 0, copies = 1;
    mesh_coords(mesh, dst, coord);
    for (int a = 0; a < mesh->n_axes; a++) {
        if (p.at[a] >= 0) {
            shard = shard * mesh->size[a] + coord[a];
        } else {
            copy = copy * mesh->size[a] + coord[a];
            copies *= mesh->size[a];
        }
    }
    return shard * copies + copy;
}

/* The member of the sender's mesh that serves receiver number `n` with the shard at these
 * coordinates: the coordinates on replicated axes are chosen by n. */
static void choose_replica(const struct mesh *mesh, struct placement p, int n,
                           int coord[MESH_MAX_AXES]) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        if (p.at[a] >= 0)
            continue;
        coord[a] = n % mesh->size[a];
        n /= mesh->size[a];
    }
}

static void push_piece(struct piece **pieces, int *n, struct piece p, int rank) {
    p.elems = 1;
    for (int i = 0; i < rank; i++)
        p.elems *= p.box.size[i];
    if ((*n & (*n - 1)) == 0)
        *pieces = mem_grow(*pieces, *n ? 2 * (size_t)*n : 1, sizeof **pieces);
    (*pieces)[(*n)++] = p;
}

/* A walk over the shards of the senders that have something of what is wanted. */
struct walk {
    const struct mesh *mesh;
    struct placement place;
    int rank; /* of the tensor */
    struct box want;
    int only; /* device of the senders, or -1 for all */
    int coord[MESH_MAX_AXES];
    struct piece piece; /* the box is set when one is found */
    struct piece **pieces;
    int *n, first_rank;
};

/* Goes axis by axis, outermost first. `have` is what the axes before this one leave; of
 * this axis, only coordinates that reach into `want` are followed. */
static void walk_axis(struct walk *w, int a, struct box have) {
    if (a == w->mesh->n_axes) {
        int sender = mesh_rank(w->mesh, w->coord);
        w->piece.src = w->first_rank + sender;
        if ((w->only < 0 || sender == w->only) &&
            intersect(w->rank, &have, &w->want, &w->piece.box))
            push_piece(w->pieces, w->n, w->piece, w->rank);
        return;
    }
    int i = w->place.at[a];
    if (i < 0) {
        walk_axis(w, a + 1, have);
        return;
    }
    int64_t from = have.first[i], size = have.size[i] / w->mesh->size[a];
    int64_t lo = (w->want.first[i] - from) / size;
    int64_t end = (w->want.first[i] + w->want.size[i] - from + size - 1) / size;
    have.size[i] = size;
    for (int64_t k = lo > 0 ? lo : 0; k < end && k < w->mesh->size[a]; k++) {
        w->coord[a] = (int)k;
        have.first[i] = from + k * size;
        walk_axis(w, a + 1, have);
    }
}

/* Lists what device d of the receiving mesh gets, all or only from the rank `only`. */
static void pieces_into(const struct program *g, const struct transfer *t, int d, int only,
                        struct piece **pieces, int *n) {
    struct extents x = transfer_extents(g, t);
    const struct stage *from = &g->plan->stages[t->from], *to = &g->plan->stages[t->to];
    int coord[MESH_MAX_AXES] = {0};
    mesh_coords(&to->mesh, d, coord);
    struct walk w = {.mesh = &from->mesh,
                     .place = t->from_place,
                     .rank = x.rank,
                     .want = placement_box(&to->mesh, &x, t->to_place, coord),
                     .only = only < 0 ? -1 : only - from->first_rank,
                     .piece.dst = to->first_rank + d,
                     .pieces = pieces,
                     .n = n,
                     .first_rank = from->first_rank};
    if (from->group == to->group) /* what a rank has already is not sent */
        mesh_coords(&from->mesh, d, w.coord);
    else
        choose_replica(&from->mesh, t->from_place,
                       receiver_number(&to->mesh, t->to_place, d), w.coord);
    struct box whole = {{0}, {0}};
    memcpy(whole.size, x.size, sizeof whole.size);
    walk_axis(&w, 0, whole);
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

/* Whether the box is one run of memory inside the whole. */
static bool contiguous(int rank, const struct box *whole, const struct box *box) {
    int i = rank - 1;
    while (i > 0 && box->size[i] == whole->size[i])
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
    struct extents x = transfer_extents(g, t);
    struct box whole = placement_box(&to->mesh, &x, t->to_place, coord);
    return contiguous(x.rank, &whole, &p->box);
}

static void raise_to(int64_t *most, int64_t n) {
    if (n > *most)
        *most = n;
}

/* The largest sizes over the ranks of both ends: a stage's ranks have one arena layout. */
void transfer_link(struct program *g, struct transfer *t) {
    const struct stage *from = &g->plan->stages[t->from], *to = &g->plan->stages[t->to];
    struct piece *pieces = NULL;
    int senders = mesh_devices(&from->mesh), receivers = mesh_devices(&to->mesh);
    int64_t *sent = mem_array(2 * (size_t)senders, sizeof *sent);
    int64_t *packed = sent + senders;
    for (int d = 0; d < receivers; d++) {
        int n = 0;
        int64_t staged = 0, received = 0, own = 0;
        pieces_into(g, t, d, -1, &pieces, &n);
        for (int i = 0; i < n; i++) {
            const struct piece *p = &pieces[i];
            bool copied = p->src == p->dst;
            packed[p->src - from->first_rank] += p->elems;
            sent[p->src - from->first_rank] += copied ? 0 : p->elems;
            received += copied ? 0 : p->elems;
            own += copied ? p->elems : 0;
            if (!copied && !piece_is_contiguous(g, t, p))
                staged += p->elems;
        }
        free(pieces);
        pieces = NULL;
        raise_to(&t->max_recv, received);
        raise_to(&t->max_own, own);
        raise_to(&t->recv_staging, staged);
    }
    for (int i = 0; i < senders; i++) {
        raise_to(&t->max_send, sent[i]);
        raise_to(&t->send_staging, packed[i]);
    }
    free(sent);
}
