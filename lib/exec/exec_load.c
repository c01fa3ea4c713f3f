/* Loading: any rank under any plan reads the boxes that it needs.
 *
 * They are cut into parts of some MiB, which the threads of this rank read side by side. What the arena
 * has as floats in memory of the host is read to its place. The rest goes through rooms: from there the
 * calling thread rounds it to 16 bits, and gives it to the device, which takes it while others are read.
 * Meanwhile one thread verifies the files of this rank's share, which the system then reads once. */
#include "checkpoint/checkpoint.h"
#include "common/mem.h"
#include "common/threads.h"
#include "exec/exec_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    PART_BYTES = 4 << 20, /* of floats, as pieces of files that are written (bulk.c) */
    ROOMS = 8,
};

/* Rows of what a buffer holds. */
struct part {
    enum checkpoint_kind kind;
    int param;
    struct checkpoint_box box;
    int64_t floats;
    const struct buffer *buffer;
    int64_t first; /* element of the buffer */
};

enum task { NOTHING, READ, PUT };

struct load {
    struct exec *x;
    /* where parameters come from: one of them */
    const struct checkpoint *ck;
    const struct weight_file *weights;
    ARR(struct part) parts;
    int64_t room_floats; /* the most that a part has which goes through a room */
    float *rooms;
    atomic_llong *done; /* bytes; or NULL */
    bool verified;
    int verdict; /* of it */
    struct err verdict_err;
    pthread_t caller;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    int64_t taken, over; /* parts that are read by somebody; that are where they belong */
    int64_t held[ROOMS]; /* the part in a room, + 1; 0 = free */
    bool ready[ROOMS];   /* it is read */
    bool failed;
    struct err err;
};

/* ---- parts ----------------------------------------------------------------------------------- */

/* Is it read to its place? */
static bool is_direct(const struct load *l, const struct part *p) {
    return p->buffer->dtype == DTYPE_f32 &&
           (p->buffer->host || device_is_host(l->x->device));
}

/* exec_upload rounds no more at a time than the room on the host holds. */
static int64_t rows_at_once(const struct exec *x, enum dtype dtype, int64_t row_floats) {
    int64_t bytes = dtype == DTYPE_f32 ? PART_BYTES : x->host_bytes;
    int64_t rows = bytes / (dtype_size(DTYPE_f32) * row_floats);
    return rows > 0 ? rows : 1;
}

static void list_parts(struct load *l, const struct exec_chunk *c,
                       enum checkpoint_kind kind, int param, struct placement place,
                       int buffer) {
    const struct buffer *b = &c->sp->buffers[buffer];
    struct checkpoint_box box = exec_stored_box(c, param, place), rows = box;
    int64_t n = box.size[0], row = b->elems / n, most = rows_at_once(l->x, b->dtype, row);
    for (int64_t at = 0; at < n; at += most) {
        rows.first[0] = box.first[0] + at;
        rows.size[0] = n - at < most ? n - at : most;
        struct part p = {kind, param, rows, rows.size[0] * row, b, at * row};
        arr_push(&l->parts, p);
        if (!is_direct(l, &p) && p.floats > l->room_floats)
            l->room_floats = p.floats;
    }
}

/* Files of weights may be of some parameters alone. */
static bool is_there(const struct load *l, int param) {
    return l->ck || weight_file_has(l->weights, param);
}

/* Parameters and their masters. Copies of tied ones too: each reads the same tensor. Of a checkpoint the
 * optimizer's state. */
static void list_chunk(struct load *l, const struct exec_chunk *c) {
    const struct plan *plan = l->x->g->plan;
    for (int i = 0; i < c->sp->n_params; i++) {
        const struct param_instance *p = &c->sp->params[i];
        if (is_there(l, p->param))
            list_parts(l, c, CHECKPOINT_PARAM, p->param, p->place, p->buffer);
    }
    for (int i = 0; i < c->sp->n_states; i++) {
        const struct state_instance *s = &c->sp->states[i];
        if (is_there(l, s->param) && (l->ck || s->which == STATE_MASTER))
            list_parts(
                l, c,
                exec_state_kind(plan->optimizer, &plan->model->params[s->param], s->which),
                s->param, s->place, s->buffer);
    }
}

static void *address(const struct load *l, const struct part *p) {
    char *at = exec_address(l->x, p->buffer->offset, 0);
    return at + dtype_size(p->buffer->dtype) * p->first;
}

static int read_part(const struct load *l, const struct part *p, float *out,
                     struct err *err) {
    if (l->ck)
        return checkpoint_read(l->ck, p->kind, l->x->g->plan->model->params[p->param].name,
                               &p->box, out, err);
    weight_file_read(l->weights, p->param, &p->box, out);
    return 0;
}

static int put_part(const struct load *l, const struct part *p, const float *from,
                    struct err *err) {
    if (!p->buffer->host && !device_is_host(l->x->device))
        return exec_upload(l->x, address(l, p), p->buffer->dtype, from, p->floats, err);
    kernel_narrow(p->floats, p->buffer->dtype, from, address(l, p));
    return 0;
}

/* ---- who does what ---------------------------------------------------------------------------- */

static float *room(const struct load *l, int r) {
    return l->rooms + r * l->room_floats;
}

/* A room that is free, or ready to be emptied; -1 if there is none. */
static int find_room(const struct load *l, bool ready) {
    for (int r = 0; r < ROOMS; r++)
        if (ready ? l->ready[r] : !l->held[r])
            return r;
    return -1;
}

/* The calling thread alone gives the device work. *r is the room, or -1 where none is needed. */
static enum task next_task(struct load *l, int64_t *i, int *r) {
    if (pthread_equal(l->caller, pthread_self()) && (*r = find_room(l, true)) >= 0) {
        l->ready[*r] = false;
        *i = l->held[*r] - 1;
        return PUT;
    }
    if (l->taken == l->parts.n)
        return NOTHING;
    *r = -1;
    if (!is_direct(l, &l->parts.p[l->taken])) {
        if ((*r = find_room(l, false)) < 0)
            return NOTHING;
        l->held[*r] = l->taken + 1;
    }
    *i = l->taken++;
    return READ;
}

static void note_done(struct load *l, enum task task, int64_t i, int r) {
    if (task == READ && r >= 0) {
        l->ready[r] = true;
        return;
    }
    if (task == PUT)
        l->held[r] = 0;
    l->over++;
    if (l->done)
        atomic_fetch_add(l->done, dtype_size(DTYPE_f32) * l->parts.p[i].floats);
}

static void work(void *arg) {
    struct load *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->failed && l->over < l->parts.n) {
        struct err err = {0};
        int64_t i;
        int r;
        enum task task = next_task(l, &i, &r);
        if (task == NOTHING) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        const struct part *p = &l->parts.p[i];
        pthread_mutex_unlock(&l->lock);
        int rc = task == PUT ? put_part(l, p, room(l, r), &err)
                             : read_part(l, p, r < 0 ? address(l, p) : room(l, r), &err);
        pthread_mutex_lock(&l->lock);
        note_done(l, task, i, r);
        if (rc < 0 && !l->failed) {
            l->failed = true;
            l->err = err;
        }
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
}

/* ---- all of it -------------------------------------------------------------------------------- */

static void verify(struct load *l, int threads) {
    struct bulk_way way = {.threads = threads};
    l->verdict = checkpoint_verify(l->ck, comm_rank(l->x->comm), comm_size(l->x->comm),
                                   &way, &l->verdict_err);
    l->verified = true;
}

/* Of the threads one in two verifies, up to two: one reads while the other hashes. */
static void load_or_verify(void *arg) {
    struct load *l = arg;
    int threads = l->x->opt.threads, verifying = !l->ck || threads < 2 ? 0
                                                 : threads < 4         ? 1
                                                                       : 2;
    if (pthread_equal(l->caller, pthread_self()))
        threads_run(threads - verifying, work, l);
    else
        verify(l, verifying);
}

/* A file that is damaged is what is wrong, whatever else went wrong with it. */
static int run(struct load *l, struct err *err) {
    l->verified = !l->ck;
    l->caller = pthread_self();
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    threads_run(l->ck && l->x->opt.threads > 1 ? 2 : 1, load_or_verify, l);
    if (!l->verified)
        verify(l, 1);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    if (err && l->verdict < 0)
        *err = l->verdict_err;
    else if (err && l->failed)
        *err = l->err;
    return l->verdict < 0 || l->failed ? -1 : 0;
}

static int load(struct load *l, struct err *err) {
    int64_t bytes = 0;
    for (int k = 0; k < l->x->n_chunks; k++)
        list_chunk(l, &l->x->chunks[k]);
    for (int64_t i = 0; i < l->parts.n; i++)
        bytes += dtype_size(DTYPE_f32) * l->parts.p[i].floats;
    l->done = exec_progress(l->x, bytes);
    if (l->room_floats)
        l->rooms = mem_array((size_t)(ROOMS * l->room_floats), sizeof *l->rooms);
    int rc = run(l, err);
    free(l->rooms);
    arr_release(&l->parts);
    return rc;
}

int exec_load(struct exec *x, const struct checkpoint *ck, struct err *err) {
    const struct checkpoint_info *info = checkpoint_info(ck);
    struct load l = {.x = x, .ck = ck};
    int rc = load(&l, err);
    if (rc == 0) {
        x->step = info->step;
        x->skipped = info->skipped;
        x->missing = info->missing;
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
    struct load l = {.x = x, .weights = f};
    return exec_agree(x->comm, load(&l, err), err);
}
