#include "program/halo.h"

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

struct halo_run halo_run(const struct halo *h, int owner, int reader) {
    int64_t block = owner * h->rows, window = reader * h->step - h->lead;
    int64_t first = max64(block, window);
    int64_t end =
        block + h->rows < window + h->window ? block + h->rows : window + h->window;
    return (struct halo_run){first - block, first - window, max64(end - first, 0)};
}

static struct halo_piece piece(const struct halo *h, int owner, int reader, bool block) {
    struct halo_run r = halo_run(h, owner, reader);
    return (struct halo_piece){block ? r.in_block : r.in_window, owner == reader ? 0 : r.n};
}

struct halo_piece halo_sent(const struct halo *h, int me, int peer) {
    return h->back ? piece(h, peer, me, false) : piece(h, me, peer, true);
}

struct halo_piece halo_got(const struct halo *h, int me, int peer) {
    return h->back ? piece(h, me, peer, true) : piece(h, peer, me, false);
}

void halo_most(const struct halo *h, int64_t *sent, int64_t *got) {
    *sent = *got = 0;
    for (int me = 0; me < h->parts; me++) {
        int64_t s = 0, g = 0;
        for (int peer = 0; peer < h->parts; peer++) {
            s += halo_sent(h, me, peer).n;
            g += halo_got(h, me, peer).n;
        }
        *sent = max64(*sent, s);
        *got = max64(*got, g);
    }
}
