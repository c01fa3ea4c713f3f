/* Times of instructions on a device that does things later than it is asked to.
 *
 * A watched step replays regions of its own, in which the device marks the time between instructions
 * (device_mark). Marks hold up the kernels on both sides, so only one step in WATCH_EVERY is watched:
 * then the others are as fast as ever, and where a watched step takes a fifth longer a run takes 2.5 %
 * longer. A region is replayed for several micro-batches and holds the times of the last, so within a
 * step the watched one is used once; what is replayed besides is timed as a whole, and divided as the
 * watched one was. Instructions that are launched together are one piece. */
#include "exec/exec_impl.h"

#include "common/mem.h"
#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

enum { WATCH_EVERY = 8 };

/* A region with marks before its instructions and behind the last: NULL where instructions were held
 * back. The share of its time that each piece took last. */
struct exec_watched {
    struct device_region *region;
    int n;
    struct device_event **marks; /* [n + 1] */
    bool *placed;                /* [n + 1] */
    double *share;               /* [n] */
    bool used, known;
};

/* What a watched step did: n instructions from `first` on, between two marks of the stream or those of
 * a region. */
struct watch_entry {
    const struct exec_chunk *c;
    int first, n;
    struct action a;
    struct device_event *from, *to;
    struct exec_watched *watched;
};

struct exec_watch {
    int64_t steps;            /* since the executor was made */
    int64_t counted, watched; /* of them since times were forgotten, and those watched */
    bool on;                  /* this step is watched */
    double origin_s;          /* now_s() when the first mark was reached */
    struct device_event *origin;
    ARR(struct device_event *) marks; /* for what is not recorded */
    int64_t n_used;
    ARR(struct watch_entry) entries;
    ARR(struct exec_watched *) regions;
};

/* ---- regions ----------------------------------------------------------------------------- */

static void free_watched(struct exec_watched *w) {
    device_region_destroy(w->region);
    for (int i = 0; i <= w->n; i++)
        device_event_destroy(w->marks[i]);
    free(w->marks);
    free(w->placed);
    free(w->share);
    free(w);
}

static int mark_piece(struct exec *x, struct exec_watched *w, int i, struct err *err) {
    w->marks[i] = device_mark_create(x->device, err);
    int rc = w->marks[i]
                 ? device_mark(w->marks[i], x->streams[STREAM_compute], i == w->n, err)
                 : -1;
    w->placed[i] = rc > 0;
    return rc < 0 ? -1 : 0;
}

static int record_pieces(struct exec *x, const struct exec_chunk *c, int first,
                         int64_t micro_batch, struct exec_watched *w, struct err *err) {
    int rc = 0;
    for (int i = 0; i < w->n && rc == 0; i++)
        if ((rc = mark_piece(x, w, i, err)) == 0)
            rc = exec_instr(x, c, first + i, micro_batch, err);
    return rc < 0 ? -1 : mark_piece(x, w, w->n, err);
}

int exec_watch_record(struct exec *x, const struct exec_chunk *c, int first,
                      int64_t micro_batch, struct err *err) {
    struct exec_watched **kept = exec_watched_of(c, &c->ready[first], micro_batch);
    struct device_stream *s = x->streams[STREAM_compute];
    if (!x->watch || *kept)
        return 0;
    struct exec_watched *w = mem_alloc(sizeof *w);
    w->n = c->ready[first].region;
    w->marks = mem_array((size_t)w->n + 1, sizeof(struct device_event *));
    w->placed = mem_array((size_t)w->n + 1, sizeof *w->placed);
    w->share = mem_array((size_t)w->n, sizeof *w->share);
    arr_push(&x->watch->regions, w);
    *kept = w;
    if (device_capture_begin(s, err) < 0)
        return -1;
    int rc = record_pieces(x, c, first, micro_batch, w, err);
    w->region = device_capture_end(s, rc < 0 ? NULL : err);
    return rc == 0 && w->region ? 0 : -1;
}

/* ---- a step --------------------------------------------------------------------------------- */

struct exec_watch *exec_watch_create(struct exec *x, struct err *err) {
    struct exec_watch *w = mem_alloc(sizeof *w);
    w->origin = device_mark_create(x->device, err);
    if (w->origin)
        return w;
    free(w);
    return NULL;
}

void exec_watch_destroy(struct exec_watch *w) {
    if (!w)
        return;
    for (int64_t i = 0; i < w->regions.n; i++)
        free_watched(w->regions.p[i]);
    for (int64_t i = 0; i < w->marks.n; i++)
        device_event_destroy(w->marks.p[i]);
    device_event_destroy(w->origin);
    arr_release(&w->regions);
    arr_release(&w->marks);
    arr_release(&w->entries);
    free(w);
}

/* The first step, so that a run of one step has a trace, and of the others every so many. */
int exec_watch_begin(struct exec *x, struct err *err) {
    struct exec_watch *w = x->watch;
    struct device_stream *s = x->streams[STREAM_compute];
    if (!w)
        return 0;
    w->on = w->steps == 0 || w->steps % WATCH_EVERY == 1;
    w->steps++;
    w->counted++;
    w->entries.n = w->n_used = 0;
    if (!w->on)
        return 0;
    w->watched++;
    if (device_mark(w->origin, s, true, err) < 0 || device_synchronize(s, err) < 0)
        return -1;
    w->origin_s = now_s();
    return 0;
}

/* A mark of the stream at this place; NULL on failure. */
static struct device_event *mark_here(struct exec *x, struct err *err) {
    struct exec_watch *w = x->watch;
    if (w->n_used == w->marks.n) {
        struct device_event *made = device_mark_create(x->device, err);
        if (!made)
            return NULL;
        arr_push(&w->marks, made);
    }
    struct device_event *e = w->marks.p[w->n_used++];
    return device_mark(e, x->streams[STREAM_compute], true, err) < 0 ? NULL : e;
}

bool exec_watch_is_on(const struct exec *x) {
    return x->watch && x->watch->on;
}

struct device_region *exec_watch_from(struct exec *x, const struct exec_chunk *c, int first,
                                      int n, struct action a, struct device_region *plain,
                                      struct err *err) {
    struct exec_watch *w = x->watch;
    const int64_t mb = a.index < 0 ? 0 : a.index;
    struct watch_entry e = {.c = c, .first = first, .n = n, .a = a};
    struct exec_watched *own = plain ? *exec_watched_of(c, &c->ready[first], mb) : NULL;
    if (own && own->region && !own->used) {
        own->used = true;
        e.watched = own;
        arr_push(&w->entries, e);
        return own->region;
    }
    e.from = mark_here(x, err);
    arr_push(&w->entries, e);
    return plain;
}

int exec_watch_to(struct exec *x, struct err *err) {
    struct watch_entry *e = &x->watch->entries.p[x->watch->entries.n - 1];
    if (e->watched)
        return 0;
    return e->from && (e->to = mark_here(x, err)) ? 0 : -1;
}

/* ---- what the marks say --------------------------------------------------------------------- */

/* Tells of n instructions from i on that took so long, in microseconds from the origin. */
static void tell(struct exec *x, const struct watch_entry *e, int i, int n, double from_us,
                 double to_us) {
    const struct instr *ins = &e->c->sp->instrs[e->first + i];
    x->seconds[ins->code] += 1e-6 * (to_us - from_us);
    if (!x->opt.on_span)
        return;
    const double origin_s = x->watch->origin_s;
    const struct exec_span span = {.instr = ins,
                                   .n = n,
                                   .action = e->a,
                                   .step = x->step + 1,
                                   .start_s = origin_s + 1e-6 * from_us,
                                   .end_s = origin_s + 1e-6 * to_us,
                                   .captured = e->n > 1,
                                   .divided = !e->watched && e->n > 1};
    x->opt.on_span(x->opt.on_instr_ctx, &span);
}

static int look(struct exec *x, struct device_event *mark, double *us, struct err *err) {
    return device_mark_between(x->watch->origin, mark, us, err);
}

/* The pieces of a watched region. */
static int read_pieces(struct exec *x, const struct watch_entry *e, struct err *err) {
    struct exec_watched *w = e->watched;
    double begin = 0, from = 0, to = 0, end = 0;
    if (look(x, w->marks[0], &begin, err) < 0 || look(x, w->marks[w->n], &end, err) < 0)
        return -1;
    from = begin;
    for (int i = 0, next; i < w->n; i = next) {
        for (next = i + 1; !w->placed[next]; next++)
            w->share[next] = 0;
        if (look(x, w->marks[next], &to, err) < 0)
            return -1;
        w->share[i] = end > begin ? (to - from) / (end - begin) : 0;
        tell(x, e, i, next - i, from, to);
        from = to;
    }
    w->known = true;
    return 0;
}

/* A region of the same instructions that was watched. */
static const struct exec_watched *known_shares(const struct watch_entry *e) {
    const struct exec_instr *r = &e->c->ready[e->first];
    for (int64_t i = e->c->rhythm; i >= 0; i--)
        if (r->watched && r->watched[i] && r->watched[i]->known)
            return r->watched[i];
    return NULL;
}

/* What was timed as a whole. */
static int read_whole(struct exec *x, const struct watch_entry *e, struct err *err) {
    const struct exec_watched *w = e->n > 1 ? known_shares(e) : NULL;
    double from = 0, to = 0;
    if (look(x, e->from, &from, err) < 0 || look(x, e->to, &to, err) < 0)
        return -1;
    const double whole = to - from;
    if (!w)
        tell(x, e, 0, e->n, from, to);
    for (int i = 0, next; w && i < e->n; i = next) {
        for (next = i + 1; !w->placed[next];)
            next++;
        tell(x, e, i, next - i, from, from + w->share[i] * whole);
        from += w->share[i] * whole;
    }
    return 0;
}

int exec_watch_end(struct exec *x, struct err *err) {
    struct exec_watch *w = x->watch;
    int rc = 0;
    if (!exec_watch_is_on(x))
        return 0;
    w->on = false;
    if (device_synchronize(x->streams[STREAM_compute], err) < 0)
        return -1;
    for (int64_t i = 0; i < w->entries.n; i++)
        if (w->entries.p[i].watched)
            w->entries.p[i].watched->used = false;
    /* Those with marks of their own first: the others are divided as they were. */
    for (int64_t i = 0; i < w->entries.n && rc == 0; i++)
        if (w->entries.p[i].watched)
            rc = read_pieces(x, &w->entries.p[i], err);
    for (int64_t i = 0; i < w->entries.n && rc == 0; i++)
        if (!w->entries.p[i].watched)
            rc = read_whole(x, &w->entries.p[i], err);
    return rc;
}

void exec_watch_forget(struct exec *x) {
    if (x->watch)
        x->watch->counted = x->watch->watched = 0;
}

double exec_seconds_share(const struct exec *x) {
    const struct exec_watch *w = x->watch;
    return w && w->counted ? (double)w->watched / (double)w->counted : 1;
}
