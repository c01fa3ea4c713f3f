/* The rules of watch.h.
 *
 * Of each cell of memory the last write is known, and the reads since. That is enough: where an earlier
 * write was not in order with the last one, that was found then; where it was, whoever is in order with
 * the last write is with it. Of reads only those between the last two barriers matter inside of a block, and of
 * these a thread or two of one warp and one of another: whatever thread writes is not one of them. */
#include "watch.h"

#include "emulate.h"
#include "watch_access.h"
#include "watch_report.h"
#include "watch_shadow.h"
#include "watch_traffic.h"

#include <stdio.h>
#include <stdlib.h>

extern char __bss_start, _end; /* the linker's: static __shared__ variables are between */

enum { MAX_THREADS = 1024, WAITS = 16 };

/* What puts accesses of a thread in order, but for barriers of the block. */
struct thread {
    struct {
        uint32_t tick, interval;
    } wait[WAITS];      /* for its products: the last ones, from waits on */
    uint32_t waits;     /* modulo WAITS */
    uint32_t published; /* when it last published what it wrote */
};

struct begun {
    uint32_t interval;
    struct emu_index block;
};

static struct {
    const char *kernel;
    uint32_t interval, of_block, of_kernel; /* this one, and the first ones */
    uint32_t tick;
    uint32_t warp[MAX_THREADS / EMU_WARP]; /* tick of the last __syncwarp */
    struct thread thread[MAX_THREADS];
    enum emu_use use;
    struct begun *block; /* of the kernel, as they began */
    int64_t blocks, room;
    struct emu_own own;
} w;

/* The access that is under way. */
struct now {
    int thread;
    uint32_t place;
    bool shared, writes;
    enum emu_use use;
    uintptr_t at;
};

/* ---- findings ------------------------------------------------------------------------------- */

/* The block that an interval of this kernel belongs to. */
static struct emu_index block_of(uint32_t interval) {
    int64_t low = 0, high = w.blocks;
    while (high - low > 1) {
        const int64_t half = (low + high) / 2;
        if (w.block[half].interval <= interval)
            low = half;
        else
            high = half;
    }
    return w.blocks ? w.block[low].block : emu_position.block;
}

static void found(enum watch_fault fault, const struct now *n, const char *did,
                  uint32_t interval, int thread, uint32_t place) {
    const char *does = n->use == EMU_ATOMIC ? "uses atomically"
                       : n->writes          ? "writes"
                                            : "reads";
    const struct watch_finding f = {
        .fault = fault,
        .kernel = w.kernel,
        .now = {does, emu_position.block, n->thread, n->place},
        .before = {did, block_of(interval), thread, place},
        .at = n->at,
        .shared = n->shared,
    };
    watch_report(&f);
}

/* ---- order ---------------------------------------------------------------------------------- */

enum order { IN_ORDER, IN_WARP, IN_BLOCK, IN_GRID };

/* How an earlier access stands to one of `thread` now; what is not in order is so among threads of a warp,
 * a block, or the grid. */
static enum order order_of(uint32_t interval, uint32_t warp, int thread,
                           const struct now *n) {
    if (interval < w.of_kernel || (n->shared && interval < w.of_block))
        return IN_ORDER;
    if (interval < w.of_block)
        return IN_GRID;
    if (interval < w.interval || thread == n->thread || thread == WATCH_NOBODY)
        return IN_ORDER;
    if (thread / EMU_WARP != n->thread / EMU_WARP)
        return IN_BLOCK;
    return warp == w.warp[n->thread / EMU_WARP] ? IN_WARP : IN_ORDER;
}

/* False where it is in order. */
static bool race(uint32_t interval, uint32_t warp, int thread, uint32_t place,
                 const char *did, const struct now *n) {
    static const enum watch_fault fault[] = {
        [IN_WARP] = FAULT_WARP, [IN_BLOCK] = FAULT_BLOCK, [IN_GRID] = FAULT_BLOCKS};
    const enum order order = order_of(interval, warp, thread, n);
    if (order != IN_ORDER)
        found(fault[order], n, did, interval, thread, place);
    return order != IN_ORDER;
}

static bool race_with(const struct watch_access *a, const char *did, const struct now *n) {
    return race(a->interval, a->warp, a->thread, a->place, did, n) ||
           race(a->interval, a->warp, a->other, a->place, did, n);
}

static struct watch_access access_now(const struct now *n) {
    return (struct watch_access){.interval = w.interval,
                                 .warp = w.warp[n->thread / EMU_WARP],
                                 .tick = w.tick,
                                 .place = n->place,
                                 .thread = (uint16_t)n->thread,
                                 .other = WATCH_NOBODY};
}

/* ---- cells ---------------------------------------------------------------------------------- */

/* The interval in which a thread first waited after this tick; UINT32_MAX: it has not; 0: long ago. */
static uint32_t waited_in(const struct thread *t, uint32_t tick) {
    uint32_t interval = UINT32_MAX;
    for (uint32_t i = 1; i <= WAITS; i++) {
        const uint32_t k = (t->waits - i) % WAITS;
        if (t->wait[k].tick <= tick)
            return interval;
        interval = t->wait[k].interval;
    }
    return 0;
}

static bool by_product(const struct watch_cell *c) {
    return c->flags & CELL_PRODUCT && c->read.interval >= w.of_block;
}

static bool in_flight(const struct watch_cell *c) {
    return by_product(c) &&
           waited_in(&w.thread[c->read.thread], c->read.tick) == UINT32_MAX;
}

static void against_write(const struct watch_cell *c, const struct now *n) {
    const struct watch_access *a = &c->write;
    const bool of_block = a->interval >= w.of_block;
    if (a->interval < w.of_kernel)
        return;
    if (c->flags & CELL_COPY && of_block)
        found(FAULT_COPY, n, "copies to", a->interval, a->thread, a->place);
    else if (!(c->flags & CELL_ATOMIC && n->use == EMU_ATOMIC))
        race_with(a, c->flags & CELL_ATOMIC ? "changed atomically" : "wrote", n);
}

static void against_reads(const struct watch_cell *c, const struct now *n) {
    struct watch_access a = c->read;
    if (in_flight(c)) {
        found(FAULT_PRODUCT, n, "multiplies", a.interval, a.thread, a.place);
        return;
    }
    if (by_product(c))
        a.interval = waited_in(&w.thread[a.thread], a.tick);
    if (c->flags & CELL_CALM && n->use == EMU_ATOMIC)
        return;
    if (!race_with(&a, "read", n))
        race(c->more_interval, 0, c->more_thread, c->more_place, "read", n);
}

/* What was changed atomically by others at the same time keeps one of them. */
static void cell_write(struct watch_cell *c, const struct now *n) {
    const struct watch_access was = c->write;
    const bool both = c->flags & CELL_ATOMIC && n->use == EMU_ATOMIC;
    against_write(c, n);
    against_reads(c, n);
    c->write = access_now(n);
    if (both && was.interval == w.interval)
        c->write.other = was.thread == n->thread ? was.other : was.thread;
    c->read = (struct watch_access){.other = WATCH_NOBODY};
    c->more_interval = 0;
    c->flags = n->use == EMU_ATOMIC ? CELL_ATOMIC : 0;
}

static bool unwritten(const struct watch_cell *c, const struct now *n) {
    return n->shared ? c->write.interval < w.of_block : c->flags & CELL_GARBAGE;
}

/* The reads before give way to this one, but for what writers may still meet. */
static void keep_read(struct watch_cell *c, const struct now *n) {
    struct watch_access *a = &c->read;
    const struct watch_access now = access_now(n);
    const bool same_warp = a->thread / EMU_WARP == n->thread / EMU_WARP;
    if (a->interval == w.interval && same_warp && a->warp == now.warp) {
        if (a->thread != n->thread && a->other == WATCH_NOBODY)
            a->other = now.thread;
        return;
    }
    const bool earlier_block = a->interval < w.of_block && a->interval >= w.of_kernel;
    const bool kept = c->more_interval < w.of_block && c->more_interval >= w.of_kernel;
    if (!kept && (earlier_block || (a->interval == w.interval && !same_warp))) {
        c->more_interval = a->interval;
        c->more_thread = a->thread;
        c->more_place = a->place;
    }
    *a = now;
}

static void cell_read(struct watch_cell *c, const struct now *n) {
    const struct watch_access *last = &c->write;
    if (unwritten(c, n))
        found(FAULT_UNWRITTEN, n, "", w.interval, 0, 0);
    else
        against_write(c, n);
    const bool product = n->use == EMU_PRODUCT, calm = n->use == EMU_ATOMIC;
    if (product && last->interval >= w.of_block &&
        w.thread[last->thread].published <= last->tick)
        found(FAULT_PUBLISH, n, "wrote", last->interval, last->thread, last->place);
    const bool known = c->read.interval >= w.of_kernel || c->more_interval >= w.of_kernel;
    if (in_flight(c) || (calm && known && !(c->flags & CELL_CALM)))
        return; /* what is known already says more */
    c->flags &= (uint16_t) ~(CELL_PRODUCT | CELL_CALM);
    c->flags |= (product ? CELL_PRODUCT : 0) | (calm ? CELL_CALM : 0);
    keep_read(c, n);
}

/* ---- accesses ------------------------------------------------------------------------------- */

static bool within(uintptr_t p, const char *from, const char *end) {
    return p >= (uintptr_t)from && p < (uintptr_t)end;
}

static bool emulators(uintptr_t p) {
    return within(p, w.own.stacks, w.own.stacks_end) ||
           within(p, (const char *)&emu_position, (const char *)(&emu_position + 1)) ||
           within(p, w.own.state, w.own.state_end);
}

static struct now now_at(uintptr_t at, bool writes, uint32_t place) {
    return (struct now){
        emu_position.number, place, within(at, &__bss_start, &_end), writes, w.use, at};
}

static void each_cell(uintptr_t at, size_t bytes, bool writes, uint32_t place,
                      void (*act)(struct watch_cell *c, const struct now *n)) {
    size_t done;
    int cells;
    for (; bytes > 0; at += done, bytes -= done) {
        const struct now n = now_at(at, writes, place);
        struct watch_cell *c = watch_cells(at, bytes, &done, &cells);
        for (int i = 0; i < cells; i++)
            act(c + i, &n);
    }
}

static void count_traffic(uintptr_t at, size_t bytes, uint32_t place) {
    if (w.use != EMU_PRODUCT)
        watch_traffic_access(w.kernel, emu_position.number, within(at, &__bss_start, &_end),
                             at, bytes, place);
}

void watch_touch(const void *p, size_t bytes, bool writes, const void *pc) {
    const uintptr_t at = (uintptr_t)p;
    if (emu_position.number < 0 || emulators(at))
        return;
    count_traffic(at, bytes, watch_place(pc));
    each_cell(at, bytes, writes, watch_place(pc), writes ? cell_write : cell_read);
}

void watch_touch_volatile(const void *p, size_t bytes, bool writes, const void *pc) {
    const enum emu_use was = w.use;
    w.use = EMU_ATOMIC;
    watch_touch(p, bytes, writes, pc);
    w.use = was;
}

/* ---- copies --------------------------------------------------------------------------------- */

static void copy_under_way(struct watch_cell *c, const struct now *n) {
    cell_write(c, n);
    c->flags |= CELL_COPY;
}

/* It is as if the thread wrote now; where somebody else did, that was found. */
static void copy_done(struct watch_cell *c, const struct now *n) {
    if (!(c->flags & CELL_COPY) || c->write.thread != n->thread)
        return;
    c->write = access_now(n);
    c->flags &= (uint16_t)~CELL_COPY;
}

static uint32_t source_begun;

static void source_done(struct watch_cell *c, const struct now *n) {
    const struct watch_access *a = &c->write;
    if (a->interval > source_begun)
        found(FAULT_SOURCE, n, "wrote", a->interval, a->thread, a->place);
    else
        against_write(c, n);
}

static uint32_t on_copy(void *to, const void *from, bool there, size_t bytes,
                        const void *pc) {
    count_traffic((uintptr_t)to, bytes, watch_place(pc));
    if (there) {
        count_traffic((uintptr_t)from, bytes, watch_place(pc));
        each_cell((uintptr_t)from, bytes, false, watch_place(pc), cell_read);
    }
    each_cell((uintptr_t)to, bytes, true, watch_place(pc), copy_under_way);
    return w.interval;
}

static void on_copied(void *to, const void *from, bool there, size_t bytes, const void *pc,
                      uint32_t begun) {
    source_begun = begun;
    if (there)
        each_cell((uintptr_t)from, bytes, false, watch_place(pc), source_done);
    each_cell((uintptr_t)to, bytes, true, watch_place(pc), copy_done);
}

/* ---- what happens --------------------------------------------------------------------------- */

static void on_launch(const char *kernel) {
    w.kernel = kernel;
    w.of_kernel = w.of_block = ++w.interval;
    w.blocks = 0;
    w.use = EMU_PLAIN;
    w.own = emu_own();
}

static void on_block(void) {
    w.of_block = ++w.interval;
    if (w.blocks == w.room) {
        w.room = w.room ? 2 * w.room : 64;
        w.block = realloc(w.block, (size_t)w.room * sizeof *w.block);
        if (!w.block)
            emu_die("no memory for what is known of blocks");
    }
    w.block[w.blocks++] = (struct begun){w.interval, emu_position.block};
}

static void on_barrier(void) {
    w.interval++;
}

static void on_warp(int first) {
    w.warp[first / EMU_WARP] = ++w.tick;
}

static void on_use(enum emu_use use) {
    w.use = use;
}

static void host_wrote(struct watch_cell *c, const struct now *n) {
    (void)n;
    *c = (struct watch_cell){.read.other = WATCH_NOBODY, .write.other = WATCH_NOBODY};
}

static void garbage(struct watch_cell *c, const struct now *n) {
    host_wrote(c, n);
    c->flags = CELL_GARBAGE;
}

static void on_moved(void *to, size_t bytes) {
    each_cell((uintptr_t)to, bytes, true, 0, host_wrote);
}

static void on_product_wait(void) {
    struct thread *t = &w.thread[emu_position.number];
    t->wait[t->waits].tick = ++w.tick;
    t->wait[t->waits].interval = w.interval;
    t->waits = (t->waits + 1) % WAITS;
}

static void on_product_publish(void) {
    w.thread[emu_position.number].published = ++w.tick;
}

void emu_buffer(const char *name, const void *p, int64_t bytes, bool is_garbage) {
    watch_name(name, p, bytes);
    each_cell((uintptr_t)p, (size_t)bytes, true, 0, is_garbage ? garbage : host_wrote);
}

void emu_forget(void) {
    watch_cells_forget();
    watch_report_forget();
}

bool emu_watched(void) {
    return true;
}

static const struct emu_watcher watcher = {
    .launch = on_launch,
    .block = on_block,
    .barrier = on_barrier,
    .exchange = watch_traffic_step,
    .warp = on_warp,
    .use = on_use,
    .moved = on_moved,
    .copy = on_copy,
    .copied = on_copied,
    .product_wait = on_product_wait,
    .product_publish = on_product_publish,
};

__attribute__((constructor)) static void begin(void) {
    emu_watcher = &watcher;
}
