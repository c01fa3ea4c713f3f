/* post.h - letters between the ranks of the fake of NCCL: several under way at a time, over MPI.
 *
 *     post_recv(&p, rank, tag, member, bytes);
 *     post_send(&p, rank, tag, data, bytes);
 *     if (post_done(&p)) {
 *         use(p.letter[0].bytes);
 *         post_end(&p);
 *     }
 */
#ifndef WEFT_FAKE_POST_H
#define WEFT_FAKE_POST_H

#include "common/mem.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 64 }; /* at most in a communicator */

struct letter {
    char *bytes; /* struct head, then data */
    int64_t n;
    int peer; /* member */
};

/* Letters that are under way: sent ones stay here until they were taken. */
struct post {
    MPI_Request req[4 * RANKS];
    struct letter letter[4 * RANKS];
    int n;
};

static struct letter *letter(struct post *p, int peer, int64_t n) {
    struct letter *l = &p->letter[p->n];
    *l = (struct letter){.bytes = mem_alloc((size_t)n + 1), .n = n, .peer = peer};
    return l;
}

/* Synchronous, so that it is done only when the other side is there. */
static void post_send(struct post *p, int rank, int t, const void *data, int64_t n) {
    struct letter *l = letter(p, -1, n);
    memcpy(l->bytes, data, (size_t)n);
    MPI_Issend(l->bytes, (int)n, MPI_BYTE, rank, t, MPI_COMM_WORLD, &p->req[p->n++]);
}

static void post_recv(struct post *p, int rank, int t, int peer, int64_t n) {
    struct letter *l = letter(p, peer, n);
    MPI_Irecv(l->bytes, (int)n, MPI_BYTE, rank, t, MPI_COMM_WORLD, &p->req[p->n++]);
}

static bool post_done(struct post *p) {
    int done = 0;
    MPI_Testall(p->n, p->req, &done, MPI_STATUSES_IGNORE);
    return done;
}

static void post_end(struct post *p) {
    for (int i = 0; i < p->n; i++)
        free(p->letter[i].bytes);
    p->n = 0;
}

#endif
