/* Saving: each tensor is stored once, by the ranks that come first on the axes over which it is
 * replicated. */
#include "checkpoint/checkpoint.h"
#include "common/mem.h"
#include "exec/exec_impl.h"

#include <stdlib.h>
#include <string.h>

enum { REPORT_TAG = 1 << 20 };

struct checkpoint_box exec_stored_box(const struct exec_chunk *c, int param,
                                      struct placement place) {
    const struct model *m = c->rp.g->plan->model;
    const struct shape *s = &m->params[param].shape;
    struct extents n = model_extents(m, s, 1);
    struct box b = placement_box(c->sp->mesh, &n, place, c->rp.coord);
    struct checkpoint_box box = {.dims = s->rank};
    for (int i = 0; i < s->rank; i++) {
        box.shape[i] = n.size[i];
        box.first[i] = b.first[i];
        box.size[i] = b.size[i];
    }
    return box;
}

enum checkpoint_kind exec_state_kind(enum optimizer o, const struct model_param *p,
                                     int which) {
    static const enum checkpoint_kind first[] = {[OPTIMIZER_adamw] = CHECKPOINT_ADAM_M,
                                                 [OPTIMIZER_sgd] = CHECKPOINT_MOMENTUM,
                                                 [OPTIMIZER_lion] = CHECKPOINT_LION_M,
                                                 [OPTIMIZER_muon] = CHECKPOINT_MUON_M};
    return which == STATE_MASTER   ? CHECKPOINT_PARAM
           : which == STATE_SECOND ? CHECKPOINT_ADAM_V
                                   : first[optimizer_of(o, p)];
}

static bool stores(const struct exec_chunk *c, struct placement place) {
    return rank_is_first(&c->rp, placement_axes(c->sp->mesh, place, PLACE_REPLICATE));
}

/* Where a buffer lies: on the device, or where it is offloaded to. */
static const void *contents(const struct exec *x, const struct exec_chunk *c, int buffer) {
    const struct buffer *b = &c->sp->buffers[buffer];
    return b->host ? x->host_arena + (b->offset - HOST_ARENA) : x->arena + b->offset;
}

/* Is it all there is of the parameter? One of 16 bits that is trained has a master, which is stored so that
 * any plan may go on from it. */
static bool is_master(const struct exec *x, const struct exec_chunk *c,
                      const struct param_instance *p) {
    return c->sp->buffers[p->buffer].dtype == DTYPE_f32 ||
           x->g->plan->model->params[p->param].frozen;
}

/* What this rank stores of a chunk: parameters at home here and optimizer state, if it is the first
 * replica. */
static int64_t list_chunk(const struct exec *x, const struct exec_chunk *c,
                          struct checkpoint_piece *out) {
    const struct model *m = x->g->plan->model;
    int64_t n = 0;
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        if (p->home && stores(c, p->place) && is_master(x, c, p))
            out[n++] = (struct checkpoint_piece){CHECKPOINT_PARAM, m->params[p->param].name,
                                                 exec_stored_box(c, p->param, p->place),
                                                 contents(x, c, p->buffer),
                                                 c->sp->buffers[p->buffer].dtype};
    }
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        if (stores(c, s->place))
            out[n++] = (struct checkpoint_piece){
                exec_state_kind(x->g->plan->optimizer, &m->params[s->param], s->which),
                m->params[s->param].name, exec_stored_box(c, s->param, s->place),
                contents(x, c, s->buffer), DTYPE_f32};
    }
    return n;
}

static int64_t list_pieces(const struct exec *x, struct checkpoint_piece **out) {
    int64_t n = 0, room = 0;
    for (int k = 0; k < x->n_chunks; k++)
        room += x->chunks[k].sp->n_params + x->chunks[k].sp->n_states;
    *out = mem_array((size_t)room, sizeof **out);
    for (int k = 0; k < x->n_chunks; k++)
        n += list_chunk(x, &x->chunks[k], *out + n);
    return n;
}

static int send_report(struct exec *x, const char *report, struct err *err) {
    int64_t n = (int64_t)strlen(report) + 1;
    struct comm_group *world = comm_world(x->comm);
    if (comm_send(world, &n, sizeof n, DTYPE_u8, 0, REPORT_TAG, err) < 0)
        return -1;
    return comm_send(world, report, n, DTYPE_u8, 0, REPORT_TAG, err);
}

static char *recv_report(struct exec *x, int rank, struct err *err) {
    int64_t n = 0;
    struct comm_group *world = comm_world(x->comm);
    if (comm_recv(world, &n, sizeof n, DTYPE_u8, rank, REPORT_TAG, err) < 0)
        return NULL;
    char *report = mem_alloc((size_t)n);
    if (comm_recv(world, report, n, DTYPE_u8, rank, REPORT_TAG, err) < 0) {
        free(report);
        return NULL;
    }
    return report;
}

/* Rank 0: all reports, then the index that makes the checkpoint complete. */
static int commit(struct exec *x, const struct exec_folder *to,
                  const struct checkpoint_info *about, char *own, struct err *err) {
    int n = comm_size(x->comm), rc = 0;
    char **reports = mem_array((size_t)n, sizeof *reports);
    reports[0] = own;
    for (int r = 1; r < n; r++)
        if (!(reports[r] = recv_report(x, r, err)))
            rc = -1;
    const struct model *m = x->g->plan->model;
    struct checkpoint_info info = *about;
    info.step = x->step;
    info.skipped = x->skipped;
    info.missing = x->missing;
    info.loss_scale = x->loss_scale;
    info.good_steps = x->good_steps;
    info.sample = x->sample;
    info.seed = x->opt.seed;
    info.model = m->name;
    info.model_hash = m->hash;
    info.batch = x->g->plan->batch;
    info.ref = m->ref;
    info.set = m->set;
    char *file = model_file_text(m);
    info.doc = file;
    if (rc == 0)
        rc = checkpoint_commit(to->dir, &info, reports, n, to->apart, to->keep, err);
    free(file);
    for (int r = 1; r < n; r++)
        free(reports[r]);
    free(reports);
    return rc;
}

static int64_t piece_bytes(const struct checkpoint_piece *p) {
    int64_t n = dtype_size(DTYPE_f32);
    for (int d = 0; d < p->box.dims; d++)
        n *= p->box.size[d];
    return n;
}

static int fetch(void *ctx, void *to, const void *from, int64_t bytes, struct err *err) {
    struct exec *x = ctx;
    const char *p = from, *kept = x->host_arena;
    if (kept && p >= kept && p < kept + x->chunks->sp->host_bytes) {
        memcpy(to, from, (size_t)bytes);
        return 0;
    }
    return device_download(x->streams[STREAM_compute], to, from, bytes, err);
}

/* Is it this rank that makes the folder, for all ranks or for those of its host? */
static bool makes(const struct exec *x, const struct exec_folder *to) {
    return to->apart ? to->first : comm_rank(x->comm) == 0;
}

/* All values are looked at while they are written: to look before would read them twice, and fetch them
 * twice from a GPU. Returns 1, and nothing stays, where some rank's are not finite. */
static int finish(struct exec *x, const struct exec_folder *to,
                  const struct checkpoint_info *about,
                  const struct checkpoint_report *report, struct err *err) {
    int rank = comm_rank(x->comm), rc = 0;
    double bad = !report->finite;
    if (comm_max_double(comm_world(x->comm), &bad, 1, err) < 0)
        return -1;
    if (bad > 0)
        rc = makes(x, to) ? checkpoint_abandon(to->dir, x->step, err) : 0;
    else
        rc = rank ? send_report(x, report->text, err)
                  : commit(x, to, about, report->text, err);
    rc = exec_agree(x->comm, rc, err);
    if (rc == 0 && bad == 0 && to->apart)
        rc = exec_agree(
            x->comm,
            rank && to->first ? checkpoint_publish(to->dir, x->step, to->keep, err) : 0,
            err);
    return rc == 0 && bad > 0 ? 1 : rc;
}

/* Every rank learns of a failure before the next step, so nobody waits for one that gave up. */
static int save_share(struct exec *x, const struct exec_folder *to,
                      const struct checkpoint_info *about,
                      const struct checkpoint_share *share, struct err *err) {
    int began = makes(x, to) ? checkpoint_begin(to->dir, x->step, err) : 0;
    if (exec_agree(x->comm, began, err) < 0)
        return -1;
    struct checkpoint_report report;
    int rc = checkpoint_write(to->dir, x->step, share, &report, err);
    rc = exec_agree(x->comm, rc, err);
    if (rc == 0)
        rc = finish(x, to, about, &report, err);
    free(report.text);
    return rc;
}

int exec_save(struct exec *x, const struct exec_folder *to,
              const struct checkpoint_info *about, struct err *err) {
    if (exec_average(x, err) < 0)
        return -1;
    struct checkpoint_piece *pieces;
    struct checkpoint_share share = {.rank = comm_rank(x->comm),
                                     .n = list_pieces(x, &pieces),
                                     .way = {.threads = x->opt.threads, .ctx = x}};
    int64_t bytes = 0;
    for (int64_t i = 0; i < share.n; i++)
        bytes += piece_bytes(&pieces[i]);
    share.pieces = pieces;
    if (!device_is_host(x->device))
        share.way.fetch = fetch;
    share.way.done = exec_progress(x, bytes);
    int rc = device_synchronize(x->streams[STREAM_compute], err);
    if (rc == 0)
        rc = save_share(x, to, about, &share, err);
    free(pieces);
    return rc;
}
