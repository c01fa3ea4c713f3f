/* Checkpoints of a run: each tensor is stored once, by the ranks that come first on the axes
 * over which it is replicated; any rank under any plan reads the box that it needs. */
#include "checkpoint/checkpoint.h"
#include "common/mem.h"
#include "exec/exec_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_TAG = 1 << 20 };

/* The part of a global tensor that this rank holds. */
static struct checkpoint_box box_of(const struct exec_chunk *c, int param,
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

static enum checkpoint_kind state_kind(const struct exec *x, int which) {
    if (which == STATE_MASTER)
        return CHECKPOINT_PARAM;
    if (x->g->plan->optimizer == OPTIMIZER_sgd)
        return CHECKPOINT_MOMENTUM;
    return which == STATE_SECOND ? CHECKPOINT_ADAM_V : CHECKPOINT_ADAM_M;
}

static bool stores(const struct exec_chunk *c, struct placement place) {
    return rank_is_first(&c->rp, placement_axes(c->sp->mesh, place, PLACE_REPLICATE));
}

/* Parameters and optimizer state where the host can work on them: the arena itself, or room for a
 * copy of its beginning. What is offloaded is where it should be already. */
static char *image_open(const struct exec *x) {
    const int64_t *bytes = x->chunks->sp->bytes;
    return device_is_host(x->device)
               ? x->arena
               : mem_alloc((size_t)(bytes[MEM_parameters] + bytes[MEM_gradients] +
                                    bytes[MEM_optimizer]));
}

static void image_close(const struct exec *x, char *image) {
    if (image != x->arena)
        free(image);
}

/* From the device to the image, or back. */
static int image_move(struct exec *x, char *image, bool back, struct err *err) {
    const int64_t *bytes = x->chunks->sp->bytes;
    struct device_stream *s = x->streams[STREAM_compute];
    int64_t at[2] = {0, bytes[MEM_parameters] + bytes[MEM_gradients]};
    int64_t n[2] = {bytes[MEM_parameters], bytes[MEM_optimizer]};
    int rc = device_synchronize(s, err);
    for (int k = 0; k < 2 && rc == 0 && image != x->arena; k++)
        rc = back ? device_upload(s, x->arena + at[k], image + at[k], n[k], err)
                  : device_download(s, image + at[k], x->arena + at[k], n[k], err);
    return rc;
}

static void *contents(const struct exec *x, const struct exec_chunk *c, char *image,
                      int buffer) {
    const struct buffer *b = &c->sp->buffers[buffer];
    return b->host ? x->host_arena + (b->offset - HOST_ARENA) : image + b->offset;
}

/* What this rank stores of a chunk: parameters at home here and optimizer state, if it is the first
 * replica. Of a parameter of 16 bits that is the master, so that any plan may go on from it. */
static int64_t list_chunk(const struct exec *x, const struct exec_chunk *c, char *image,
                          struct checkpoint_piece *out) {
    const struct model *m = x->g->plan->model;
    int64_t n = 0;
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        if (p->home && stores(c, p->place) && c->sp->buffers[p->buffer].dtype == DTYPE_f32)
            out[n++] = (struct checkpoint_piece){CHECKPOINT_PARAM, m->params[p->param].name,
                                                 box_of(c, p->param, p->place),
                                                 contents(x, c, image, p->buffer)};
    }
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        if (stores(c, s->place))
            out[n++] = (struct checkpoint_piece){
                state_kind(x, s->which), m->params[s->param].name,
                box_of(c, s->param, s->place), contents(x, c, image, s->buffer)};
    }
    return n;
}

static int64_t list_pieces(const struct exec *x, char *image,
                           struct checkpoint_piece **out) {
    int64_t n = 0, room = 0;
    for (int k = 0; k < x->n_chunks; k++)
        room += x->chunks[k].sp->n_params + x->chunks[k].sp->n_states;
    *out = mem_array((size_t)room, sizeof **out);
    for (int k = 0; k < x->n_chunks; k++)
        n += list_chunk(x, &x->chunks[k], image, *out + n);
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
static int commit(struct exec *x, const char *dir, const struct checkpoint_info *about,
                  char *own, int64_t keep, struct err *err) {
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
    info.loss_scale = x->loss_scale;
    info.good_steps = x->good_steps;
    info.sample = x->sample;
    info.seed = x->opt.seed;
    info.model = m->name;
    info.model_hash = m->hash;
    if (rc == 0)
        rc = checkpoint_commit(dir, &info, reports, n, keep, err);
    for (int r = 1; r < n; r++)
        free(reports[r]);
    free(reports);
    return rc;
}

static bool piece_is_finite(const struct checkpoint_piece *p) {
    int64_t n = 1;
    for (int d = 0; d < p->box.dims; d++)
        n *= p->box.size[d];
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        finite &= isfinite(p->data[i]) != 0;
    return finite;
}

/* Do all ranks hold numbers? Sets *finite alike on all of them. */
static int check_finite(struct exec *x, const struct checkpoint_piece *pieces, int64_t n,
                        bool *finite, struct err *err) {
    double bad = 0;
    for (int64_t i = 0; i < n && bad == 0; i++)
        bad = !piece_is_finite(&pieces[i]);
    if (comm_max_double(comm_world(x->comm), &bad, 1, err) < 0)
        return -1;
    *finite = bad == 0;
    return 0;
}

/* Every rank learns of a failure before the next step, so nobody waits for one that gave up. */
static int save_pieces(struct exec *x, const char *dir, const struct checkpoint_info *about,
                       const struct checkpoint_piece *pieces, int64_t n, int64_t keep,
                       struct err *err) {
    int rank = comm_rank(x->comm);
    if (exec_agree(x->comm, rank ? 0 : checkpoint_begin(dir, x->step, err), err) < 0)
        return -1;
    char *report = NULL;
    int rc = checkpoint_write(dir, x->step, rank, pieces, n, &report, err);
    rc = exec_agree(x->comm, rc, err);
    if (rc == 0)
        rc = exec_agree(x->comm,
                        rank ? send_report(x, report, err)
                             : commit(x, dir, about, report, keep, err),
                        err);
    free(report);
    return rc;
}

int exec_save(struct exec *x, const char *dir, const struct checkpoint_info *about,
              int64_t keep, struct err *err) {
    struct checkpoint_piece *pieces;
    char *image = image_open(x);
    int64_t n = list_pieces(x, image, &pieces);
    bool finite;
    int rc = image_move(x, image, false, err);
    if (rc == 0)
        rc = check_finite(x, pieces, n, &finite, err);
    if (rc == 0)
        rc = finite ? save_pieces(x, dir, about, pieces, n, keep, err) : 1;
    image_close(x, image);
    free(pieces);
    return rc;
}

/* Where parameters come from: one of them. */
struct source {
    const struct checkpoint *ck;
    const struct weight_file *weights;
};

static int read_box(const struct exec *x, const struct source *from, int param,
                    const struct checkpoint_box *box, float *out, struct err *err) {
    const char *name = x->g->plan->model->params[param].name;
    if (from->ck)
        return checkpoint_read(from->ck, CHECKPOINT_PARAM, name, box, out, err);
    weight_file_read(from->weights, param, box, out);
    return 0;
}

/* As the buffer has it: rounded to 16 bits, as many rows at a time as the room on the host holds. */
static int load_param(struct exec *x, const struct exec_chunk *c, const struct source *from,
                      int param, struct placement place, int buffer, char *image,
                      struct err *err) {
    const struct buffer *b = &c->sp->buffers[buffer];
    struct checkpoint_box box = box_of(c, param, place), part = box;
    char *out = contents(x, c, image, buffer);
    if (b->dtype == DTYPE_f32)
        return read_box(x, from, param, &box, (float *)out, err);
    int64_t rows = box.size[0], elems = b->elems / rows;
    int64_t most = x->host_bytes / (dtype_size(DTYPE_f32) * elems);
    for (int64_t at = 0; at < rows; at += most) {
        part.first[0] = box.first[0] + at;
        part.size[0] = rows - at < most ? rows - at : most;
        if (read_box(x, from, param, &part, (float *)x->host, err) < 0)
            return -1;
        kernel_narrow(part.size[0] * elems, b->dtype, (float *)x->host,
                      out + dtype_size(b->dtype) * at * elems);
    }
    return 0;
}

/* Parameters, and their masters. Copies of tied ones too: each reads the same tensor. */
static int load_params(struct exec *x, const struct exec_chunk *c,
                       const struct source *from, char *image, struct err *err) {
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        if (load_param(x, c, from, p->param, p->place, p->buffer, image, err) < 0)
            return -1;
    }
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        if (s->which == STATE_MASTER &&
            load_param(x, c, from, s->param, s->place, s->buffer, image, err) < 0)
            return -1;
    }
    return 0;
}

static int load_states(struct exec *x, const struct exec_chunk *c,
                       const struct checkpoint *ck, char *image, struct err *err) {
    const struct model *m = x->g->plan->model;
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        struct checkpoint_box box = box_of(c, s->param, s->place);
        if (s->which != STATE_MASTER &&
            checkpoint_read(ck, state_kind(x, s->which), m->params[s->param].name, &box,
                            contents(x, c, image, s->buffer), err) < 0)
            return -1;
    }
    return 0;
}

int exec_load(struct exec *x, const struct checkpoint *ck, struct err *err) {
    const struct checkpoint_info *info = checkpoint_info(ck);
    int rc = checkpoint_verify(ck, comm_rank(x->comm), comm_size(x->comm), err);
    struct source from = {.ck = ck};
    char *image = image_open(x);
    for (int k = 0; k < x->n_chunks && rc == 0; k++) {
        rc = load_params(x, &x->chunks[k], &from, image, err);
        if (rc == 0)
            rc = load_states(x, &x->chunks[k], ck, image, err);
    }
    if (rc == 0)
        rc = image_move(x, image, true, err);
    image_close(x, image);
    if (rc == 0) {
        x->step = info->step;
        x->skipped = info->skipped;
        if (info->loss_scale > 0 && x->loss_scale > 0) {
            x->loss_scale = info->loss_scale;
            x->good_steps = info->good_steps;
        }
        x->sample = info->sample;
        x->opt.seed = info->seed;
    }
    return exec_agree(x->comm, rc, err);
}

int exec_load_weights(struct exec *x, const struct weight_file *f, struct err *err) {
    struct source from = {.weights = f};
    char *image = image_open(x);
    int rc = image_move(x, image, false, err); /* optimizer state stays as it is */
    for (int k = 0; k < x->n_chunks && rc == 0; k++)
        rc = load_params(x, &x->chunks[k], &from, image, err);
    if (rc == 0)
        rc = image_move(x, image, true, err);
    image_close(x, image);
    return exec_agree(x->comm, rc, err);
}
