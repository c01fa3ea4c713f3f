/* Accesses are kept until the warp exchanges something; then they are counted by place. */
#include "watch_traffic.h"

#include "emulate.h"
#include "watch.h"
#include "watch_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 1 << 12, SECTOR = 32, BANKS = 32, WORD = 4 };

/* What the lanes of a warp do at once. */
struct request {
    uint32_t place, lanes; /* lanes: a bit for each */
    uint32_t bytes;        /* of a lane */
    bool shared;
    uintptr_t at[EMU_WARP];
};

/* The requests of a place since the last exchange, and all before. */
struct place {
    const char *kernel; /* NULL: a slot that is free */
    uint32_t place;
    bool shared, open;        /* open: has requests that are not counted */
    uint32_t count[EMU_WARP]; /* how often lanes have been here */
    struct request *request;
    size_t requests, room;
    int64_t all, moved, least;
};

static struct {
    bool on;
    const char *kernel;
    int warp;
    struct place place[PLACES];
    struct place *open[PLACES];
    int opened;
} traffic;

/* ---- counting ------------------------------------------------------------------------------- */

/* How many of n numbers differ; `of` counts those with the same remainder, where it is not NULL. */
static int different(const uintptr_t *x, int n, int *of) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        bool new = true;
        for (int k = 0; k < i && new; k++)
            new = x[k] != x[i];
        count += new;
        if (of && new)
            of[x[i] % BANKS]++;
    }
    return count;
}

static int most_of(const int *x, int n) {
    int most = 0;
    for (int i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static void count_shared(const struct request *r, int64_t *moved, int64_t *least) {
    const int words = r->bytes > WORD ? (int)(r->bytes / WORD) : 1;
    const int together = EMU_WARP / words;
    int all = 0;
    for (int first = 0; first < EMU_WARP; first += together) {
        uintptr_t word[EMU_WARP];
        int n = 0, bank[BANKS] = {0};
        for (int i = first; i < first + together; i++)
            for (int k = 0; k < words && r->lanes >> i & 1; k++)
                word[n++] = r->at[i] / WORD + (uintptr_t)k;
        all += different(word, n, bank);
        *moved += most_of(bank, BANKS);
    }
    *least += (all + BANKS - 1) / BANKS;
}

static void count_global(const struct request *r, int64_t *moved, int64_t *least) {
    uintptr_t sector[2 * EMU_WARP], at[EMU_WARP];
    int n = 0, lanes = 0;
    for (int i = 0; i < EMU_WARP; i++)
        if (r->lanes >> i & 1) {
            at[lanes++] = r->at[i];
            sector[n++] = r->at[i] / SECTOR;
            sector[n++] = (r->at[i] + r->bytes - 1) / SECTOR;
        }
    *moved += different(sector, n, NULL);
    *least += (different(at, lanes, NULL) * (int64_t)r->bytes + SECTOR - 1) / SECTOR;
}

void watch_traffic_step(void) {
    for (int i = 0; i < traffic.opened; i++) {
        struct place *p = traffic.open[i];
        for (size_t k = 0; k < p->requests; k++)
            if (p->shared)
                count_shared(&p->request[k], &p->moved, &p->least);
            else
                count_global(&p->request[k], &p->moved, &p->least);
        p->all += (int64_t)p->requests;
        p->requests = 0;
        p->open = false;
        memset(p->count, 0, sizeof p->count);
    }
    traffic.opened = 0;
}

/* ---- keeping -------------------------------------------------------------------------------- */

static void die(const char *what) {
    fprintf(stderr, "watch: %s\n", what);
    abort();
}

static struct place *place_of(uint32_t place, bool shared) {
    uint32_t i = place * 2654435761u >> 7;
    for (int tries = 0; tries < PLACES; tries++, i++) {
        struct place *p = &traffic.place[i % PLACES];
        if (!p->kernel)
            *p = (struct place){.kernel = traffic.kernel, .place = place, .shared = shared};
        if (p->place == place && p->shared == shared && p->kernel == traffic.kernel)
            return p;
    }
    die("more places than are foreseen");
    return NULL;
}

static struct request *request_of(struct place *p, size_t number) {
    while (number >= p->room) {
        p->room = p->room ? 2 * p->room : 16;
        p->request = realloc(p->request, p->room * sizeof *p->request);
        if (!p->request)
            die("no memory for requests");
    }
    while (p->requests <= number)
        p->request[p->requests++] = (struct request){.lanes = 0};
    return &p->request[number];
}

void watch_traffic_access(const char *kernel, int thread, bool shared, uintptr_t at,
                          size_t bytes, uint32_t place) {
    const int lane = thread % EMU_WARP, warp = thread / EMU_WARP;
    if (!traffic.on || bytes > 16)
        return;
    if (warp != traffic.warp)
        watch_traffic_step();
    traffic.warp = warp;
    traffic.kernel = kernel;
    struct place *p = place_of(place, shared);
    if (!p->open)
        traffic.open[traffic.opened++] = p;
    p->open = true;
    struct request *r = request_of(p, p->count[lane]++);
    r->bytes = (uint32_t)bytes;
    r->lanes |= 1u << lane;
    r->at[lane] = at;
}

/* ---- telling -------------------------------------------------------------------------------- */

void emu_traffic(bool on) {
    watch_traffic_step();
    for (int i = 0; i < PLACES && on; i++) {
        free(traffic.place[i].request);
        traffic.place[i] = (struct place){.kernel = NULL};
    }
    traffic.on = on;
}

int emu_traffic_places(struct emu_traffic *to, int most) {
    int n = 0;
    watch_traffic_step();
    for (int i = 0; i < PLACES && n < most; i++) {
        const struct place *p = &traffic.place[i];
        if (p->kernel && p->all)
            to[n++] = (struct emu_traffic){p->kernel, p->place, p->shared,
                                           p->all,    p->moved, p->least};
    }
    return n;
}
