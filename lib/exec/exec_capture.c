/* Captured regions are made before the first step, while nothing is under way between ranks.
 *
 * A device may load a kernel when it is first launched, and take memory of its own for a captured region;
 * for either it may wait until all that it has been given is done. A work between ranks, which waits there
 * for another rank, may be waiting for what this rank does next: then both wait for ever. So every
 * region that the steps replay is captured before, and what they launch by itself is captured once,
 * which loads it, and forgotten. */
#include "exec/exec_impl.h"

bool exec_repeats(const struct instr *ins) {
    return opcode_computes(ins->code) && ins->work < 0;
}

/* The last place is that of a first micro-batch which is something else. */
static int64_t place_of(const struct exec_chunk *c, const struct exec_instr *r,
                        int64_t micro_batch) {
    const bool own = r->fresh && micro_batch == 0;
    return own ? c->rhythm : micro_batch % c->rhythm;
}

struct device_region **exec_region(const struct exec_chunk *c, const struct exec_instr *r,
                                   int64_t micro_batch) {
    return &r->captured[place_of(c, r, micro_batch)];
}

struct exec_watched **exec_watched_of(const struct exec_chunk *c,
                                      const struct exec_instr *r, int64_t micro_batch) {
    return &r->watched[place_of(c, r, micro_batch)];
}

struct device_region *exec_capture(struct exec *x, const struct exec_chunk *c, int first,
                                   int n, int64_t micro_batch, struct err *err) {
    struct device_stream *s = x->streams[STREAM_compute];
    int rc = 0;
    if (device_capture_begin(s, err) < 0)
        return NULL;
    for (int i = first; i < first + n && rc == 0; i++)
        rc = exec_instr(x, c, i, micro_batch, err);
    struct device_region *r = device_capture_end(s, rc < 0 ? NULL : err);
    if (rc == 0)
        return r;
    device_region_destroy(r);
    return NULL;
}

/* The same for what brings data in, of any type in which it may come. */
static int load_input(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                      struct err *err) {
    struct device_stream *s = x->streams[STREAM_compute];
    void *to = exec_address(x, buffer_offset(c->sp, ins->out.input.y, 0), 0);
    for (int split = 0; split < DATA_SPLITS; split++) {
        if (!data_size(x->data, (enum data_split)split))
            continue;
        if (device_capture_begin(s, err) < 0)
            return -1;
        int rc = device_unpack(s, to, ins->dtype, exec_prefetch_ring(x->prefetch),
                               exec_form(x, (enum data_split)split, ins),
                               ins->n.input.elems, err);
        struct device_region *r = device_capture_end(s, rc < 0 ? NULL : err);
        device_region_destroy(r);
        if (rc < 0 || !r)
            return -1;
    }
    return 0;
}

/* The same for what one does who meets nobody. */
static int load_swap(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                     struct err *err) {
    struct device_stream *s = x->streams[STREAM_compute];
    void *in = exec_address(x, buffer_offset(c->sp, ins->in.swap.x, 0), 0);
    void *out = exec_address(x, buffer_offset(c->sp, ins->out.swap.y, 0), 0);
    if (device_capture_begin(s, err) < 0)
        return -1;
    int rc = exec_swap_alone(x, ins, in, out, err);
    struct device_region *r = device_capture_end(s, rc < 0 ? NULL : err);
    device_region_destroy(r);
    return rc < 0 || !r ? -1 : 0;
}

/* One instruction alone: for what it loads, which is something else in the first micro-batch where it
 * is fresh. */
static int load_instr(struct exec *x, const struct exec_chunk *c, int i,
                      int64_t micro_batch, struct err *err) {
    if (c->sp->instrs[i].code == I_input && x->prefetch)
        return load_input(x, c, &c->sp->instrs[i], err);
    if (c->sp->instrs[i].code == I_swap)
        return load_swap(x, c, &c->sp->instrs[i], err);
    if (!exec_repeats(&c->sp->instrs[i]))
        return 0;
    struct device_region *r = exec_capture(x, c, i, 1, micro_batch, err);
    device_region_destroy(r);
    return r ? 0 : -1;
}

static int capture_action(struct exec *x, struct action a, struct err *err) {
    const struct exec_chunk *c = exec_chunk_of(x, a.stage);
    int64_t mb = a.index < 0 ? 0 : a.index;
    struct span span = program_segment(c->sp, a.segment);
    int rc = 0;
    for (int i = span.first, next; i < span.end && rc == 0; i = next) {
        const struct exec_instr *r = &c->ready[i];
        bool replays = x->captures && r->region > 1;
        next = i + (replays ? r->region : 1);
        if (!replays)
            rc = mb <= c->sp->instrs[i].fresh ? load_instr(x, c, i, mb, err) : 0;
        else if (!*exec_region(c, r, mb)) {
            struct device_region *made = exec_capture(x, c, i, r->region, mb, err);
            *exec_region(c, r, mb) = made;
            rc = made ? exec_watch_record(x, c, i, mb, err) : -1;
        }
        if (rc < 0)
            err_prefix(err, "%s", opcode_name(c->sp->instrs[i].code));
    }
    return rc;
}

int exec_capture_all(struct exec *x, struct err *err) {
    int64_t n = schedule_actions(&x->schedule);
    int rc = 0;
    if (x->captured_all || !device_can_capture(x->device))
        return 0;
    for (int64_t i = 0; i < n && rc == 0; i++)
        rc = capture_action(x, schedule_action(&x->schedule, i), err);
    for (int k = 0; k < x->n_chunks && rc == 0; k++) /* not in every schedule */
        rc =
            capture_action(x, (struct action){SEG_AVERAGE, x->chunks[k].rp.stage, -1}, err);
    if (rc == 0)
        rc = exec_load_transfers(x, err);
    x->captured_all = rc == 0;
    return rc;
}
