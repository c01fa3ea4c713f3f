/* Threads of CUDA kernels as fibers.
 *
 * A fiber runs until it waits for others; then the next one runs. Warp by warp: the lanes of a warp
 * take turns until all have ended or wait for the rest of the block. A fiber is made once, with
 * makecontext, and goes on with the next block or kernel when its thread has ended; after its first
 * turn it is changed to with longjmp, which asks nothing of the system. */
#define _GNU_SOURCE    /* MAP_ANONYMOUS */
#undef _FORTIFY_SOURCE /* whose longjmp refuses to leave for another stack */
#include "emulate.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum {
    MAX_THREADS = 1024,
    MAX_WARPS = MAX_THREADS / EMU_WARP,
    STACK_BYTES = 256 << 10,
    STACKS_BYTES = MAX_THREADS * STACK_BYTES,
    SHARED_ALWAYS = 48 << 10, /* bytes of shared memory that need not be asked for */
    SHARED_MOST = 227 << 10   /* of a block of sm_90 */
};

enum state { READY, AT_BARRIER, AT_WARP, ENDED };

struct fiber {
    bool made;
    ucontext_t first; /* its beginning */
    jmp_buf here;
    char *stack;
    void *fake; /* the sanitizer's */
    enum state state;
    struct emu_index at;
    const char *file; /* the barrier that it waits at */
    int line;
};

struct warp {
    int lanes, waiting;
    size_t bytes; /* of the exchange under way */
    int turn;     /* which half of `shown` it uses: a lane may still read the other */
    _Alignas(EMU_LANE_BYTES) char shown[2][EMU_WARP][EMU_LANE_BYTES];
};

static struct {
    struct fiber fiber[MAX_THREADS];
    struct warp warp[MAX_WARPS];
    int threads, warps, ended, at_barrier;
    struct fiber *now;
    jmp_buf home;
    const void *home_stack;
    size_t home_bytes;
    void *home_fake;
    void (*body)(void *);
    void *arg;
    const char *name;
    int downwards;
    size_t allowed;
    int64_t launches;
    emu_stream_fn *give;
    char *stacks; /* of all fibers */
} emu;

static _Alignas(1024) char shared_memory[SHARED_MOST];
struct emu_position emu_position = {.number = -1};
const struct emu_watcher *emu_watcher;

/* Tells who watches. */
#define TELL(call)                                                                         \
    do {                                                                                   \
        if (emu_watcher)                                                                   \
            emu_watcher->call;                                                             \
    } while (0)

void emu_die(const char *what) {
    fprintf(stderr, "emulate: %s: block (%u,%u,%u), thread (%u,%u,%u): %s\n", emu.name,
            emu_position.block.x, emu_position.block.y, emu_position.block.z,
            emu_position.thread.x, emu_position.thread.y, emu_position.thread.z, what);
    abort();
}

void emu_order(int downwards) {
    emu.downwards = downwards;
}

void emu_allow_shared(size_t bytes) {
    if (bytes > SHARED_MOST)
        emu_die("asks for more shared memory than a block has");
    emu.allowed = bytes;
}

size_t emu_take_shared(void) {
    const size_t bytes = emu.allowed;
    emu.allowed = 0;
    return bytes;
}

int64_t emu_launches(void) {
    return emu.launches;
}

void *emu_shared(void) {
    return shared_memory;
}

/* ---- fibers --------------------------------------------------------------------------------- */

/* The sanitizer has to know which stack is in use. */
static void leave_for(const void *stack, size_t bytes, void **fake) {
#if SANITIZED
    __sanitizer_start_switch_fiber(fake, stack, bytes);
#else
    (void)stack, (void)bytes, (void)fake;
#endif
}

static void arrive(void *fake, const void **from, size_t *bytes) {
#if SANITIZED
    __sanitizer_finish_switch_fiber(fake, from, bytes);
#else
    (void)fake, (void)from, (void)bytes;
#endif
}

static void go_home(void) {
    struct fiber *f = emu.now;
    if (_setjmp(f->here) == 0) {
        leave_for(emu.home_stack, emu.home_bytes, &f->fake);
        _longjmp(emu.home, 1);
    }
    arrive(f->fake, &emu.home_stack, &emu.home_bytes);
}

static void live(void) {
    arrive(NULL, &emu.home_stack, &emu.home_bytes);
    for (;;) {
        emu.body(emu.arg);
        emu.now->state = ENDED;
        emu.ended++;
        go_home();
    }
}

/* They lie side by side, so that an address in one of them is known by two comparisons. */
static void make_stacks(void) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    emu.stacks = mmap(NULL, STACKS_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (emu.stacks == MAP_FAILED)
        emu_die("no memory for the stacks of fibers");
}

static void make_fiber(struct fiber *f) {
    if (getcontext(&f->first) < 0)
        emu_die("no context for a fiber");
    f->stack = emu.stacks + (f - emu.fiber) * STACK_BYTES;
    f->first.uc_stack.ss_sp = f->stack;
    f->first.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->first, live, 0);
}

static void take_turn(struct fiber *f) {
    emu.now = f;
    emu_position.thread = f->at;
    emu_position.number = (int)(f - emu.fiber);
    if (_setjmp(emu.home) == 0) {
        bool made = f->made;
        f->made = true;
        if (!made)
            make_fiber(f);
        leave_for(f->stack, STACK_BYTES, &emu.home_fake);
        if (made)
            _longjmp(f->here, 1);
        setcontext(&f->first);
    }
    arrive(emu.home_fake, NULL, NULL);
    emu_position.number = -1;
}

struct emu_own emu_own(void) {
    return (struct emu_own){(const char *)&emu, (const char *)(&emu + 1), emu.stacks,
                            emu.stacks + STACKS_BYTES};
}

/* ---- waiting -------------------------------------------------------------------------------- */

void emu_barrier(const char *file, int line) {
    struct fiber *f = emu.now;
    f->file = file;
    f->line = line;
    f->state = AT_BARRIER;
    if (++emu.at_barrier < emu.threads) {
        go_home();
        return;
    }
    emu.at_barrier = 0;
    for (int i = 0; i < emu.threads; i++) {
        if (emu.fiber[i].line != line || strcmp(emu.fiber[i].file, file) != 0)
            emu_die("threads wait at different barriers");
        emu.fiber[i].state = READY;
    }
    TELL(barrier());
}

int emu_lane(void) {
    return (int)((emu.now - emu.fiber) % EMU_WARP);
}

const void *emu_warp_exchange(const void *mine, size_t bytes) {
    const int64_t thread = emu.now - emu.fiber;
    struct warp *w = &emu.warp[thread / EMU_WARP];
    if (bytes > EMU_LANE_BYTES || (w->waiting && w->bytes != bytes))
        emu_die("lanes exchange different things");
    const int turn = w->turn;
    memcpy(w->shown[turn][thread % EMU_WARP], mine, bytes);
    w->bytes = bytes;
    emu.now->state = AT_WARP;
    if (++w->waiting < w->lanes) {
        go_home();
        return w->shown[turn];
    }
    TELL(exchange());
    w->waiting = 0;
    w->turn = !turn;
    for (int i = 0; i < w->lanes; i++)
        emu.fiber[thread / EMU_WARP * EMU_WARP + i].state = READY;
    return w->shown[turn];
}

/* The last one to come tells. */
void emu_syncwarp(void) {
    const int thread = emu_position.number;
    const struct warp *w = &emu.warp[thread / EMU_WARP];
    const bool last = w->waiting + 1 == w->lanes;
    const char nothing = 0;
    (void)emu_warp_exchange(&nothing, sizeof nothing);
    if (last)
        TELL(warp(thread / EMU_WARP * EMU_WARP));
}

void emu_use(enum emu_use use) {
    TELL(use(use));
}

void emu_product_wait(void) {
    TELL(product_wait());
}

void emu_product_publish(void) {
    TELL(product_publish());
}

/* ---- blocks --------------------------------------------------------------------------------- */

static int place(int i, int n) {
    return emu.downwards ? n - 1 - i : i;
}

/* Until its lanes have ended or wait for others. False where none could do anything. */
static bool run_warp(int number) {
    struct warp *w = &emu.warp[number];
    bool any = false;
    for (bool again = true; again; any |= again) {
        again = false;
        for (int i = 0; i < w->lanes; i++) {
            struct fiber *f = &emu.fiber[number * EMU_WARP + place(i, w->lanes)];
            if (f->state == READY) {
                take_turn(f);
                again = true;
            }
        }
    }
    return any;
}

static void begin_block(struct emu_index block) {
    for (int i = 0; i < emu.threads; i++) {
        unsigned at = (unsigned)i;
        emu.fiber[i].state = READY;
        emu.fiber[i].at = (struct emu_index){at % block.x, at / block.x % block.y,
                                             at / block.x / block.y};
    }
    for (int w = 0; w < emu.warps; w++) {
        int left = emu.threads - w * EMU_WARP;
        emu.warp[w].lanes = left < EMU_WARP ? left : EMU_WARP;
        emu.warp[w].waiting = 0;
        memset(emu.warp[w].shown, 0, sizeof emu.warp[w].shown);
    }
    emu.ended = emu.at_barrier = 0;
    emu_copy_forget();
    TELL(block());
}

static void run_block(struct emu_index block, size_t shared_bytes) {
    begin_block(block);
    memset(shared_memory, 0xff, shared_bytes);
    while (emu.ended < emu.threads) {
        bool any = false;
        for (int w = 0; w < emu.warps; w++)
            any |= run_warp(place(w, emu.warps));
        if (!any)
            emu_die("threads wait for others that have ended or wait elsewhere");
    }
}

static void check_limits(struct emu_index grid, struct emu_index block,
                         size_t shared_bytes) {
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads < 1 || threads > MAX_THREADS || block.z > 64)
        emu_die("a block of no threads, or of more than there may be");
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535)
        emu_die("a grid of no blocks, or of more than there may be");
    if (shared_bytes > SHARED_ALWAYS && shared_bytes > emu.allowed)
        emu_die("more shared memory than was asked for");
}

void emu_run(const char *name, struct emu_index grid, struct emu_index block,
             size_t shared_bytes, void (*body)(void *), void *arg) {
    emu.name = name;
    emu_position =
        (struct emu_position){.block_size = block, .grid_size = grid, .number = -1};
    check_limits(grid, block, shared_bytes);
    emu.allowed = 0;
    emu.launches++;
    if (!emu.stacks)
        make_stacks();
    TELL(launch(name));
    emu.body = body;
    emu.arg = arg;
    emu.threads = (int)(block.x * block.y * block.z);
    emu.warps = (emu.threads + EMU_WARP - 1) / EMU_WARP;
    const int64_t blocks = (int64_t)grid.x * grid.y * grid.z;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t at = emu.downwards ? blocks - 1 - i : i;
        emu_position.block =
            (struct emu_index){(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                               (unsigned)(at / grid.x / grid.y)};
        run_block(block, shared_bytes);
    }
}

/* ---- streams -------------------------------------------------------------------------------- */

void emu_streams(emu_stream_fn *give) {
    emu.give = give;
}

void emu_give(void *stream, void (*run)(void *args), void *args, size_t bytes) {
    if (emu.give)
        emu.give(stream, run, args, bytes);
    else
        run(args);
}

struct move {
    void *to;
    const void *from;
    size_t bytes;
};

static void move(void *args) {
    const struct move *m = args;
    if (m->from)
        memmove(m->to, m->from, m->bytes);
    else
        memset(m->to, 0, m->bytes);
    TELL(moved(m->to, m->bytes));
}

void emu_move(void *stream, void *to, const void *from, size_t bytes) {
    struct move m = {to, from, bytes};
    if (bytes > 0)
        emu_give(stream, move, &m, sizeof m);
}
