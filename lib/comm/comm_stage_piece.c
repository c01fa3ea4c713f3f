/* Pieces of a staged work: from the device, through MPI, to the device.
 *
 * A piece takes the same elements of every part of the work (a part: what one rank of the group
 * gets or gives), and lies in pinned memory as MPI wants it: part behind part. All members cut their
 * works in the same way, and a queue gives its pieces to MPI in order, so the collectives match. */
#include "comm/comm_stage_impl.h"

#include <stdatomic.h>

static bool is_message(const struct stage_queue *q) {
    return q->op == COMM_send || q->op == COMM_recv;
}

/* Its messages go straight from and to the device. */
static bool is_direct(const struct stage_queue *q) {
    return is_message(q) && q->job->direct;
}

/* Parts that a work has on the side where it has more. */
static int parts_of(const struct comm_work *w) {
    bool one = w->op == COMM_all_reduce || w->op == COMM_send || w->op == COMM_recv;
    return one ? 1 : w->group->n;
}

static int64_t size_of(const struct comm_work *w) {
    return dtype_size(w->dtype);
}

/* ---- copies ------------------------------------------------------------------------------- */

/* Some elements between the device and pinned memory, on a stream; the opcode says which way. */
static int copy(struct device_stream *s, enum opcode code, enum dtype dtype, int64_t n,
                void *from, void *to, struct err *err) {
    union instr_n shape = {.offload = {.elems = n}};
    union instr_src in = {.offload = {.x = from}};
    union instr_dst out = {.offload = {.y = to}};
    struct device_args args = {.dtype = dtype};
    return n ? device_launch(s, code, &shape, &in, &out, &args, err) : 0;
}

/* The piece's elements of part r. */
static int64_t place(const struct comm_work *w, const struct stage_slot *s, int r) {
    return size_of(w) * (r * w->count + s->at);
}

/* What this rank gives: all parts, or its own alone. */
static int copy_down(struct stage_queue *q, struct stage_slot *s, struct err *err) {
    const struct comm_work *w = s->of;
    int parts = parts_of(w), me = w->group->me, rc = 0;
    int64_t bytes = size_of(w) * s->n;
    if (w->op == COMM_all_gather)
        rc = copy(q->down, I_offload, w->dtype, s->n, (char *)w->in + place(w, s, 0),
                  s->in + me * bytes, err);
    else
        for (int r = 0; r < parts && rc == 0; r++)
            rc = copy(q->down, I_offload, w->dtype, s->n, (char *)w->in + place(w, s, r),
                      s->in + r * bytes, err);
    return rc < 0 ? -1 : device_event_record(s->copied, q->down, err);
}

/* What it gets. */
static int copy_up(struct stage_queue *q, struct stage_slot *s, struct err *err) {
    const struct comm_work *w = s->of;
    int parts = w->op == COMM_reduce_scatter ? 1 : parts_of(w), rc = 0;
    int64_t bytes = size_of(w) * s->n;
    char *from = w->op == COMM_all_to_all ? s->out : s->in;
    if (w->op == COMM_reduce_scatter)
        from += w->group->me * bytes;
    for (int r = 0; r < parts && rc == 0; r++)
        rc = copy(q->up, I_reload, w->dtype, s->n, from + r * bytes,
                  (char *)w->out + place(w, s, r), err);
    return rc < 0 ? -1 : device_event_record(s->copied, q->up, err);
}

/* ---- one piece ---------------------------------------------------------------------------- */

/* What became too small is freed with the queue: to free memory may wait for all that the device does. */
static int make_room(struct stage_queue *q, char **p, int64_t *room, int64_t bytes,
                     struct err *err) {
    if (bytes <= *room)
        return 0;
    if (*p)
        arr_push(&q->outgrown, *p);
    *room = 0;
    *p = device_alloc_host(q->job->device, bytes, err);
    if (!*p)
        return -1;
    *room = bytes;
    return 0;
}

/* The next piece of the work whose turn it is, in a free slot. */
static int begin_piece(struct stage_queue *q, struct err *err) {
    struct comm_work *w = q->next;
    struct stage_slot *s = &q->slot[(q->first + q->busy) % COMM_STAGE_SLOTS];
    int64_t per = q->job->piece_bytes / (parts_of(w) * size_of(w));
    int64_t left = w->count - q->at;
    per = per > 0 ? per : 1;
    if (is_direct(q))
        per = left;
    s->of = w;
    s->at = q->at;
    s->n = left < per ? left : per;
    int64_t bytes = parts_of(w) * size_of(w) * s->n;
    if (!is_direct(q) &&
        (make_room(q, &s->in, &s->room, bytes, err) < 0 ||
         (w->op == COMM_all_to_all && make_room(q, &s->out, &s->out_room, bytes, err) < 0)))
        return -1;
    struct device_stream *stream = q->op == COMM_recv ? q->up : q->down;
    if (q->at == 0 && device_event_wait(stage_started(w), stream, err) < 0)
        return -1;
    q->busy++;
    q->at += s->n;
    if (q->at >= w->count) {
        q->next = w->next;
        q->at = 0;
    }
    s->state = PIECE_COMING;
    if (is_direct(q))
        return device_event_record(s->copied, stream, err);
    return q->op == COMM_recv ? 0 : copy_down(q, s, err);
}

static int start_on_host(struct stage_queue *q, struct stage_slot *s, struct err *err) {
    const struct comm_work *w = s->of;
    struct comm_group *g = q->host;
    int64_t n = s->n;
    int64_t own = w->group->me * size_of(w) * n;
    s->work = (struct comm_work){.progress = w->progress};
    switch (w->op) {
    case COMM_all_reduce:
        return comm_start_all_reduce(g, s->in, n, w->dtype, &s->work, err);
    case COMM_all_gather:
        return comm_start_all_gather(g, s->in + own, s->in, n, w->dtype, &s->work, err);
    case COMM_reduce_scatter:
        return comm_start_reduce_scatter(g, s->in, s->in + own, n, w->dtype, &s->work, err);
    case COMM_all_to_all:
        return comm_start_all_to_all(g, s->in, s->out, n, w->dtype, &s->work, err);
    case COMM_send:
        return comm_start_send(g, is_direct(q) ? w->in : s->in, n, w->dtype, q->peer,
                               q->tag, &s->work, err);
    case COMM_recv:
        return comm_start_recv(g, is_direct(q) ? w->out : s->in, n, w->dtype, q->peer,
                               q->tag, &s->work, err);
    default: return err_system(err, "%s: not of device memory", comm_op_name(w->op));
    }
}

/* As far as the piece can go now: 1 if it moved, 0, -1 on failure. A message that is received into
 * pinned memory need not wait for its place on the device before it is copied there. */
static int move_piece(struct stage_queue *q, struct stage_slot *s, struct err *err) {
    enum piece_state before = s->state;
    bool copied = q->op == COMM_recv && !is_direct(q);
    if (s->state == PIECE_COMING) {
        int there = copied ? 1 : device_event_reached(s->copied, err);
        if (there < 0 || (there && start_on_host(q, s, err) < 0))
            return -1;
        s->state = there ? PIECE_MOVING : PIECE_COMING;
    }
    if (s->state == PIECE_MOVING &&
        atomic_load_explicit(&s->work.state, memory_order_acquire) != WORK_STARTED) {
        bool back = q->op != COMM_send && !is_direct(q);
        if (comm_wait(&s->work, err) < 0 || (back && copy_up(q, s, err) < 0))
            return -1;
        s->state = back ? PIECE_GOING : PIECE_THERE;
    }
    if (s->state == PIECE_GOING) {
        int there = device_event_reached(s->copied, err);
        if (there < 0)
            return -1;
        s->state = there ? PIECE_THERE : PIECE_GOING;
    }
    return s->state != before;
}

/* Frees the slot of the oldest piece; with its last one a work is complete. */
static void end_piece(struct stage_queue *q) {
    struct stage_slot *s = &q->slot[q->first];
    struct comm_work *w = s->of;
    s->state = PIECE_NONE;
    q->first = (q->first + 1) % COMM_STAGE_SLOTS;
    q->busy--;
    if (s->at + s->n < w->count)
        return;
    q->head = w->next;
    arr_push(&q->spare, stage_started(w));
    atomic_store_explicit(&w->state, WORK_DONE, memory_order_release);
}

/* Pieces enter MPI in order: behind one that is still coming nothing else is looked at. */
int stage_move(struct stage_queue *q, struct err *err) {
    int moved = 0;
    for (; q->next && q->busy < COMM_STAGE_SLOTS; moved = 1)
        if (begin_piece(q, err) < 0)
            return -1;
    for (int i = 0; i < q->busy; i++) {
        struct stage_slot *s = &q->slot[(q->first + i) % COMM_STAGE_SLOTS];
        int rc = move_piece(q, s, err);
        if (rc < 0)
            return -1;
        moved |= rc;
        if (s->state == PIECE_COMING)
            break;
    }
    while (q->busy && q->slot[q->first].state == PIECE_THERE)
        end_piece(q);
    return moved;
}
