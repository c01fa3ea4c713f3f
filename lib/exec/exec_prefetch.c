/* Data is read ahead of the step that needs it, by a thread of its own.
 *
 * The thread walks through the schedule as the step does, batch after batch, and leaves what each input
 * instruction will want in a ring of memory that is made once. The step takes the pieces in the same
 * order: what is read when changes nothing of what is read. A piece that cannot be read keeps its error,
 * which the step gets when it comes to that piece, so a training that ends before it never hears of it.
 *
 * Numbers of pieces only grow: `freed` <= `given` <= `taken` <= `read`, and piece i is described by place
 * i % PIECES. Where the device works by itself, an event says when a piece that was given is used up. Bytes lie in the ring one behind the other; one that would cross its end begins at 0. */
#define _POSIX_C_SOURCE 200809L
#include "exec/exec_impl.h"

#include "common/mem.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES = 256, /* at most: inputs of few numbers shall not wake the thread one by one */
    ALIGN = 64,
    LEAST = 3, /* of the largest: one in use, one ready, one under way */
};
/* Two steps' worth (one in use, one ready) is all that a step can profit from. With many micro-batches
 * it takes its data bit by bit, and a part is enough; what is kept is memory of the host. */
static const int64_t MOST_BYTES = INT64_C(64) << 20;
/* Steps of microseconds would else wake the thread in each of them, which takes longer than reading. */
static const int64_t LEAST_BYTES = INT64_C(1) << 20;

/* Where reading is: counts before a batch, then the input instructions of its actions. */
struct cursor {
    enum data_split split;
    int64_t sample, batches; /* first sample of the batch; batches to come, with this one */
    bool counts;             /* targets are counted next, of */
    int64_t counted;         /* so many samples; 0 = never */
    int64_t action;          /* of the schedule */
    int instr; /* of its stage, the next to be looked at; -1 = the segment's first */
};

struct prefetch_piece {
    const struct instr *ins; /* NULL = counts of targets */
    const struct box *box;
    enum data_split split;
    int64_t sample;    /* the first of its micro-batch */
    int64_t counted;   /* samples, of counts */
    int64_t at, bytes; /* in the ring */
    enum dtype form;   /* of inputs */
    bool failed;
};

struct exec_prefetch {
    const struct exec *x;
    char *ring;
    int64_t ring_bytes;
    bool counts; /* some losses have targets to be counted */
    int64_t
        due; /* the sample that the next batch of training begins with; -1 = it is not read */
    int64_t given; /* pieces that the compute stream has been given all the use of */
    /* When it is done with them; NULL where it is at once. */
    struct device_event *used_up[PIECES];
    bool started; /* there is a thread */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t more;  /* the thread has something to do */
    pthread_cond_t done;  /* a piece is read, or the thread rests */
    struct cursor cursor;
    struct prefetch_piece next; /* where `pending`: what is read as soon as there is room */
    bool pending;
    struct prefetch_piece pieces[PIECES];
    int64_t read, taken, freed;
    int64_t head, used;      /* bytes: where the ring goes on; of what is not freed */
    bool busy, sleeps, ends; /* the thread reads; waits for more; is to end */
    atomic_bool halt;        /* what is being read is not wanted any more */
    struct err err;          /* of the piece that failed, which is the last */
};

/* ---- what comes next ------------------------------------------------------------------------ */

/* Sets *p to the next input instruction of the action that the cursor is at; false: there is none. In
 * validation only forward passes run. */
static bool next_input(const struct exec *x, struct cursor *c, struct prefetch_piece *p) {
    struct action a = schedule_action(&x->schedule, c->action);
    const struct exec_chunk *chunk = exec_chunk_of(x, a.stage);
    struct span span = program_segment(chunk->sp, a.segment);
    int64_t micro_batch = a.index < 0 ? 0 : a.index;
    int i = c->instr < 0 ? span.first : c->instr;
    if (c->split == DATA_VALID && a.segment != SEG_FORWARD)
        return false;
    while (i < span.end && chunk->sp->instrs[i].code != I_input)
        i++;
    c->instr = i + 1;
    if (i >= span.end)
        return false;
    *p =
        (struct prefetch_piece){.ins = &chunk->sp->instrs[i],
                                .box = &chunk->ready[i].box,
                                .split = c->split,
                                .sample = c->sample + micro_batch * x->g->plan->micro_batch,
                                .form = exec_form(x, c->split, &chunk->sp->instrs[i])};
    p->bytes = dtype_size(p->form) * p->ins->n.input.elems;
    return true;
}

/* Sets *p to the counts that a batch begins with. */
static bool next_counts(const struct exec *x, struct cursor *c, struct prefetch_piece *p) {
    if (!c->counts)
        return false;
    c->counts = false;
    *p = (struct prefetch_piece){.split = c->split,
                                 .sample = c->sample,
                                 .counted = c->counted,
                                 .bytes = (x->n_losses + 1) * (int64_t)sizeof(double)};
    return true;
}

/* Sets *p to the next piece and goes on behind it; false where nothing is left. */
static bool next_piece(const struct exec *x, struct cursor *c, struct prefetch_piece *p) {
    int64_t actions = schedule_actions(&x->schedule);
    while (c->batches && !next_counts(x, c, p) && !next_input(x, c, p)) {
        c->instr = -1;
        if (++c->action < actions)
            continue;
        c->action = 0;
        c->batches--;
        c->sample += x->g->plan->batch;
        c->counts = c->split == DATA_TRAIN && c->counted;
    }
    return c->batches;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int64_t aligned(int64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Gives the piece its place in the ring; false: there is no room yet. */
static bool find_room(struct exec_prefetch *a, struct prefetch_piece *p) {
    int64_t bytes = aligned(p->bytes);
    bool empty = a->read == a->freed;
    int64_t head = empty ? 0 : a->head, tail = empty ? 0 : a->pieces[a->freed % PIECES].at;
    if (a->read - a->freed == PIECES)
        return false;
    bool ahead = empty || head > tail; /* what is in use does not cross the end */
    if (ahead && a->ring_bytes - head < bytes)
        head = 0, ahead = false;
    if (!ahead && tail - head < bytes)
        return false;
    p->at = head;
    a->head = head + bytes;
    a->used += bytes;
    return true;
}

static int read_piece(struct exec_prefetch *a, const struct prefetch_piece *p,
                      struct err *err) {
    char *out = a->ring + p->at;
    return p->ins ? exec_read_box(a->x, p->split, p->sample, p->ins, p->box, out, err)
                  : exec_read_counts(a->x, p->split, p->sample, p->counted, &a->halt,
                                     (double *)out, err);
}

/* Reads the next piece if there is room for it; false: there is nothing to do now. The lock is held,
 * but not while it reads. */
static bool read_one(struct exec_prefetch *a) {
    if (a->ends || atomic_load(&a->halt) || a->err.status)
        return false;
    if (!a->pending && !(a->pending = next_piece(a->x, &a->cursor, &a->next)))
        return false;
    if (!find_room(a, &a->next))
        return false;
    struct prefetch_piece p = a->next;
    struct err err = {0};
    a->pending = false;
    a->busy = true;
    pthread_mutex_unlock(&a->lock);
    p.failed = read_piece(a, &p, &err) < 0;
    pthread_mutex_lock(&a->lock);
    a->busy = false;
    if (p.failed)
        a->err = err;
    a->pieces[a->read++ % PIECES] = p;
    pthread_cond_signal(&a->done);
    return true;
}

/* The lock is held. */
static void wake(struct exec_prefetch *a) {
    a->sleeps = false;
    pthread_cond_signal(&a->more);
}

static void *read_ahead(void *arg) {
    struct exec_prefetch *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->ends) {
        if (read_one(a))
            continue;
        a->sleeps = true;
        pthread_cond_signal(&a->done);
        while (a->sleeps)
            pthread_cond_wait(&a->more, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Signals are for the caller's thread. */
static int start(struct exec_prefetch *a, struct err *err) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->started = pthread_create(&a->thread, NULL, read_ahead, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return a->started ? 0 : err_system(err, "cannot start the thread that reads data");
}

/* ---- for the step --------------------------------------------------------------------------- */

/* Bytes of a number of an input, in the split where it is wider. */
static int64_t width(const struct exec *x, const struct instr *ins) {
    int64_t train = dtype_size(exec_form(x, DATA_TRAIN, ins)), valid = 0;
    if (data_size(x->data, DATA_VALID))
        valid = dtype_size(exec_form(x, DATA_VALID, ins));
    return train > valid ? train : valid;
}

/* Sets *largest to the bytes of the largest piece. Returns those of two steps. */
static int64_t sum_bytes(const struct exec *x, int64_t *largest) {
    int64_t counts = (x->n_losses + 1) * (int64_t)sizeof(double), sum = counts;
    *largest = counts;
    for (int k = 0; k < x->n_chunks; k++) {
        const struct stage_program *sp = x->chunks[k].sp;
        for (int i = 0; i < sp->n_instrs; i++) {
            if (sp->instrs[i].code != I_input)
                continue;
            int64_t bytes = width(x, &sp->instrs[i]) * sp->instrs[i].n.input.elems + ALIGN;
            *largest = bytes > *largest ? bytes : *largest;
            sum += bytes * plan_micro_batches(x->g->plan);
        }
    }
    return 2 * sum;
}

/* Does this rank read any data? */
static bool reads(const struct exec *x, bool counts) {
    bool any = counts;
    for (int k = 0; k < x->n_chunks; k++)
        for (int i = 0; i < x->chunks[k].sp->n_instrs; i++)
            any |= x->chunks[k].sp->instrs[i].code == I_input;
    return any && x->data;
}

int exec_prefetch_create(struct exec *x, struct err *err) {
    bool counts = false;
    for (int k = 0; k < x->n_losses; k++)
        counts |= x->losses[k].targets >= 0;
    if (!reads(x, counts))
        return 0;
    struct exec_prefetch *a = x->prefetch = mem_alloc(sizeof *a);
    a->x = x;
    a->due = -1;
    a->counts = counts;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    pthread_cond_init(&a->done, NULL);
    int64_t largest, bytes = sum_bytes(x, &largest);
    bytes = bytes < MOST_BYTES ? bytes : MOST_BYTES;
    bytes = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
    a->ring_bytes = bytes > LEAST * largest ? bytes : LEAST * largest;
    for (int i = 0; i < PIECES && !device_is_host(x->device); i++)
        if (!(a->used_up[i] = device_event_create(x->device, err)))
            return -1;
    a->ring = device_alloc_host(x->device, a->ring_bytes, err);
    return a->ring ? 0 : err_prefix(err, "room for data that is read ahead");
}

void exec_prefetch_destroy(struct exec_prefetch *a, struct device *device) {
    if (!a)
        return;
    if (a->started) {
        pthread_mutex_lock(&a->lock);
        a->ends = true;
        atomic_store(&a->halt, true);
        wake(a);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    pthread_cond_destroy(&a->done);
    pthread_cond_destroy(&a->more);
    pthread_mutex_destroy(&a->lock);
    for (int i = 0; i < PIECES; i++)
        device_event_destroy(a->used_up[i]);
    device_free_host(device, a->ring);
    free(a);
}

/* What was read for another place, and is not in use any more, is forgotten. */
static void restart(struct exec_prefetch *a, struct cursor from) {
    pthread_mutex_lock(&a->lock);
    atomic_store(&a->halt, true);
    while (a->busy)
        pthread_cond_wait(&a->done, &a->lock);
    a->read = a->taken = a->given = a->freed = a->used = 0;
    a->pending = false;
    a->err = (struct err){0};
    a->cursor = from;
    atomic_store(&a->halt, false);
    wake(a);
    pthread_mutex_unlock(&a->lock);
}

int exec_prefetch_begin(struct exec_prefetch *a, enum data_split split, int64_t sample,
                        int64_t batches, struct err *err) {
    if (!a)
        return 0;
    int64_t batch = a->x->g->plan->batch;
    bool training = split == DATA_TRAIN, goes_on = training && sample == a->due;
    a->due = training ? sample + batch : -1;
    if (goes_on)
        return 0;
    if (device_synchronize(a->x->streams[STREAM_compute], err) < 0)
        return -1;
    restart(a, (struct cursor){.split = split,
                               .sample = sample,
                               .batches = training ? INT64_MAX : batches,
                               .counts = a->counts,
                               .counted = a->counts ? batches * batch : 0,
                               .instr = -1});
    return a->started ? 0 : start(a, err);
}

/* What the device has used up makes room. */
static int reclaim(struct exec_prefetch *a, struct err *err) {
    int64_t upto = a->freed;
    int reached = 1;
    while (upto < a->given && reached == 1) {
        struct device_event *e = a->used_up[upto % PIECES];
        reached = e ? device_event_reached(e, err) : 1;
        upto += reached == 1;
    }
    pthread_mutex_lock(&a->lock);
    for (; a->freed < upto; a->freed++)
        a->used -= aligned(a->pieces[a->freed % PIECES].bytes);
    /* The thread is woken for several pieces, not for each. */
    if (a->sleeps && a->read - a->freed <= PIECES / 2 && a->used <= a->ring_bytes / 2)
        wake(a);
    pthread_mutex_unlock(&a->lock);
    return reached < 0 ? -1 : 0;
}

/* Nothing can be read before the device is done with some of what it was given: all of it is given, so
 * that it comes to this without the host. */
static int make_room(struct exec_prefetch *a, struct err *err) {
    int64_t before = a->freed;
    if (reclaim(a, err) < 0)
        return -1;
    if (a->freed > before)
        return 0;
    return device_synchronize(a->x->streams[STREAM_compute], err) < 0 ? -1
                                                                      : reclaim(a, err);
}

/* Waits for the next piece. */
static struct prefetch_piece *take(struct exec_prefetch *a, struct err *err) {
    struct prefetch_piece *p = NULL;
    int rc = 0;
    pthread_mutex_lock(&a->lock);
    while (a->taken == a->read && rc == 0) {
        if (a->sleeps && a->freed < a->given) {
            pthread_mutex_unlock(&a->lock);
            rc = make_room(a, err);
            pthread_mutex_lock(&a->lock);
        } else {
            pthread_cond_wait(&a->done, &a->lock);
        }
    }
    if (rc == 0)
        p = &a->pieces[a->taken++ % PIECES];
    if (p && p->failed && err)
        *err = a->err;
    pthread_mutex_unlock(&a->lock);
    return p && !p->failed ? p : NULL;
}

int exec_prefetch_give(struct exec_prefetch *a, struct err *err) {
    struct device_event *e = a->used_up[a->given % PIECES];
    if (e && device_event_record(e, a->x->streams[STREAM_compute], err) < 0)
        return -1;
    a->given++;
    return reclaim(a, err);
}

const void *exec_prefetch_take(struct exec_prefetch *a, const struct instr *ins,
                               int64_t sample, enum dtype *form, struct err *err) {
    const struct prefetch_piece *p = take(a, err);
    if (!p)
        return NULL;
    assert(p->ins == ins && p->sample == sample);
    *form = p->form;
    return a->ring + p->at;
}

int exec_prefetch_counts(struct exec_prefetch *a, double *counts, struct err *err) {
    const struct prefetch_piece *p = take(a, err);
    if (!p)
        return -1;
    assert(!p->ins);
    memcpy(counts, a->ring + p->at, (size_t)p->bytes);
    return exec_prefetch_give(a, err);
}

const void *exec_prefetch_ring(const struct exec_prefetch *a) {
    return a->ring;
}
