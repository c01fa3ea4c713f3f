/* Documents packed into the sequences of a model: whole where they fit, each into the sequence that it leaves
 * the least room in, the longest first (best-fit decreasing; Ding et al., "Fewer Truncations Improve Language
 * Modeling", arXiv:2404.10830). Their borders are masked (data/tokens.h): the first token of a document, and
 * what is left of a sequence, is no target. */
#include "tokens.h"

#include "common/file.h"
#include "common/mem.h"
#include "common/progress.h"

#include <stdlib.h>

/* A document, or what is behind its whole sequences. */
struct piece {
    int64_t first, n; /* among the ids of all */
    int64_t next;     /* piece behind it in its sequence, or -1 */
};

struct packing {
    int64_t seq;
    ARR(struct piece) pieces;
    ARR(int64_t) begins; /* the first piece of each sequence */
    /* Of each room the last sequence that has it, and of each sequence the one before with its room; -1:
     * none. Bits of rooms that some sequence has. */
    int64_t *with_room; /* [seq + 1] */
    ARR(int64_t) before;
    uint64_t *rooms;
};

static int by_length(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The least room of n or more that a sequence has, or -1. */
static int64_t least_room(const struct packing *p, int64_t n) {
    for (int64_t word = n / 64; word <= p->seq / 64; word++) {
        uint64_t bits = p->rooms[word];
        if (word == n / 64)
            bits &= ~UINT64_C(0) << n % 64;
        if (bits)
            return word * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

static void put(struct packing *p, int64_t i) {
    struct piece *piece = &p->pieces.p[i];
    int64_t room = least_room(p, piece->n), at = p->begins.n;
    if (room < 0) {
        room = p->seq;
        piece->next = -1;
        arr_push(&p->begins, i);
        arr_push(&p->before, -1);
    } else {
        at = p->with_room[room];
        p->with_room[room] = p->before.p[at];
        if (p->with_room[room] < 0)
            p->rooms[room / 64] &= ~(UINT64_C(1) << room % 64);
        piece->next = p->begins.p[at];
        p->begins.p[at] = i;
    }
    room -= piece->n;
    p->before.p[at] = p->with_room[room];
    p->with_room[room] = at;
    p->rooms[room / 64] |= UINT64_C(1) << room % 64;
}

/* Pieces of at most a sequence. One of a single token has nothing to learn. */
static int64_t cut(struct packing *p, const struct document *documents, int64_t n) {
    int64_t longer = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct document d = documents[i];
        longer += d.n > p->seq;
        for (int64_t at = 0; at < d.n; at += p->seq) {
            const int64_t length = d.n - at < p->seq ? d.n - at : p->seq;
            if (length > 1)
                arr_push(&p->pieces, (struct piece){d.first + at, length, -1});
        }
    }
    return longer;
}

static int write_sequences(const struct packing *p, const char *path,
                           const struct token_ids *ids, struct err *err) {
    struct token_ids out = {0};
    for (int64_t s = 0; s < p->begins.n; s++) {
        const int64_t end = out.n + p->seq;
        for (int64_t i = p->begins.p[s]; i >= 0; i = p->pieces.p[i].next) {
            const struct piece *piece = &p->pieces.p[i];
            for (int64_t k = 0; k < piece->n; k++)
                arr_push(&out, ids->p[piece->first + k] | (k ? 0 : TOKENS_MASK));
        }
        while (out.n < end)
            arr_push(&out, TOKENS_MASK);
    }
    int rc = tokens_write_masked(path, &out, err);
    free(out.p);
    return rc;
}

int tokens_pack(const char *path, int64_t seq, const struct token_ids *ids,
                const struct document *documents, int64_t n, struct err *err) {
    struct packing p = {.seq = seq};
    p.with_room = mem_array((size_t)seq + 1, sizeof *p.with_room);
    p.rooms = mem_array((size_t)seq / 64 + 1, sizeof *p.rooms);
    for (int64_t i = 0; i <= seq; i++)
        p.with_room[i] = -1;
    const int64_t longer = cut(&p, documents, n);
    int64_t packed = 0;
    if (p.pieces.n)
        qsort(p.pieces.p, (size_t)p.pieces.n, sizeof *p.pieces.p, by_length);
    for (int64_t i = 0; i < p.pieces.n; i++) {
        put(&p, i);
        packed += p.pieces.p[i].n;
    }
    int rc = p.begins.n ? write_sequences(&p, path, ids, err)
                        : err_input(err, "there is no document of two tokens or more");
    if (rc == 0)
        note("weft-tokens: %lld documents in %lld sequences of %lld, %.1f %% padding, %lld "
             "longer than one",
             (long long)n, (long long)p.begins.n, (long long)seq,
             100 - 100.0 * (double)packed / (double)(p.begins.n * seq), (long long)longer);
    arr_release(&p.pieces);
    arr_release(&p.begins);
    arr_release(&p.before);
    free(p.with_room);
    free(p.rooms);
    return rc;
}
